"""PlanEMQX §V by model and simulator: the mean response over the link's rate (Fig. 4), and what the
plan of Listing 2 does to each category.

The authors' figures are theirs as published and in the data that accompanies the paper. Their
Mbps is 2^20 bit/s where they state loads; a `tc` link's is 10^6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headgate.contract import PolicyRule
from headgate.experiments.report import Cell, Claim, Report, Table, Tell, silently
from headgate.experiments.scenarios import load
from headgate.model import Model, Scenario, Shape
from headgate.model.scenario import ArrivalProcess
from headgate.model.simulation import Estimate
from headgate.model.simulation.of_scenario import ScenarioMeasurement, simulate_scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATES = (8, 9, 10, 11, 12, 13)
EDICT_MS = (858.9, 104.2, 57.3, 40.4, 31.2, 25.7)
PROTOTYPE_MS = (2014.0, 37.4, 24.0, 23.4, 16.7, 15.7)
BINARY_MBPS, DECIMAL_MBPS = 2**20, 10**6
OVERHEAD = 100
"""Bytes of MQTT, TCP and IP headers per message, roughly: 413 messages per second of 2.5 kB."""

CATEGORIES = ("RT", "ST", "TS", "AN")
PLAN = (
    PolicyRule(category="RT", priority=0),
    PolicyRule(category="ST", priority=1, drop=0.02),
    PolicyRule(category="TS", priority=2),
    PolicyRule(category="AN", priority=3, drop=0.05),
)
"""Listing 2: priorities RT, ST, TS, AN; drop 2 % of ST and 5 % of AN."""
PROTOTYPE_PLAN_MS = {
    9: {"RT": (45.1, 35.8), "ST": (39.6, 34.9), "TS": (45.3, 43.2), "AN": (45.4, 44.8)},
    10: {"RT": (26.0, 24.6), "ST": (23.8, 23.3), "TS": (28.8, 31.5), "AN": (27.7, 32.2)},
    11: {"RT": (20.3, 17.4), "ST": (19.1, 18.2), "TS": (20.0, 24.1), "AN": (20.0, 27.1)},
    12: {"RT": (21.5, 13.1), "ST": (17.4, 12.7), "TS": (23.0, 20.1), "AN": (20.6, 19.8)},
}


@dataclass(frozen=True)
class Effort:
    """Replications of the authors' five minutes, the first of which does not count."""

    replications: int = 40
    seed: int = 1


USUAL = Effort()


def scenario(
    rate_bps: int,
    *,
    arrivals: ArrivalProcess = ArrivalProcess.POISSON,
    sizes: Shape = Shape.CONSTANT,
    overhead: int = 0,
) -> Scenario:
    """The workload behind a link of another rate, with other arrivals or sizes."""
    base = load("planemqx")
    replace = msgspec.structs.replace
    return replace(
        base,
        topics=tuple(replace(topic, arrivals=arrivals, sizes=sizes) for topic in base.topics),
        links=(replace(base.links[0], rate=rate_bps),),
        overhead=overhead,
    )


def _measured(
    what: Scenario, effort: Effort, policy: tuple[PolicyRule, ...] = ()
) -> ScenarioMeasurement:
    return simulate_scenario(what, policy, replications=effort.replications, seed=effort.seed)


