"""Calibration: what is found of links whose truth is known, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.testing import assertDataFrameEqual

from headgate.contract import PolicyRule
from headgate.experiments.scenarios import parse
from headgate.model import Model, Scenario
from headgate.pipeline.calibrating import busy, crossings, known_of, levels
from headgate.pipeline.fitting import BUSY, Factors, Speed, fit_factors, fit_speed, predict
from headgate.pipeline.studying import Study, study_windows

from .recording import frame, record
from .simulated import frame as simulated_frame
from .simulated import recorded

RATE, OVERHEAD = 1_000_000, 90

POLICY = [PolicyRule(category="RT", priority=0), PolicyRule(category="AN", priority=3)]


def scenario(arrivals: str = "poisson", rate: int = RATE, load: float = 1.0) -> Scenario:
    """Three kinds of sizes to two categories behind one link; loaded to 0.55."""
    extra = ", on: 2s, off: 4s" if arrivals == "bursts" else ""
    return parse(
        f"""
        name: known
        topics:
          small: {{rate: {60 * load}, size: 80, arrivals: {arrivals}{extra}}}
          large: {{rate: {25 * load}, size: 900, sizes: exponential, arrivals: {arrivals}{extra}}}
          both: {{rate: {35 * load}, size: 400, sizes: uniform, arrivals: {arrivals}{extra}}}
        applications:
          alarm: {{clients: ["a-*"], category: RT}}
          film: {{clients: ["f-*"], category: AN}}
        clients:
          a-1: {{subscriptions: [small, both]}}
          f-1: {{subscriptions: [large, both]}}
        links: [{{name: floor, clients: ["*"], rate: {rate}}}]
        overhead: {OVERHEAD}
        """
    )


def known_windows(spark: SparkSession, records: pd.DataFrame, window: str) -> pd.DataFrame:
    with TemporaryDirectory() as folder:
        crossed = crossings(simulated_frame(spark, Path(folder), records), window)
        return known_of(crossed, 10_000).toPandas()


def studied(
    spark: SparkSession,
    records: pd.DataFrame,
    *,
    given_rate: float | None = None,
    force: tuple[float | None, float, float, float] | None = None,
    window: str = "60 seconds",
) -> Study:
    """The study of the one link that these records are of."""
    known = known_windows(spark, records, window)
    rate, overhead, burstiness, response = force or (None, None, None, None)
    return study_windows(
        known.assign(
            given_rate=given_rate,
            given_overhead=66.0,
            force_rate=rate,
            force_overhead=overhead,
            force_burstiness=burstiness,
            force_response=response,
        )
    )


# What is counted


def test_moments_are_those_of_publications_and_of_what_goes_ahead(spark: SparkSession) -> None:
    """Two copies of one publication at two levels, and one message of another."""
    records = [
        record(0, topic="t", priority=0, bytes=100, sequence=1, category="RT"),
        record(0, topic="t", priority=3, bytes=100, sequence=2, category="AN"),
        record(1, topic="u", priority=3, bytes=50, sequence=3, category="AN"),
    ]
    rows = levels(crossings(frame(spark, records), "10 seconds")).select(
        "level", "category", "w_b", "w_n", "w_bb", "x_bb", "x_bn", "x_nnn", "a_b", "a_n"
    )
    # The publication brings 100 to level 2, and 200 to levels 2 and 5 together: 200² - 100² more.
    expected = spark.createDataFrame(
        [
            (2, "RT", 100.0, 1.0, 1e4, 1e4, 100.0, 1.0, 0.0, 0.0),
            (5, "AN", 150.0, 2.0, 1e4 + 2500, 3e4 + 2500, 300.0 + 50, 7.0 + 1, 100.0, 1.0),
        ],
        rows.schema,
    )
    assertDataFrameEqual(rows, expected)


def test_a_run_that_travelled_as_one_counts_for_all_its_messages(spark: SparkSession) -> None:
    rows = levels(crossings(frame(spark, [record(messages=4, bytes=400)]), "10 seconds"))
    (row,) = rows.collect()
    assert (row["w_n"], row["w_b"], row["w_bb"]) == (4.0, 400.0, 4 * 100.0**2)
    assert row["x_bb"] == 400.0**2
    assert row["a_n"] == 4 * 1.5  # 0, 1, 2 and 3 before the four


def test_messages_of_no_link_and_retained_ones_are_left_out(spark: SparkSession) -> None:
    records = [record(link=""), record(retained=True), record(outcome="dropped", reason="rate")]
    assert crossings(frame(spark, records), "10 seconds").count() == 0


def test_a_sample_says_nothing_of_the_rate_or_of_who_went_ahead(spark: SparkSession) -> None:
    records = [record(n / 100, arrived=record(0)["at"], sequence=n, weight=10.0) for n in range(20)]
    crossed = crossings(frame(spark, records), "10 seconds")
    assert busy(crossed).count() == 0
    assert crossed.agg(sf.sum("ahead_n")).collect()[0][0] == 0
    assert levels(crossed).collect()[0]["w_n"] == 200


def test_a_stall_is_not_taken_for_the_link(spark: SparkSession) -> None:
    """Runs of ten messages at 1 ms each, and one in which the client took nothing for a second."""
    records = []
    for run in range(9):
        slow = 0.1 if run == 4 else 0.001
        records += [
            record(3 * run + slow * n, arrived=record(3 * run)["at"], sequence=20 * run + n)
            for n in range(10)
        ]
    (row,) = busy(crossings(frame(spark, records), "60 seconds")).collect()
    assert row["runs"] == 8
    assert row["e_t1"] / row["e_11"] == pytest.approx(0.009)
    assert row["s_b1"] / row["s_11"] == pytest.approx(900)


# What is fitted


def test_the_model_of_windows_is_the_model_of_the_network(spark: SparkSession) -> None:
    """One long window of Poisson arrivals: what `Model` says of the scenario, within the noise of
    what was drawn (rates and sizes of 2,000 s: 2 %)."""
    place = scenario()
    known = known_windows(spark, recorded(place, POLICY, 2000), "4000 seconds")
    # Records lie in one window; it is longer than they are.
    known["end"] = known["start"] + pd.Timedelta(seconds=2000)
    found = predict(known, Speed(RATE, OVERHEAD)).set_index("category")
    answer = Model(place).predict(POLICY)
    table = Model(place).table
    for category in ("RT", "AN"):
        flows = [n for n, one in enumerate(table.flows) if one.category == category]
        assert found.loc[category, "mean_ms"] == pytest.approx(
            1e3 * answer.group_mean(flows), rel=0.03
        )
        share = answer.throughput[flows] / answer.throughput[flows].sum()
        p99 = 1e3 * float(answer.percentiles[99.0][flows] @ share)
        assert found.loc[category, "p99_ms"] == pytest.approx(p99, rel=0.1)


def test_poisson_arrivals_on_a_link_of_known_rate(spark: SparkSession) -> None:
    """Rate within 0.5 %, overhead within 3 bytes, burstiness and the rest within 5 % of 1."""
    study = studied(spark, recorded(scenario(), POLICY, 1800), given_rate=1.4 * RATE)
    (row,) = study.calibration.to_dict("records")
    assert row["rate"] == pytest.approx(RATE, rel=0.005)
    assert row["overhead"] == pytest.approx(OVERHEAD, abs=3)
    assert row["burstiness"] == pytest.approx(1, abs=0.05)
    assert row["response_factor"] == pytest.approx(1, abs=0.05)
    assert row["samples"] == 30
    assert row["drift"] is False
    # The configuration was wrong by 40 %: that costs the model, and no longer the calibrated one.
    assert row["error"] < 0.05
    assert row["model_error"] > 5 * row["error"]
    assert set(study.validation["category"]) == {"RT", "AN"}
    assert study.validation["start"].nunique() == 7
    assert study.validation["start"].min() > study.validation["start"].max() - pd.Timedelta("7min")


@pytest.mark.parametrize(
    ("arrivals", "low", "high"), [("periodic", 0.4, 0.8), ("bursts", 1.5, 2.5)]
)
def test_burstiness_is_below_one_for_periodic_devices_and_above_for_bursts(
    spark: SparkSession, arrivals: str, low: float, high: float
) -> None:
    load = 0.45 if arrivals == "bursts" else 1.0
    records = recorded(scenario(arrivals, load=load), POLICY, 1800)
    (row,) = studied(spark, records).calibration.to_dict("records")
    assert row["rate"] == pytest.approx(RATE, rel=0.005)
    assert low < row["burstiness"] < high
    assert row["error"] < 0.6 * row["model_error"]


def test_a_link_that_slows_down_has_drifted(spark: SparkSession) -> None:
    before = recorded(scenario(), POLICY, 1200, seed=1)
    same = recorded(scenario(), POLICY, 600, seed=2, after=1200)
    slower = recorded(scenario(rate=850_000), POLICY, 600, seed=2, after=1200)
    force = (float(RATE), float(OVERHEAD), 1.0, 1.0)
    (row,) = studied(spark, pd.concat([before, same]), force=force).calibration.to_dict("records")
    assert row["drift"] is False
    (row,) = studied(spark, pd.concat([before, slower]), force=force).calibration.to_dict("records")
    assert row["drift"] is True
    # Without a version in force, the newest are compared with the older ones.
    (row,) = studied(spark, pd.concat([before, slower])).calibration.to_dict("records")
    assert row["drift"] is True


def test_little_data_are_fitted_and_not_judged(spark: SparkSession) -> None:
    study = studied(spark, recorded(scenario(), POLICY, 180), window="60 seconds")
    (row,) = study.calibration.to_dict("records")
    assert row["rate"] == pytest.approx(RATE, rel=0.05)
    assert row["error"] is None
    assert row["sparse"]
    assert study.validation.empty


def test_a_link_that_was_never_busy_has_no_rate(spark: SparkSession) -> None:
    calm = recorded(scenario(load=0.02), POLICY, 600)
    assert studied(spark, calm).calibration.empty
    (row,) = studied(spark, calm, given_rate=RATE).calibration.to_dict("records")
    assert row["rate"] is None
    assert row["response_factor"] == pytest.approx(1, abs=0.2)


def test_where_all_sizes_are_alike_the_overhead_stays_as_it_is_usual() -> None:
    """A run of k packets of 100 bytes takes k × 1.6 ms: 1 Mbit/s with 100 bytes of overhead, or
    0.83 Mbit/s with 66. Nothing tells, and the usual one is taken."""
    runs = pd.DataFrame({"n": range(8, 60)})
    runs["b"], runs["t"], runs["one"] = 100.0 * runs["n"], 1.6e-3 * runs["n"], 1.0
    columns = {"t": runs["t"], "b": runs["b"], "n": runs["n"], "1": runs["one"]}
    sums = {
        f"{when}_{p}": (columns[p[0]] * columns[p[1]] / runs["n"]).sum()
        for when in ("e", "s")
        for p in BUSY
    }
    found = fit_speed(pd.DataFrame([{"runs": len(runs), **sums}]), 66.0)
    assert found is not None
    assert found.overhead == pytest.approx(66, abs=1)
    assert found.rate == pytest.approx(8 * 166 / 1.6e-3, rel=0.01)


def test_factors_are_those_that_the_contract_defines() -> None:
    truth = Factors(burstiness=0.5, response=1.0)
    rows = pd.DataFrame({"service_ms": [2.0, 3, 4], "model_mean_ms": [4.0, 9, 30]})
    rows["messages"] = 100.0
    rows["mean_ms"] = truth.apply(rows["model_mean_ms"], rows["service_ms"])
    assert rows["mean_ms"].tolist() == [3.0, 6.0, 17.0]
    found = fit_factors(rows)
    assert found.burstiness == pytest.approx(0.5, abs=0.02)
    assert found.response == pytest.approx(1.0, abs=0.02)


def test_where_nothing_waits_burstiness_stays_at_one() -> None:
    """Service is modelled 10 % too short and waits are 1 % of it: that is no burstiness of 11."""
    rows = pd.DataFrame({"service_ms": [10.0], "model_mean_ms": [10.1], "messages": [1000.0]})
    rows["mean_ms"] = 11.1
    assert fit_factors(rows).burstiness == pytest.approx(1, abs=0.15)
    assert fit_factors(rows).response == pytest.approx(1.1, abs=0.02)
