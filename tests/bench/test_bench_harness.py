"""The benchmark harness measures real brokers, notices loss and judges honestly."""

import gc
import json
import random
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import (
    brokers,
    campaign,
    connecting,
    latency,
    packets,
    pipelined,
    policy,
    report,
    retained,
    routing,
    shapes,
    single,
    snapshots,
    target,
)

TINY = target.Effort(
    seconds=0.1,
    warm_up=0.02,
    silence=1.0,
    in_flight=100,
    round_trips=50,
    retained=700,
    idle_connections=100,
)


@pytest.fixture(scope="session")
def mosquitto() -> brokers.Broker:
    if not brokers.find_mosquitto():
        pytest.skip("mosquitto is not installed; `make bench` installs it")
    return brokers.mosquitto()


# -- packets -----------------------------------------------------------------------------


def test_runs_are_found_wherever_the_stream_is_cut() -> None:
    rng = random.Random(7)
    message = packets.publish("t/1", b"4b4b" * 8, 2, 1)
    release = b"\x62\x02\x00\x01"
    sizes = {message[0]: len(message), release[0]: len(release)}
    sequence = [rng.choice((message, release)) for _ in range(300)] + [message] * 600
    stream = bytearray(b"".join(sequence))
    for end in rng.sample(range(len(stream)), 200):
        found, done = packets.runs(stream, end, sizes)
        read = [run.head for run in found for _ in range(run.length)]
        assert read == [packet[0] for packet in sequence[: len(read)]]
        assert done == sum(len(packet) for packet in sequence[: len(read)])
        assert end - done < len(sequence[len(read)])


def test_a_packet_that_cannot_belong_to_the_shape_is_named() -> None:
    with pytest.raises(packets.UnexpectedPacketError, match="0xe0"):
        packets.runs(bytearray(packets.DISCONNECT), 2, {0x40: 4})


@pytest.mark.parametrize("count", [1, 2, 50])
def test_each_message_of_a_run_is_acknowledged_by_its_identifier_in_order(count: int) -> None:
    identifiers = range(250, 250 + count)
    stream = bytearray(b"".join(packets.publish("t", b"x" * 200, 1, i) for i in identifiers))
    size = len(stream) // count
    offset = packets.topic_end("t", b"x" * 200, 1)
    run = packets.Run(0x32, 0, count)
    expected = b"".join(b"\x40\x02" + i.to_bytes(2, "big") for i in identifiers)
    assert packets.answers(stream, run, size, offset, packets.PUBACK) == expected


def test_none_of_the_other_subscriptions_matches_what_is_published() -> None:
    def matches(topic_filter: str, topic: str) -> bool:
        levels, names = topic_filter.split("/"), topic.split("/")
        for position, level in enumerate(levels):
            if level == "#":
                return True
            if position >= len(names) or level not in ("+", names[position]):
                return False
        return len(levels) == len(names)

    assert matches("plant/+/motor/speed", routing.published_topic(3))
    topics = [routing.published_topic(i) for i in (0, 1, 2, 3, 999)]
    filters = [routing.other_filter(i) for i in range(2000)]
    assert len(set(filters)) == len(filters)
    assert not [f for f in filters for topic in topics if matches(f, topic)]


# -- real brokers ------------------------------------------------------------------------


SMALL_SHAPES = {
    **{
        f"{p.publishers} to {p.subscribers} times {p.groups} at QoS {qos}": partial(
            pipelined.run_pattern, pattern=p, payload=payload, qos=qos
        )
        for p in (
            pipelined.Pattern(1, 1),
            pipelined.Pattern(2, 3),
            pipelined.Pattern(1, 1, groups=4),
        )
        for payload, qos in ((64, 0), (1024, 1), (64, 2))
    },
    "mixed": partial(pipelined.run_mixed, subscribers=2),
    **{
        f"collected at QoS {q}": partial(single.run_collected, publishers=5, payload=64, qos=q)
        for q in range(3)
    },
    **{
        f"mirrors at QoS {q}": partial(single.run_mirrors, connections=5, payload=64, qos=q)
        for q in range(3)
    },
}


