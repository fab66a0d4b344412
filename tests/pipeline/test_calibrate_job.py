"""`calibrate` as a whole: from records of a broker and from sweeps to versions of knowledge."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from random import Random

import pandas as pd
import pyarrow.parquet as pq
import pytest
from broker_process import StartBroker
from click.testing import CliRunner
from conformance.client import Client
from pyspark.sql import SparkSession

from headgate.cli.pipeline import pipeline
from headgate.config import Configuration, parse
from headgate.contract.knowledge import CALIBRATION, Lineage, in_force
from headgate.contract.records import MESSAGES
from headgate.errors import ConfigurationError
from headgate.pipeline.jobs import sweep
from headgate.pipeline.jobs.calibrate import Calibrate, calibrate
from headgate.pipeline.knowledge import Shelf
from headgate.pipeline.sweeping import Space
from headgate.wire.packets import Version

from .simulated import recorded, table
from .test_calibrating import OVERHEAD, POLICY, RATE, scenario


def segment(folder: Path, records: pd.DataFrame) -> str:
    """Simulated records as the recorder would have published them."""
    file = folder / MESSAGES.kind / "date=2026-11-17" / "20261117T120000-run-000001.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(table(records), file)
    return str(folder)


def test_a_calibration_is_kept_with_its_lineage(spark: SparkSession, tmp_path: Path) -> None:
    records = segment(tmp_path / "records", recorded(scenario(), POLICY, 900))
    config = parse("links: [{name: floor, clients: ['*'], rate: 1500kbit}]")
    knowledge = tmp_path / "knowledge"
    job = Calibrate(str(knowledge), records, keep=2)
    done = calibrate(spark, job, config)
    (link,) = done.links
    assert link["rate"] == pytest.approx(RATE, rel=0.01)
    assert link["overhead"] == pytest.approx(OVERHEAD, abs=3)
    # The configuration is wrong by half: by category, the calibrated model is much better.
    for category in ("AN", "RT"):
        found = done.categories[category]
        assert found["mean_calibrated"] < 0.2 < found["mean_model"]
        assert found["p99_calibrated"] < found["p99_model"]

    assert in_force(knowledge, CALIBRATION.kind) == 1
    lineage = Lineage.from_json(
        (knowledge / "calibration" / "version=000001" / "_lineage.json").read_bytes()
    )
    assert lineage == done.lineage
    (given,) = lineage.inputs
    assert (given.kind, given.place, given.files) == ("messages", records, 1)
    assert given.rows > 10_000
    assert lineage.errors["category RT"] == done.categories["RT"]
    kept_rows = pq.read_table(knowledge / "calibration" / "version=000001", partitioning=None)
    assert kept_rows.column_names == [field.name for field in CALIBRATION.fields]
    assert kept_rows.num_rows == lineage.rows == 1

    # A folder that a killed job left does not count, and is cleared away by the next.
    (knowledge / "calibration" / "version=000002").mkdir()
    assert in_force(knowledge, CALIBRATION.kind) == 1
    again = calibrate(spark, job, config)
    assert again.lineage.version == 3
    assert again.links[0]["drift"] is False
    kept = sorted(one.name for one in (knowledge / "calibration").iterdir())
    assert kept == ["version=000001", "version=000003"]


def test_a_sweep_is_calibrated_to_where_nothing_is_recorded(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Periodic devices wait less than the model says, and calibration finds how much."""
    dataset = str(tmp_path / "dataset")
    place = scenario("periodic")
    task = sweep.Sweep(dataset, Space(load=(0.5, 1.2), levels=2), 40, 3, 60, 10)
    sweep.sweep(spark, task, place)
    done = calibrate(
        spark, Calibrate(str(tmp_path / "k"), dataset=dataset, scenario=place), Configuration()
    )
    (link,) = done.links
    assert (link["link"], link["rate"], link["overhead"]) == ("floor", None, OVERHEAD)
    assert 0.2 < link["burstiness"] < 0.8  # type: ignore[operator]
    assert link["error"] < link["model_error"]  # type: ignore[operator]
    held = Shelf(str(tmp_path / "k")).read(spark, "validation")
    assert held is not None
    assert {row["point"] for row in held.select("point").collect()} <= set(range(30, 40))

    with pytest.raises(ConfigurationError, match="a sweep of 'known', not of 'other'"):
        other = scenario().__class__(name="other", topics=place.topics, clients=place.clients)
        calibrate(
            spark, Calibrate(str(tmp_path / "k"), dataset=dataset, scenario=other), Configuration()
        )


