"""Sweeps: points that cover their space, results that depend on the point alone, resumption."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.errors import ConfigurationError
from headgate.experiments.scenarios import parse
from headgate.model import MG1, Distribution
from headgate.pipeline.jobs import sweep as job
from headgate.pipeline.sweeping import Space, grid, points, simulate_point, varied

SCENARIO = parse(
    """
    name: two
    topics: {t: {rate: 50, size: 1000}}
    applications:
      alarm: {clients: ["a-*"], category: RT}
      film: {clients: ["f-*"], category: AN}
    clients:
      a-1: {subscriptions: t}
      f-1: {subscriptions: t}
    links: [{name: floor, clients: ["*"], rate: 1Mbit}]
    """
)


def test_each_dimension_is_covered_evenly() -> None:
    drawn = points(SCENARIO, Space(load=(0.5, 1.5), link_rate=(1, 2), drop=(0, 0.2)), 100, 7)
    # A Latin hypercube has exactly one point in each hundredth of each dimension.
    assert sorted(int((load - 0.5) * 100 + 1e-9) for load in drawn["load"]) == list(range(100))
    assert sorted(int((rate - 1) * 100 + 1e-9) for rate in drawn["link_rate"]) == list(range(100))
    for number, category in enumerate(("AN", "RT")):
        rules = [policy[number] for policy in drawn["policy"]]
        assert {rule["category"] for rule in rules} == {category}
        assert sorted(int(rule["drop"] * 500 + 1e-9) for rule in rules) == list(range(100))
        levels = [rule["priority"] for rule in rules]
        assert [levels.count(level) for level in range(4)] == [25] * 4
    assert drawn.equals(
        points(SCENARIO, Space(load=(0.5, 1.5), link_rate=(1, 2), drop=(0, 0.2)), 100, 7)
    )
    assert drawn["seed"].is_unique


def test_a_grid_has_every_combination_once() -> None:
    space = Space(load=(0.5, 1.5), link_rate=(1, 1), drop=(0, 0.2), levels=2)
    drawn = grid(SCENARIO, space, 3, 7)
    # Three loads, one rate; two levels and three drops of each of two categories.
    assert len(drawn) == 3 * 1 * (2 * 3) ** 2
    assert sorted(set(drawn["load"])) == [0.5, 1.0, 1.5]
    assert set(drawn["link_rate"]) == {1.0}
    combinations = {
        (row.load, *((one["priority"], one["drop"]) for one in row.policy))
        for row in drawn.itertuples()
    }
    assert len(combinations) == len(drawn)
    assert drawn["seed"].is_unique


def test_a_grid_that_nobody_can_have_meant_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"10 × 10 × 16 × 16 × 10 × 10 = 2,560,000 points"):
        grid(SCENARIO, Space(link_rate=(1, 2), levels=16), 10, 1)


def test_a_point_is_the_scenario_under_its_load_and_link() -> None:
    other = varied(SCENARIO, 0.5, 2.0)
    assert other.topics[0].rate == 25
    assert other.links[0].rate == 2_000_000


def test_a_point_without_priorities_agrees_with_theory() -> None:
    """Both categories at one level: M/G/1 with two copies of each message on one link."""
    point = {
        "point": 0,
        "scenario": "two",
        "seed": 5,
        "load": 1.0,
        "link_rate": 1.0,
        "policy": [
            {"category": "AN", "priority": 0, "drop": 0.5},
            {"category": "RT", "priority": 0, "drop": 0.0},
        ],
    }
    an, rt = simulate_point(SCENARIO, point, 2000.0, 20.0)
    assert an["loss"] == pytest.approx(0.5, abs=0.01)
    assert rt["loss"] == 0
    assert rt["offered_rate"] == pytest.approx(50, rel=0.02)
    assert rt["delivered_rate"] == pytest.approx(50, rel=0.02)
    assert an["delivered_rate"] == pytest.approx(25, rel=0.03)
    alone = MG1(50, Distribution.constant(8000 / 1e6)).mean_response
    assert rt["mean_ms"] > 1e3 * alone


def test_rounds_grow_until_they_are_as_long_as_a_kill_may_lose() -> None:
    assert job.next_round(500, job.LOST) == 500
    assert job.next_round(500, job.LOST / 2) == 1000
    assert job.next_round(500, 0.0) == 500 * job.GROWTH
    assert job.next_round(2000, 2 * job.LOST) == 1000
    assert job.next_round(500, 100 * job.LOST) == job.ROUND


def test_a_sweep_goes_on_where_it_was_and_gives_what_one_process_would(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = str(tmp_path / "dataset")
    task = job.Sweep(output, points=6, seed=3, duration=20, warmup=5)
    monkeypatch.setattr(job, "ROUND", 4)
    written: list[int] = []

    def stop_after_the_first_round(count: int) -> None:
        written.append(count)
        if count == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.sweep(spark, task, SCENARIO, stop_after_the_first_round)
    written.clear()
    assert job.sweep(spark, task, SCENARIO, written.append) == 2
    assert written == [4, 2]
    assert job.sweep(spark, task, SCENARIO) == 0

    rows = spark.read.parquet(output).sort("point", "category").toPandas()
    assert len(rows) == 6 * 2
    expected = [
        row
        for point in points(SCENARIO, task.space, 6, 3).to_dict("records")
        for row in simulate_point(SCENARIO, point, 20, 5)
    ]
    for name in ("point", "category", "priority", "mean_ms", "p99_ms", "loss", "events"):
        assert rows[name].tolist() == [row[name] for row in expected]