@pytest.mark.parametrize("name", SMALL_SHAPES)
@pytest.mark.parametrize("broker", ["mosquitto", "relay"])
def test_messages_flow_without_loss(broker: str, name: str, request: pytest.FixtureRequest) -> None:
    chosen = request.getfixturevalue("mosquitto") if broker == "mosquitto" else brokers.relay()
    with chosen.running() as target:
        measurement = SMALL_SHAPES[name](target, TINY)
    assert measurement.values["rate"] > 0
    assert (measurement.lost, measurement.unacknowledged) == (0, 0)
    assert measurement.driver_busy is not None
    assert 0 < measurement.driver_busy <= 1


@pytest.mark.parametrize(
    ("run", "figures"),
    [
        (partial(routing.run_routing, others=400, topics=50), {"rate"}),
        (latency.run_round_trips, {"p50", "p99"}),
        (retained.run_retained, {"rate"}),
        (partial(connecting.run_connects, parallel=1), {"rate"}),
        (partial(connecting.run_connects, parallel=5), {"rate"}),
        (connecting.run_idle, {"kib"}),
    ],
)
def test_the_other_shapes_give_their_figures(
    mosquitto: brokers.Broker, run, figures: set[str]
) -> None:
    with mosquitto.running() as target:
        measurement = run(target, TINY)
    assert figures <= measurement.values.keys()
    assert all(measurement.values[figure] > 0 for figure in figures)
    assert measurement.lost == 0


def test_a_broker_that_drops_is_found_out(mosquitto: brokers.Broker, tmp_path: Path) -> None:
    config = tmp_path / "mosquitto.conf"

    def command_line(port: int, _: Path) -> list[str]:
        limits = "max_inflight_messages 1\nmax_queued_messages 1\nallow_anonymous true\n"
        config.write_text(f"listener {port} 127.0.0.1\n{limits}")
        return [brokers.find_mosquitto(), "-c", str(config)]

    tmp_path.chmod(0o755)
    with brokers.Broker("dropping", "test", command_line).running() as target:
        measurement = pipelined.run_pattern(
            target, TINY, pipelined.Pattern(1, 1), payload=64, qos=1
        )
    assert measurement.lost > 0


def test_a_command_that_ends_at_once_is_reported_with_what_it_said() -> None:
    broker = brokers.named("broken=sh -c 'echo no such luck {port}; exit 3'")
    shape = shapes.Shape("rtt", "rtt", latency.run_round_trips, (shapes.Metric("p50", "µs"),))
    outcomes = list(
        campaign.carry_out(campaign.plan([shape], [broker], None, 1), TINY, lambda *_: None)
    )
    assert "status 3" in outcomes[0].error
    assert "no such luck" in outcomes[0].error


# -- judgement ---------------------------------------------------------------------------


def judged(
    metric: shapes.Metric, headgate: target.Measurement, mosquitto: target.Measurement
) -> report.Cell:
    shape = shapes.Shape("s", "shape", latency.run_round_trips, (metric,))
    contenders = [brokers.Broker("headgate", "1"), brokers.Broker("mosquitto", "2")]
    outcomes = [
        campaign.Outcome("s", "headgate", 0, headgate),
        campaign.Outcome("s", "mosquitto", 0, mosquitto),
    ]
    rows = report.summarise([shape], contenders, outcomes)
    assert "shape" in report.table(rows, contenders, outcomes)
    return rows[0].cells["headgate"]


RATE = shapes.Metric("rate", "msg/s", goal=5.0)


@pytest.mark.parametrize(("rate", "met"), [(500.0, True), (499.0, False)])
def test_a_goal_is_a_ratio_of_medians(rate: float, met: bool) -> None:
    cell = judged(RATE, target.Measurement({"rate": rate}), target.Measurement({"rate": 100.0}))
    assert cell.ratio == pytest.approx(rate / 100)
    assert cell.met is met


