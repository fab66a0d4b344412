"""From the jobs to the loop: what they write is picked up by a controller that runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from control.test_live_control import CONFIG, Site, wait_until
from pyspark.sql import SparkSession

from headgate.config import parse
from headgate.control.history import Event, History, Record
from headgate.pipeline.jobs.calibrate import Calibrate, calibrate
from headgate.pipeline.jobs.forecast import Forecast, forecast

from .simulated import recorded
from .test_calibrate_job import segment
from .test_calibrating import POLICY, scenario
from .test_forecasting import flow, frame

SIREN = "  siren: {clients: ['siren-*'], requirement: {mean_ms: 100, loss: 0.0}, weight: 20}\n"


def test_a_running_controller_uses_what_calibrate_and_forecast_leave(
    spark: SparkSession, tmp_path: Path
) -> None:
    knowledge = tmp_path / "knowledge"
    text = CONFIG.replace("mode: auto", f"mode: auto, knowledge: {knowledge}")
    text = text.replace("links:", f"{SIREN}links:")
    site = Site(tmp_path / "site", text)
    history = History(tmp_path / "site" / "data")

    def told(event: Event, words: str) -> list[Record]:
        return [record for record in history if record.event is event and words in record.why]

    try:
        wait_until(lambda: site.version > 0, f"no policy\n{site.broker.errors}")
        records = segment(tmp_path / "records", recorded(scenario(), POLICY, 300))
        config = parse("links: [{name: floor, clients: ['*'], rate: 1Mbit}]")
        calibrated = calibrate(spark, Calibrate(str(knowledge), records), config)
        wait_until(lambda: bool(told(Event.LEARNED, "calibration 1")), f"{list(history)}")
        assert calibrated.links[0]["link"] == "floor"

        # Twenty sirens a second, every minute until now: nobody sees them yet, they are known of.
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        rows = []
        for minute in range(-30, 1):
            when = {"start": now + timedelta(minutes=minute)}
            when["end"] = when["start"] + timedelta(minutes=1)
            rows.append(flow(0, 1200, size=1000.0, application="siren", category="RT", **when))
        metrics = str(tmp_path / "metrics")
        frame(spark, rows).coalesce(1).write.parquet(metrics)
        forecast(spark, Forecast(metrics, str(knowledge), horizon=1800, step=60))
        wait_until(lambda: bool(told(Event.LEARNED, "forecast 1")), f"{list(history)}")
        wait_until(
            lambda: bool(told(Event.APPLIED, "siren comes to floor")),
            f"it is not planned for: {[f'{r.event}: {r.why}' for r in history]}",
        )
        (record, *_) = told(Event.APPLIED, "siren comes to floor")
        assert record.knowledge == {"calibration": 1, "forecast": 1}
        (archive,) = [step for step in record.steps if step.startswith("floor/archive")]
        assert not archive.endswith("drop 0"), record.steps  # room is made for them
    finally:
        site.close()
