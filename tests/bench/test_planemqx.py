"""The benches of planning measure what they say, and judge by what was received."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import brokers, network
from bench.congestion.devices import Published
from bench.congestion.evaluating import Flow
from bench.congestion.workload import planemqx
from bench.dynamic.contenders import Planning
from bench.dynamic.judging import WINDOW, judge
from bench.dynamic.playing import Played, Presence
from bench.dynamic.scenario import STORY, Asked, Story
from bench.dynamic.simulated import PACE, SimulatedFlow, SimulatedLink, simulate
from bench.planemqx.contenders import Demands, asking, tight
from bench.planemqx.evaluating import beyond_chance
from bench.usage import Used

PAPER = planemqx()
START = 1_000_000_000_000


# -- what is asked for -------------------------------------------------------------------


def test_tight_requirements_need_drops_and_the_authors_plan_keeps_them() -> None:
    rate = 10 * network.MEGABIT
    means = tight(PAPER, 1.0, rate)
    assert means["RT"] < means["ST"] < means["TS"] < means["AN"]
    without = tight(PAPER, 1.0, 2 * rate)
    assert all(without[category] < means[category] for category in means)
    demanding = asking(PAPER, Demands.TIGHT, 1.0, rate)
    asked = demanding.requirements["app1"]
    paper = PAPER.requirements["app1"]
    assert asked is not None
    assert paper is not None
    assert (asked.mean_ms, asked.loss) == (means["AN"], paper.loss)


@pytest.mark.parametrize(
    ("lost", "count", "tolerated", "beyond"),
    [(0, 100, 0.0, False), (1, 100, 0.0, True), (28, 100, 0.2, False), (29, 100, 0.2, True)],
)
def test_a_loss_is_judged_by_what_chance_gives(
    lost: int, count: int, tolerated: float, beyond: bool
) -> None:
    assert beyond_chance(lost, count, tolerated) is beyond


# -- the story ---------------------------------------------------------------------------


def test_devices_publish_as_often_as_the_load_says() -> None:
    story = replace(STORY, seconds=100.0, loads=((0, 1.0), (50, 1.0), (100, 3.0)))
    found = list(story.moments(PAPER.devices, seed=3))
    assert found == sorted(found)
    rate = sum(device.rate for device in PAPER.devices)
    calm = sum(moment < 50 for moment, _ in found)
    busy = sum(moment >= 50 for moment, _ in found)
    assert calm == pytest.approx(50 * rate, abs=len(PAPER.devices))
    assert busy == pytest.approx(100 * rate, abs=len(PAPER.devices))  # twice the load, on average


def test_a_compressed_story_asks_for_faster_responses() -> None:
    fast = STORY.compressed(4)
    assert fast.seconds == STORY.seconds / 4
    assert fast.asked["RT"].mean_ms == STORY.asked["RT"].mean_ms / 4
    assert fast.rate(82) == STORY.rate(328) == STORY.rate(0) / 2
    assert STORY.until(100).load(100) == pytest.approx(STORY.load(100))


# -- who was in violation when -----------------------------------------------------------


def second_by_second(
    responses: dict[int, float], *, loss: float = 0.0, lost: frozenset[int] = frozenset()
) -> list[bool]:
    """One application with ten messages a second of one device; 10 ms unless told, by second."""
    story = Story(30.0, ((0, 1.0),), ((0, 1e6),), (), {"RT": Asked(50, loss, 2)})
    only = PAPER.subscriptions[0]
    flow = Flow("RT", 0)
    published = Published(start=START)
    for number in range(300):
        moment = START + number * 100_000_000
        published.device.append(0)
        published.time.append(moment)
        wait = responses.get(number // 10, 0.01)
        if number not in lost and math.isfinite(wait):
            flow.received[number] = moment + int(wait * 1e9)
    flow.last = 300 if all(map(math.isfinite, responses.values())) else max(flow.received)
    span = START, START + 30_000_000_000
    played = Played(
        published,
        [Presence(only.client, flow, *span)],
        START + 60_000_000_000,
        [],
        0.0,
        Used(0.0, 0.0, 0.0),
    )
    workload = replace(PAPER, subscriptions=(replace(only, category="RT"),))
    judged = judge(story, workload, played)
    assert judged.broken_by_weight() == 2 * judged.broken()
    return [one is not None and one.broken for one in judged.seconds[only.client]]


def test_a_second_is_broken_by_its_own_messages() -> None:
    assert [s for s, broken in enumerate(second_by_second({7: 0.2, 12: 0.04})) if broken] == [7]


def test_what_never_came_breaks_its_second() -> None:
    broken = second_by_second(dict.fromkeys(range(25, 30), math.inf))
    assert [s for s, is_broken in enumerate(broken) if is_broken] == [25, 26, 27, 28, 29]


def test_who_tolerates_no_loss_counts_each_one() -> None:
    broken = second_by_second({}, lost=frozenset({42, 43, 205}))
    assert [s for s, is_broken in enumerate(broken) if is_broken] == [4, 20]


def test_who_tolerates_loss_is_judged_over_a_while() -> None:
    third = frozenset(range(0, 300, 3))
    assert not any(second_by_second({}, loss=0.4, lost=third)[WINDOW:])
    assert all(second_by_second({}, loss=0.2, lost=third)[WINDOW:])


# -- on a live broker --------------------------------------------------------------------


def bench(*options: str) -> None:
    """Run a bench in a process of its own: it takes the processor for itself."""
    if why := network.missing():
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-m", "bench", *options],
        cwd=brokers.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode == 2 and "tc qdisc" in done.stderr:
        pytest.skip(f"no slow link can be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def test_the_controller_plans_and_applications_judge(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    bench(
        *("planemqx", "--at", "10", "--brokers", "planned", "--requirements", "tight"),
        *("--warm-up", "6", "--seconds", "2", "--again", "0", "--json", str(file)),
        *("--plots", str(tmp_path / "plots")),
    )
    (run,) = json.loads(file.read_text())["runs"]
    assert "applied" in [decision["event"] for decision in run["found"]["decisions"]]
    levels = {name: c["levels"] for name, c in run["found"]["categories"].items()}
    assert levels["RT"] < levels["AN"]
    assert all(c["delivered"] > 100 for c in run["found"]["categories"].values())
    assert run["found"]["categories"]["TS"]["lost"] == 0
    assert len(run["found"]["applications"]) == 16
    assert (tmp_path / "plots" / "planemqx-fig5.png").stat().st_size > 10_000


def test_a_changing_world_is_judged_second_by_second(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    bench(
        *("dynamic", "--planning", "reactive", "--compress", "60", "--json", str(file)),
        *("--plot", str(tmp_path / "plot.png")),
    )
    document = json.loads(file.read_text())
    (run,) = document["runs"]
    assert run["applications"].keys() >= {"app1", "app16", "app17"}
    assert run["judged"] > 16 * 8
    assert 0 <= run["broken"] <= run["judged"]
    assert len(run["attainment"]) == document["story"]["seconds"] == 10
    assert (tmp_path / "plot.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["planemqx", "--at", "ten"], "expected links in Mbit/s"),
        (["planemqx", "--requirements", "loose"], "known are paper, tight"),
        (["dynamic", "--planning", "clever"], "known are mosquitto, off"),
        (["dynamic", "--compress", "0"], "expected a number above 0"),
    ],
)
def test_a_mistake_gets_one_sentence(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(options) == 2
    assert said in capsys.readouterr().err


def test_the_simulated_link_serves_by_priority_and_loses_nothing() -> None:
    link = SimulatedLink()
    first, urgent = (
        SimulatedFlow(name, "RT", "t", 100, 1000, 0.0, 1e9, level=level)
        for name, level in (("first", 3), ("urgent", 0))
    )
    for flow in (first, first, urgent):
        link.add(0.0, flow)
    rate = 8 * 1000 / PACE  # a message each second
    assert [(flow.client, went) for _, went, flow in link.serve(0.5, rate)] == [("urgent", 1.0)]
    assert [(flow.client, went) for _, went, flow in link.serve(3.0, rate)] == [
        ("first", 2.0),
        ("first", 3.0),
    ]
    assert link.waiting() == 0


def test_a_story_is_simulated_with_the_real_controller() -> None:
    story = STORY.until(40).compressed(4)
    workload = story.workload(planemqx())
    outcome = simulate(Planning.PROACTIVE, story, workload, 1)
    assert outcome.judged > 100
    assert (outcome.broken, outcome.lost) == (0, 0)
    assert outcome.policies == 1
    assert outcome.published == pytest.approx(10 * 413, rel=0.02)