def test_half_the_latency_is_twice_as_good() -> None:
    metric = shapes.Metric("p50", "µs", lower_is_better=True, goal=1.0)
    cell = judged(metric, target.Measurement({"p50": 15.0}), target.Measurement({"p50": 30.0}))
    assert (cell.ratio, cell.met) == (2.0, True)


@pytest.mark.parametrize("fault", [{"lost": 1}, {"lost": -1}, {"unacknowledged": 1}])
def test_no_goal_is_met_with_a_fault(fault: dict[str, int]) -> None:
    fast = replace(target.Measurement({"rate": 900.0}), **fault)
    assert judged(RATE, fast, target.Measurement({"rate": 100.0})).met is False


def test_there_is_no_ratio_to_a_baseline_that_lost_messages() -> None:
    cell = judged(
        RATE, target.Measurement({"rate": 900.0}), target.Measurement({"rate": 1.0}, lost=3)
    )
    assert (cell.ratio, cell.met) == (None, None)


def test_brokers_stand_side_by_side_and_take_turns_to_go_first() -> None:
    contenders = [brokers.Broker("a", ""), brokers.Broker("b", "")]
    steps = campaign.plan(shapes.SHAPES[:2], contenders, None, 2)
    assert [step.broker.name for step in steps] == ["a", "b", "b", "a", "b", "a", "a", "b"]


# -- command line ------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_every_figure(
    mosquitto: brokers.Broker, tmp_path: Path
) -> None:
    file, plot = tmp_path / "result.json", tmp_path / "plot.svg"
    options = ["--quick", "--only", "1to1-64-q0,rtt", "--seconds", "0.1", "--brokers", "mosquitto"]
    options += ["--broker", f"twin={brokers.find_mosquitto()} -p {{port}}"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", "broker", *options, "--json", file, "--plot", plot],
        cwd=brokers.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "1 → 1, 64 B, QoS 0" in done.stdout
    assert "max_queued_messages 0" in done.stdout
    assert "[6/6]" in done.stderr
    document = json.loads(file.read_text())
    assert {row["shape"] for row in document["summary"]} == {"1to1-64-q0", "rtt"}
    assert document["summary"][0]["ceiling"] > 0
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "2to2"], "no shape is called '2to2'"),
        (["--brokers", "hivemind"], "known are headgate, mosquitto, relay"),
        (["--brokers", "", "--broker", "x=mosquitto"], "must contain {port}"),
        (["--brokers", "relay", "--broker", "relay=127.0.0.1:1"], "same name"),
    ],
)
def test_a_mistake_gets_one_sentence(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["broker", *options]) == 2
    assert said in capsys.readouterr().err


def test_without_root_a_missing_mosquitto_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "find_mosquitto", lambda: "")
    monkeypatch.setattr(brokers.os, "geteuid", lambda: 1000)
    with pytest.raises(brokers.BenchError, match="apt-get install mosquitto"):
        brokers.ensure_mosquitto()


def test_snapshots_are_measured_by_the_flows_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "CLIENTS", 20)
    monkeypatch.setattr(snapshots, "USED", (0, 50, 200))
    thresholds = gc.get_threshold()
    try:
        found = snapshots.core(1.0)
    finally:  # it collects as the server does
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    assert list(found) == [0, 50, 200]
    assert all(0.0 < turns.longest <= turns.all for turns in found.values())


def test_an_observed_broker_is_measured_as_any_other() -> None:
    (shape,) = shapes.select(["1to1-64-q0"])
    (step,) = campaign.plan([shape], [snapshots.observed()], None, 1)
    (outcome,) = campaign.carry_out([step], TINY, lambda *_: None)
    assert (outcome.measurement is not None, outcome.error) == (True, "")