def figure_4(effort: Effort = USUAL, tell: Tell = silently) -> Report:
    """Mean response of all messages, for links of 8 to 13 Mbps."""
    rows: list[list[Cell]] = []
    exponential: list[float] = []
    five_minutes: list[Estimate] = []
    prototype: list[float] = []
    lines: tuple[list[float], list[float]] = ([], [])
    for rate, edict, real in zip(RATES, EDICT_MS, PROTOTYPE_MS, strict=True):
        tell(f"Fig. 4: {rate} Mbps")
        constant_sizes = scenario(rate * BINARY_MBPS)
        random_sizes = scenario(rate * BINARY_MBPS, sizes=Shape.EXPONENTIAL)
        like_prototype = scenario(
            rate * DECIMAL_MBPS, arrivals=ArrivalProcess.PERIODIC, overhead=OVERHEAD
        )
        model = Model(constant_sizes)
        everyone = range(len(model.table))
        runs = [
            _measured(s, effort).everything().mean
            for s in (constant_sizes, random_sizes, like_prototype)
        ]
        five_minutes.append(runs[1])
        exponential.append(1000 * runs[1].value)
        prototype.append(1000 * runs[2].value)
        lines[0].append(1000 * model.predict().group_mean(everyone))
        lines[1].append(1000 * Model(random_sizes).predict().group_mean(everyone))
        rows.append(
            [
                rate,
                lines[0][-1],
                _milliseconds(runs[0]),
                lines[1][-1],
                _milliseconds(runs[1]),
                edict,
                _milliseconds(runs[2]),
                real,
            ]
        )
    table = Table(
        "Mean response (ms); simulated: 5 minutes as in the paper, 95 % intervals",
        [
            "Mbps",
            "model, constant sizes",
            "simulated",
            "model, exponential sizes",
            "simulated",
            "authors' simulator",
            "simulated: periodic, headers, 10^6 bit/s",
            "authors' prototype",
        ],
        rows,
    )

    def draw(axes: Axes) -> None:
        axes.plot(RATES, lines[0], "C0-", label="model, constant sizes")
        axes.plot(RATES, lines[1], "C1-", label="model, exponential sizes")
        axes.plot(RATES, exponential, "C1o", label="simulated, exponential sizes")
        axes.plot(RATES, EDICT_MS, "C1x--", label="authors' simulator")
        axes.plot(RATES[1:], prototype[1:], "C2o-", label="simulated like the prototype")
        axes.plot(RATES, PROTOTYPE_MS, "C2x--", label="authors' prototype")
        axes.set(xlabel="link (Mbps)", ylabel="mean response (ms)", yscale="log")
        axes.legend(fontsize="small")

    claims = _figure_4_claims(lines[1][0], five_minutes[0], exponential, prototype)
    return Report(
        "planemqx-model-fig4",
        "PlanEMQX Fig. 4: response over the link's rate",
        [table],
        claims,
        draw,
    )


def _figure_4_claims(
    in_the_long_run: float,
    short: Estimate,
    exponential: Sequence[float],
    prototype: Sequence[float],
) -> list[Claim]:
    rest = [edict - mine for edict, mine in zip(EDICT_MS, exponential, strict=True)][1:]
    slower = [real - mine for real, mine in zip(PROTOTYPE_MS, prototype, strict=True)][1:]
    return [
        Claim(
            "EDICT, the authors' simulator, models this workload (§V-B).",
            max(rest) - min(rest) < 4 and min(rest) > 0,
            "Poisson arrivals with exponential sizes, one size for all copies of a message, fit "
            f"its curve from 9 Mbps on up to a constant {min(rest):.0f} to {max(rest):.0f} ms, as "
            "of stages that are not at the link. This is inferred from the figures: EDICT's own "
            "model was not examined. The devices' payloads have constant sizes, which halves the "
            "wait.",
        ),
        Claim(
            "At 8 Mbps the mean response is 858.9 ms (EDICT).",
            abs(short.value * 1000 - EDICT_MS[0]) < 2000 * short.half_width,
            f"The load is 98.9 %: {_milliseconds(short)} ms come out of five minutes, but "
            f"{in_the_long_run:.0f} ms in the long run. The paper does not say how long EDICT ran.",
        ),
        Claim(
            "The prototype is faster than EDICT because tc does not emulate queueing (§V-B).",
            None,
            "Periodic devices and constant sizes would be enough: simulated so, with all queueing, "
            f"{OVERHEAD} B of headers and the link's decimal Mbit/s, the response is lower than "
            f"the prototype's by {min(slower):.0f} to {max(slower):.0f} ms from 9 Mbps on. What tc "
            "does was not tested here.",
        ),
        Claim(
            "At 8 Mbps the mean response is 2014 ms (prototype).",
            abs(prototype[0] / PROTOTYPE_MS[0] - 1) < 0.25,
            "A link of 8·10^6 bit/s is overloaded by the payload alone (8.29 Mbit/s): with "
            f"unlimited buffers the backlog makes it {prototype[0] / 1000:.0f} s within five "
            "minutes. Whatever bounds theirs (socket buffers, back-pressure) is not modelled.",
        ),
    ]


