"""What `python -m bench emergency` prints and keeps."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bench.brokers import BenchError
from bench.congestion.report import finite
from bench.emergency.contenders import BASELINE, IN_FLIGHT, QUEUED
from bench.emergency.crowd import MESSAGES
from bench.emergency.experiment import LINK, Outcome, Situation
from bench.figures import Times
from bench.network import congestion_control, spoken
from bench.report import DISTURBED, aligned, machine
from bench.usage import Used

GOAL = 5.0
"""How many times faster than Mosquitto an urgent message has to be under saturation."""
SATURATED = (Situation.CPU, Situation.LINK)
PAPER = {"urgent": -0.353, "critical": -0.181}
PAPER_LOSS = -0.518

_HEADER = (
    *("situation", "publishers", "broker", "urgent mean", "p50", "most", "critical mean", "p50"),
    *("most", "normal mean", "p99", "critical lost", "normal lost", "broker's CPU"),
    *("urgent ×", "critical ×"),
)
_WORDS = 3


@dataclass(frozen=True)
class Verdict:
    """A goal, what was measured, and whether that meets it."""

    goal: str
    found: str
    met: bool


def baseline(outcomes: Sequence[Outcome], of: Outcome) -> Outcome | None:
    """Mosquitto in the same situation."""
    for outcome in outcomes:
        if outcome.broker == BASELINE and outcome.conditions == of.conditions:
            return outcome
    return None


def gain(outcome: Outcome, base: Outcome | None, kind: str) -> float:
    """How many times lower than the baseline's the mean latency is."""
    if base is None or outcome.broker == BASELINE:
        return math.nan
    return base.latency[kind].mean / outcome.latency[kind].mean


def verdicts(outcomes: Sequence[Outcome]) -> Iterator[Verdict]:
    """Of the goal, wherever something was saturated."""
    for outcome in outcomes:
        base = baseline(outcomes, outcome)
        if outcome.situation in SATURATED and outcome.broker != BASELINE and base is not None:
            found = gain(outcome, base, "urgent")
            yield Verdict(
                f"{outcome.title}: urgent {GOAL:g} × faster than Mosquitto",
                f"{found:.1f} × ({outcome.latency['urgent'].mean:.2f} ms, Mosquitto "
                f"{base.latency['urgent'].mean:.2f} ms)",
                found >= GOAL,
            )


def against_the_paper(outcomes: Sequence[Outcome]) -> list[str]:
    """The paper's figures are averages over all numbers of publishers."""
    lines = []
    for broker in dict.fromkeys(o.broker for o in outcomes if o.broker != BASELINE):
        pairs = [(o, baseline(outcomes, o)) for o in outcomes if o.broker == broker]
        quiet = [(o, b) for o, b in pairs if b is not None and o.situation == Situation.QUIET]
        for kind, paper in PAPER.items():
            if quiet:
                changes = [o.latency[kind].mean / b.latency[kind].mean - 1 for o, b in quiet]
                change = sum(changes) / len(changes)
                lines.append(f"{broker}: latency of {kind} {change:+.1%} (the paper: {paper:+.1%})")
        short = [(o, b) for o, b in pairs if b is not None and o.situation == Situation.OVERFLOW]
        theirs = sum(b.lost["critical"] for _, b in short)
        if theirs:
            ours = sum(o.lost["critical"] for o, _ in short)
            lines.append(
                f"{broker}: loss of critical {ours / theirs - 1:+.1%} (the paper: "
                f"{PAPER_LOSS:+.1%}); {ours:,} instead of {theirs:,} of "
                f"{sum(b.sent['critical'] for _, b in short):,}"
            )
    return lines


def preamble(rounds: int, versions: Mapping[str, str]) -> str:
    """The conditions, so that nobody must guess them."""
    return "\n".join(
        (
            ", ".join(f"{key} {value}" for key, value in machine().items()),
            *(f"{name}: {version}" for name, version in versions.items()),
            f"{rounds} rounds with an urgent publisher in turn with {rounds} with a critical one; "
            "in each all publishers send at the same moment, four times, each after the "
            "acknowledgement of the message before: 4 B at QoS 1, to one subscriber with QoS 2 "
            "granted; times in ms",
            f"link: tc tbf, {spoken(LINK.rate)}, burst {LINK.burst} B, "
            f"queue of {LINK.limit_ms:g} ms, {congestion_control(LINK)}; the background would "
            "fill it 1.5 times",
            f"overflow: {QUEUED} messages queued and {IN_FLIGHT} in flight at most for a client, "
            "as in the paper's broker",
        )
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """One line per run."""
    lines: list[list[str]] = [list(_HEADER)]
    for outcome in outcomes:
        base = baseline(outcomes, outcome)
        urgent, critical = outcome.latency["urgent"], outcome.latency["critical"]
        normal = outcome.latency["normal"]
        figures = [urgent.mean, urgent.p50, urgent.most, critical.mean, critical.p50, critical.most]
        lines.append(
            [
                outcome.situation,
                str(outcome.publishers),
                outcome.broker,
                *map(_number, (*figures, normal.mean, normal.p99)),
                _loss(outcome, "critical"),
                _loss(outcome, "normal"),
                _number(math.nan if outcome.used.broker is None else outcome.used.broker),
                _number(gain(outcome, base, "urgent")),
                _number(gain(outcome, base, "critical")),
            ]
        )
    return aligned(lines, _WORDS)


def _loss(outcome: Outcome, kind: str) -> str:
    return f"{outcome.lost[kind] / outcome.sent[kind]:.1%}" if outcome.lost[kind] else ""


def _number(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def remarks(outcomes: Sequence[Outcome]) -> str:
    """Goals, the paper, and what to mistrust."""
    lines = [f"{'✓' if v.met else '✗'} {v.goal}: {v.found}" for v in verdicts(outcomes)]
    lines += against_the_paper(outcomes)
    lines += [
        f"{outcome.title}: {outcome.lost['urgent']} urgent messages lost"
        for outcome in outcomes
        if outcome.lost["urgent"]
    ]
    lines += [
        f"{outcome.title}: {outcome.unacknowledged} messages were never acknowledged"
        for outcome in outcomes
        if outcome.unacknowledged
    ]
    disturbed = sum(outcome.used.others > DISTURBED for outcome in outcomes)
    if disturbed:
        lines.append(
            f"other work used more than {DISTURBED:g} of a core during {disturbed} of "
            f"{len(outcomes)} runs; as root, driver and brokers had most of the processor's time"
        )
    return "\n".join(lines)


def read(path: Path) -> tuple[list[Outcome], dict[str, str]]:
    """What an earlier run found, and the brokers' versions."""
    try:
        stored = json.loads(path.read_text())
        outcomes = [
            Outcome(
                **{
                    **one,
                    "latency": {kind: Times.read(times) for kind, times in one["latency"].items()},
                    "used": Used(**one["used"]),
                }
            )
            for one in stored["outcomes"]
        ]
        return outcomes, dict(stored["brokers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} holds no result of `bench emergency`: {error}") from None


def document(outcomes: Sequence[Outcome], versions: Mapping[str, str]) -> dict[str, Any]:
    """Everything, as JSON takes it."""
    found = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "brokers": dict(versions),
        "rounds": sorted({outcome.sent["urgent"] // MESSAGES for outcome in outcomes}),
        "link": {**asdict(LINK), "congestion_control": congestion_control(LINK)},
        "verdicts": [asdict(verdict) for verdict in verdicts(outcomes)],
        "against_the_paper": against_the_paper(outcomes),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    return {key: finite(value) for key, value in found.items()}
