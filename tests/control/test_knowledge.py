"""Tables that the pipeline leaves: picked up, used, and refused when they are bad."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from control.test_loop import CONFIG, World, dropped, event, told
from headgate.contract import LinkSpec
from headgate.contract.knowledge import CALIBRATION, FORECAST, LINEAGE, Lineage, version_folder
from headgate.contract.records import Schema, Type
from headgate.control.history import Event
from headgate.control.knowledge import Calibrated, Learned, Reader, Refused
from headgate.model import Client, LinkCalibration, Model, Scenario, Settings, Topic

TYPES = {
    Type.TEXT: pa.string(),
    Type.WHOLE: pa.int64(),
    Type.REAL: pa.float64(),
    Type.FLAG: pa.bool_(),
    Type.TIME: pa.timestamp("us", tz="UTC"),
}
GOOD = {
    "link": "floor",
    "rate": None,
    "overhead": 60.0,
    "burstiness": 1.5,
    "response_factor": 1.2,
    "samples": 50,
    "error": 0.1,
    "drift": False,
    "since": None,
    "until": None,
}


def write(
    folder: Path,
    schema: Schema,
    version: int,
    rows: list[dict[str, Any]],
    lineage: dict[str, Any] | None = None,
) -> None:
    target = folder / version_folder(schema.kind, version)
    target.mkdir(parents=True)
    columns = pa.schema([(field.name, TYPES[field.type]) for field in schema.fields])
    pq.write_table(pa.Table.from_pylist(rows, schema=columns), target / "part-0.parquet")
    told = {
        "kind": schema.kind,
        "version": version,
        "created": datetime.now(UTC),
        "inputs": (),
        "code": "0",
        "parameters": {},
        "rows": len(rows),
        "errors": {},
    }
    (target / LINEAGE).write_bytes(Lineage(**(told | (lineage or {}))).to_json())


def test_the_newest_complete_version_is_picked_up_once(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert reader.look() == []
    write(tmp_path, CALIBRATION, 1, [GOOD])
    write(tmp_path, CALIBRATION, 2, [GOOD | {"burstiness": 2.0}])
    unfinished = tmp_path / version_folder("calibration", 3)
    unfinished.mkdir()
    (learned,) = reader.look()
    assert isinstance(learned, Learned)
    assert (learned.version, learned.calibration["floor"].burstiness) == (2, 2.0)
    assert reader.look() == []
    write(tmp_path, CALIBRATION, 4, [GOOD])
    assert [news.version for news in reader.look()] == [4]


@pytest.mark.parametrize(
    ("row", "lineage", "word"),
    [
        ({"burstiness": -1.0}, {}, "burstiness"),
        ({"response_factor": float("nan")}, {}, "response_factor"),
        ({"link": ""}, {}, "name"),
        ({}, {"rows": 7}, "7 by its lineage"),
        ({}, {"version": 9}, "calibration 9"),
    ],
)
def test_a_bad_version_is_refused_with_the_reason_and_the_old_one_stays(
    tmp_path: Path, row: dict[str, Any], lineage: dict[str, Any], word: str
) -> None:
    world = World()
    write(tmp_path, CALIBRATION, 1, [GOOD])
    reader = Reader(tmp_path)
    for news in reader.look():
        assert world.controller.learned(news, world.now).event is Event.LEARNED
    write(tmp_path, CALIBRATION, 2, [GOOD | row], lineage)
    (news,) = reader.look()
    assert isinstance(news, Refused)
    assert word in news.why
    record = world.controller.learned(news, world.now)
    assert record.event is Event.REFUSED
    assert record.knowledge == {"calibration": 1}
    world.turn()
    assert world.controller.measurements.scenario().calibration[0].burstiness == 1.5


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, CALIBRATION, 1, [GOOD])
    (tmp_path / version_folder("calibration", 1) / "part-0.parquet").write_bytes(b"PAR1 no")
    (news,) = Reader(tmp_path).look()
    assert isinstance(news, Refused)


def test_a_calibration_that_errs_too_much_is_not_used() -> None:
    world = World()
    bad = Calibrated(None, 60.0, 3.0, 1.0, 0.9, False)
    record = world.controller.learned(Learned("calibration", 1, {"floor": bad}), 0.0)
    assert "not used for floor" in record.why
    world.turn()
    assert world.controller.measurements.scenario().calibration == ()


def test_the_model_takes_a_calibration_by_its_formula() -> None:
    scenario = Scenario(
        topics=(Topic(name="t", rate=40, size=1000), Topic(name="u", rate=30, size=300)),
        clients=(
            Client(name="a", subscriptions=("t",)),
            Client(name="b", subscriptions=("t", "u")),
        ),
        links=(LinkSpec(name="floor", clients=("*",), rate=1_000_000),),
        overhead=60,
    )
    calibrated = Scenario(
        topics=scenario.topics,
        clients=scenario.clients,
        links=scenario.links,
        overhead=66,
        calibration=(
            LinkCalibration(name="floor", burstiness=1.7, response_factor=1.3, overhead=60),
        ),
    )
    settings = Settings.default(3).with_priority(np.array([0, 1, 1]))
    plain = Model(scenario).predict(settings)
    found = Model(calibrated).predict(settings)
    service = np.array([1060, 1060, 360]) * 8 / 1e6
    assert found.mean == pytest.approx(1.3 * (service + 1.7 * (plain.mean - service)))
    for p in (95.0, 99.0):
        expected = 1.3 * (service + 1.7 * (plain.percentiles[p] - service))
        assert found.percentiles[p] == pytest.approx(expected)
    assert found.utilisation == pytest.approx(plain.utilisation)


def test_a_calibration_is_planned_with() -> None:
    world = World(CONFIG.replace("5000", "300"))
    world.turns(12)
    assert dropped(world.controller.in_force, "archive") == 0
    slow = Calibrated(None, 66.0, 8.0, 1.0, 0.1, True)
    world.controller.learned(Learned("calibration", 3, {"floor": slow}), world.now)
    answer = world.turn()
    assert event(answer) is Event.APPLIED
    assert answer.record is not None
    assert "learned: calibration 3" in answer.record.why
    assert "model drift on floor" in answer.record.why
    assert answer.record.knowledge == {"calibration": 3}
    assert dropped(answer.policy, "archive") > 0


def forecast_row(start: datetime, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = {field.name: None for field in FORECAST.fields}
    row |= {"link": "floor", "start": start, "end": start + timedelta(seconds=60)}
    return row | {"model": "seasonal", "error": 0.1} | values


def test_a_load_that_the_pipeline_foretells_is_planned_for(tmp_path: Path) -> None:
    world = World(CONFIG.replace("5000", "200"))
    world.per_second = 47
    world.turns(15)
    bits = 70 * 1000 * 8.0
    soon = datetime.fromtimestamp(world.now + 4, UTC)
    rows = [
        forecast_row(
            soon, application=name, category="default", bits=bits, rate=70.0, low=0.9 * bits
        )
        for name in ("alarm", "archive")
    ]
    write(tmp_path, FORECAST, 1, rows)
    (news,) = Reader(tmp_path).look()
    assert world.controller.learned(news, world.now).event is Event.LEARNED
    answers = world.turns(3)
    applied = [a for a in answers if event(a) is Event.APPLIED]
    assert len(applied) == 1
    assert applied[0].record is not None
    assert applied[0].record.why.startswith("forecast: archive would break")
    assert dropped(applied[0].policy, "archive") > 0


def test_who_is_foretold_to_come_is_planned_for(tmp_path: Path) -> None:
    config = CONFIG.replace(
        "links:", "  emergency: {clients: [em], requirement: {mean_ms: 25, loss: 0.0}}\nlinks:"
    )
    world = World(config)
    world.turns(15)
    soon = datetime.fromtimestamp(world.now + 4, UTC)
    row = forecast_row(
        soon, application="emergency", category="EM", bits=1.6e5, rate=20.0, low=1.2e5
    )
    write(tmp_path, FORECAST, 1, [row])
    (news,) = Reader(tmp_path).look()
    world.controller.learned(news, world.now)
    applied = [a for a in world.turns(3) if event(a) is Event.APPLIED]
    assert applied
    assert applied[0].record is not None
    assert "emergency comes to floor" in applied[0].record.why
    assert applied[0].policy is not None
    assert any(rule.application == "emergency" for rule in applied[0].policy.rules)


def test_responses_that_stay_slower_than_predicted_are_drift() -> None:
    world = World()
    world.mean_ms = {"alarm-1": 13.0, "archive": 60.0}
    world.turns(20)
    world.mean_ms = {"alarm-1": 40.0, "archive": 300.0}
    records = told(world.turns(60))
    drifted = [r for r in records if r.event is Event.DRIFTED]
    assert len(drifted) == 1
    assert drifted[0].why.startswith("model drift: floor answers")
    assert world.controller.measurements.scenario().calibration[0].response_factor > 1.5
