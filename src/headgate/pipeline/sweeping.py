"""The simulator over many situations: a scenario's load, link rate, priorities and drops, varied.

Points are spread by a Latin hypercube: each dimension is covered evenly however many there are, and
what was drawn depends on the seed alone. Or they are a grid: all combinations of a few values. Each
point is simulated by itself, with a seed of its own,
wherever Spark has room; its result does not depend on where that was or what else ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from scipy.stats import qmc

from headgate.contract import PolicyRule
from headgate.errors import ConfigurationError
from headgate.model import Scenario

Range = tuple[float, float]

RESULT = (
    "point bigint, scenario string, seed bigint, load double, link_rate double, "
    "policy array<struct<category: string, priority: int, drop: double>>, "
    "category string, priority int, drop double, "
    "offered_rate double, delivered_rate double, loss double, "
    "mean_ms double, mean_error_ms double, p50_ms double, p95_ms double, p99_ms double, "
    "events bigint"
)
"""One row for each point and category. `mean_error_ms` is the half-width of a 95 % interval."""

POINT = RESULT.partition("category string, priority int, drop double, ")[0].rstrip(", ")


LARGEST_GRID = 1_000_000
"""Points: hours on many cores; what is beyond was hardly meant."""


@dataclass(frozen=True)
class Space:
    """What is varied, and how far."""

    load: Range = (0.5, 1.2)
    """Factor on the rate of every topic."""
    link_rate: Range = (1.0, 1.0)
    """Factor on the rate of every link."""
    drop: Range = (0.0, 0.1)
    """Of each category."""
    levels: int = 4
    """Priorities of categories, from 0; 1 gives all the same."""


def categories_of(scenario: Scenario) -> list[str]:
    found = sorted({one.category for one in scenario.applications if one.category})
    if not found:
        raise ConfigurationError(f"{scenario.name}: no application has a category to be varied")
    return found


def points(scenario: Scenario, space: Space, count: int, seed: int) -> pd.DataFrame:
    """`count` points of the space, numbered; the same for the same arguments."""
    categories = len(categories_of(scenario))
    drawn = qmc.LatinHypercube(2 + 2 * categories, rng=np.random.default_rng(seed)).random(count)
    levels = np.minimum((drawn[:, 2 : 2 + categories] * space.levels).astype(int), 15)
    return table(
        scenario,
        seed,
        between(space.load, drawn[:, 0]),
        between(space.link_rate, drawn[:, 1]),
        levels,
        between(space.drop, drawn[:, 2 + categories :]),
    )


def grid(scenario: Scenario, space: Space, steps: int, seed: int) -> pd.DataFrame:
    """Every combination: `steps` values of load, of link rate and of each category's drop, from
    one end to the other, and all priorities of each category. What has no width has one value."""
    categories = len(categories_of(scenario))

    def values(bounds: Range) -> np.ndarray:
        return np.unique(np.linspace(*bounds, steps))

    axes = [
        values(space.load),
        values(space.link_rate),
        *[np.arange(space.levels)] * categories,
        *[values(space.drop)] * categories,
    ]
    count = math.prod(map(len, axes))
    if count > LARGEST_GRID:
        raise ConfigurationError(
            f"a grid of {' × '.join(str(len(axis)) for axis in axes)} = {count:,} points: more "
            f"than {LARGEST_GRID:,}; take fewer steps or levels, or a narrower --drop"
        )
    chosen = np.stack([one.ravel() for one in np.meshgrid(*axes, indexing="ij")], axis=1)
    levels, drops = chosen[:, 2 : 2 + categories].astype(int), chosen[:, 2 + categories :]
    return table(scenario, seed, chosen[:, 0], chosen[:, 1], levels, drops)


def table(
    scenario: Scenario,
    seed: int,
    load: np.ndarray,
    link_rate: np.ndarray,
    levels: np.ndarray,
    drops: np.ndarray,
) -> pd.DataFrame:
    """Points, numbered, each with a seed of its own; levels and drops by category."""
    categories = categories_of(scenario)
    policies = [
        [
            {"category": category, "priority": int(level), "drop": float(drop)}
            for category, level, drop in zip(categories, row_levels, row_drops, strict=True)
        ]
        for row_levels, row_drops in zip(levels, drops, strict=True)
    ]
    # Far apart for different sweeps, in case two are put together.
    first = seed << 32
    return pd.DataFrame(
        {
            "point": np.arange(len(load)),
            "scenario": scenario.name,
            "seed": first + np.arange(len(load)),
            "load": load,
            "link_rate": link_rate,
            "policy": policies,
        }
    )


def between(bounds: Range, unit: np.ndarray) -> np.ndarray:
    return np.asarray(bounds[0] + (bounds[1] - bounds[0]) * unit)


def varied(scenario: Scenario, load: float, link_rate: float) -> Scenario:
    """The scenario under another load and with other links."""
    replace = msgspec.structs.replace
    return replace(
        scenario,
        topics=tuple(
            topic if topic.rate is None else replace(topic, rate=topic.rate * load)
            for topic in scenario.topics
        ),
        links=tuple(
            link if link.rate is None else replace(link, rate=max(1, round(link.rate * link_rate)))
            for link in scenario.links
        ),
    )


def simulated(some: DataFrame, scenario: Scenario, duration: float, warmup: float) -> DataFrame:
    """What the simulator says of each point, by category."""
    return some.mapInPandas(simulating(scenario, duration, warmup), RESULT)


def simulating(
    scenario: Scenario, duration: float, warmup: float
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """A function for Spark's workers: batches of points in, batches of results out."""

    def run(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            # A batch of results for each of points: to hand over one takes as long as to simulate.
            yield pd.DataFrame(
                row
                for point in batch.to_dict("records")
                for row in simulate_point(scenario, point, duration, warmup)
            )

    return run


def simulate_point(
    scenario: Scenario, point: dict[str, object], duration: float, warmup: float
) -> list[dict[str, object]]:
    """One simulation, in this process and thread."""
    from headgate.model.simulation.of_scenario import (  # noqa: PLC0415 (compiles when imported)
        simulate_scenario,
    )

    rules = [PolicyRule(**rule) for rule in point["policy"]]  # type: ignore[attr-defined]
    result = simulate_scenario(
        varied(scenario, point["load"], point["link_rate"]),  # type: ignore[arg-type]
        rules,
        duration=duration,
        warmup=warmup,
        replications=1,
        seed=point["seed"],  # type: ignore[arg-type]
        workers=1,
    )
    rows: list[dict[str, object]] = []
    for rule in rules:
        group = result.category(rule.category or "")
        rows.append(
            {
                **point,
                "category": rule.category,
                "priority": rule.priority,
                "drop": rule.drop,
                "offered_rate": group.offered / group.seconds,
                "delivered_rate": group.throughput,
                "loss": group.loss.value,
                "mean_ms": 1e3 * group.mean.value,
                "mean_error_ms": 1e3 * group.mean.half_width,
                "p50_ms": 1e3 * group.percentile(50).value,
                "p95_ms": 1e3 * group.percentile(95).value,
                "p99_ms": 1e3 * group.percentile(99).value,
                "events": result.measurement.events,
            }
        )
    return rows