class Traffic:
    """One subscriber behind the link, and a publisher with Poisson times and many sizes."""

    def __init__(self, port: int) -> None:
        self.subscriber = Client(port, Version.V5)
        self.subscriber.connect("s-1")
        self.subscriber.subscribe("t/#")
        self.publisher = Client(port, Version.V5)
        self.publisher.connect("p")
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        """Take what comes; what it says does not matter."""
        while True:
            try:
                if not self.subscriber.socket.recv(1 << 16):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def publish(self, rate: float, seconds: float) -> int:
        rng = Random(4)
        begun = time.monotonic()
        due, count = 0.0, 0
        while due < seconds:
            due += rng.expovariate(rate)
            pause = begun + due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            payload = bytes(rng.choice((40, 250, 700, 1300)))
            self.publisher.publish("t/x", payload, qos=0)
            count += 1
        return count

    def close(self) -> None:
        self.subscriber.socket.shutdown(socket.SHUT_RDWR)
        self._reading.join(10)
        self.publisher.close()
        self.subscriber.close()


@pytest.mark.slow
def test_a_paced_link_of_a_real_broker(
    start_broker: StartBroker, spark: SparkSession, tmp_path: Path
) -> None:
    """A link of 2 Mbit/s, of which the broker takes 98 %; 66 bytes of headers for each packet.

    The rate is found within 10 %, the overhead within 40 bytes, from 20 s at a load of 0.75: of
    what a busy machine adds, the link's own time cannot be told.
    """
    broker = start_broker(
        "recorder: {folder: records, segment_age: 200ms}\n"
        "applications: {film: {clients: ['s-*'], category: AN}}\n"
        "links: [{name: floor, clients: ['s-*'], rate: 2Mbit}]\n"
    )
    traffic = Traffic(broker.port)
    count = traffic.publish(rate=0.75 * 1.96e6 / 8 / (572.5 + 8 + 66), seconds=20)
    traffic.close()
    broker.stop()
    assert count > 4000
    config = parse("links: [{name: floor, clients: ['s-*'], rate: 2Mbit}]")
    job = Calibrate(str(tmp_path / "k"), str(broker.folder / "records"), window=2.0)
    done = calibrate(spark, job, config)
    (link,) = done.links
    print(json.dumps({**link, **done.categories["AN"]}, default=str))
    assert link["rate"] == pytest.approx(0.98 * 2e6, rel=0.1)
    assert link["overhead"] == pytest.approx(66, abs=40)
    assert done.lineage.inputs[0].rows >= 0.99 * count
    # Pacing saves up for a burst of two segments, which the model does not know: 12 ms here.
    assert done.categories["AN"]["mean_calibrated"] < done.categories["AN"]["mean_model"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calibrate", "k"], "give --records, or --dataset"),
        (["calibrate", "k", "--dataset", "d"], "--dataset needs --scenario"),
        (["calibrate", "k", "--dataset", "d", "--scenario", "nowhere.yaml"], "no such file"),
        (["forecast", "m", "k", "--horizon", "1min"], "at least one --step"),
        (["report", "nowhere/at/all.html"], "there is no folder"),
    ],
)
def test_mistakes_are_told_before_spark_starts(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(pipeline, arguments)
    assert isinstance(done.exception, ConfigurationError)
    assert said in str(done.exception)


@pytest.mark.parametrize("job", ["calibrate", "forecast", "report"])
def test_help_shows_an_example(job: str) -> None:
    shown = CliRunner().invoke(pipeline, [job, "--help"]).output
    assert f"headgate pipeline {job} " in shown


def test_records_without_a_link_are_told(spark: SparkSession, tmp_path: Path) -> None:
    records = recorded(scenario(), POLICY, 5).assign(link="")
    place = segment(tmp_path / "records", records)
    with pytest.raises(ConfigurationError, match="no link can be calibrated"):
        calibrate(spark, Calibrate(str(tmp_path / "k"), place), Configuration())
    assert in_force(tmp_path / "k", CALIBRATION.kind) is None