def plan(effort: Effort = USUAL, tell: Tell = silently) -> Report:
    """Default and planned response of every category, at the link and in the authors' prototype."""
    rows: list[list[Cell]] = []
    ideal: dict[str, tuple[float, float]] = {}
    for rate, authors in PROTOTYPE_PLAN_MS.items():
        tell(f"Fig. 5: {rate} Mbps")
        what = scenario(rate * BINARY_MBPS)
        model = Model(what)
        before, after = _measured(what, effort), _measured(what, effort, PLAN)
        predictions = model.predict(()), model.predict(PLAN)
        for category in CATEGORIES:
            flows = [n for n, f in enumerate(model.table.flows) if f.category == category]
            default, planned = (1000 * p.group_mean(flows) for p in predictions)
            rows.append(
                [
                    rate,
                    category,
                    default,
                    _milliseconds(before.category(category).mean),
                    planned,
                    _milliseconds(after.category(category).mean),
                    100 * after.category(category).loss.value,
                    f"{authors[category][0]} → {authors[category][1]}",
                ]
            )
            if rate == 10:
                ideal[category] = (default, planned)
    table = Table(
        "Mean response per category (ms): default, and with the plan's priorities and drops",
        [
            "Mbps",
            "category",
            "default: model",
            "simulated",
            "plan: model",
            "simulated",
            "loss (%)",
            "authors' prototype",
        ],
        rows,
    )
    gain = 1 - ideal["RT"][1] / ideal["RT"][0]
    claims = [
        Claim(
            "Planned priorities improve the response of time-sensitive flows by 20 %.",
            gain >= 0.2,
            f"Priorities at the link itself improve RT by {gain:.0%} at 10 Mbps: the prototype's "
            "queue stands before the broker's own FIFO, not at the bottleneck, and gains little.",
        ),
        Claim(
            "The price is paid by AN and TS.",
            all(ideal[category][1] > ideal[category][0] for category in ("AN", "TS")),
            f"AN goes from {ideal['AN'][0]:.0f} to {ideal['AN'][1]:.0f} ms, TS from "
            f"{ideal['TS'][0]:.0f} to {ideal['TS'][1]:.0f} ms.",
        ),
    ]

    def draw(axes: Axes) -> None:
        width = 0.2
        bars = {
            "default, link": [ideal[c][0] for c in CATEGORIES],
            "plan, link": [ideal[c][1] for c in CATEGORIES],
            "default, authors": [PROTOTYPE_PLAN_MS[10][c][0] for c in CATEGORIES],
            "plan, authors": [PROTOTYPE_PLAN_MS[10][c][1] for c in CATEGORIES],
        }
        for number, (name, values) in enumerate(bars.items()):
            axes.bar(
                [i + number * width for i in range(len(CATEGORIES))], values, width, label=name
            )
        axes.set_xticks([i + 1.5 * width for i in range(len(CATEGORIES))], CATEGORIES)
        axes.set(ylabel="mean response (ms), 10 Mbps")
        axes.legend()

    return Report(
        "planemqx-model-plan",
        "PlanEMQX Fig. 5: what the plan does, scheduled at the link",
        [table],
        claims,
        draw,
    )


def _milliseconds(estimate: Estimate) -> str:
    value, width = estimate.value, estimate.half_width
    return f"{1000 * value:.1f} ± {1000 * width:.1f}"


def reports(effort: Effort = USUAL, tell: Tell = silently) -> Iterator[Report]:
    yield figure_4(effort, tell)
    yield plan(effort, tell)
