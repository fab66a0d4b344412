"""A plan for people."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headgate.contract import Requirement
from headgate.control.planning.plan import Expected, Outlook, Plan, Verdict

SAID = {
    Verdict.UNCHANGED: "the policy in force meets every requirement; nothing better was found",
    Verdict.PLANNED: "every requirement is met",
    Verdict.DEGRADED: "no policy meets every requirement; this one keeps the most weight",
}


def text(plan: Plan, *, explain: bool = False) -> str:
    """The plan as a table; with `explain`, also why it is so."""
    lines = [f"{plan.verdict}: {SAID[plan.verdict]} ({plan.engine}, {plan.seconds * 1000:.0f} ms)"]
    lines += ["", *_table([_STEP_HEAD, *([str(c) for c in row] for row in _steps(plan))])]
    lines += ["", *_table([_OUTLOOK_HEAD, *(_outlook(outlook) for outlook in plan.outlooks)])]
    if plan.policy.periods:
        lines += ["", *_table([["topic", "published every"], *_periods(plan)])]
    for conflict in plan.conflicts:
        lines += ["", f"{conflict}."]
        lines += [f"  given up: {', '.join(conflict.broken)}"]
        lines += [f"  would do: {remedy}" for remedy in conflict.remedies]
    if explain:
        lines += ["", *_reasons(plan)]
    return "\n".join([*lines, *(f"note: {note}" for note in plan.notes)])


_STEP_HEAD = ["link", "flows of", "number", "priority", "drop %", "join"]
_OUTLOOK_HEAD = ["application", "needs", "mean ms", "percentile ms", "loss %", "msg/s", "met"]


def _steps(plan: Plan) -> Iterator[list[object]]:
    for step in plan.steps:
        join = "" if step.join is None else f"{step.join:.3g}"
        yield [step.link, step.group, step.flows, step.priority, f"{100 * step.drop:.2f}", join]


def _periods(plan: Plan) -> Iterator[list[str]]:
    for topic, seconds in plan.policy.periods.items():
        yield [topic, f"{seconds:.4g} s"]


def _outlook(outlook: Outlook) -> list[str]:
    before, after = outlook.before, outlook.after
    return [
        outlook.application,
        needs(outlook.requirement),
        _change(before.mean_ms, after.mean_ms),
        _change(before.percentile_ms, after.percentile_ms),
        _change(100 * before.loss, 100 * after.loss),
        _change(before.throughput, after.throughput),
        _met(before, after) if outlook.requirement else "",
    ]


def needs(requirement: Requirement | None) -> str:
    """A requirement in a few words."""
    if requirement is None:
        return "-"
    words = []
    if requirement.response_ms is not None:
        words.append(f"p{requirement.percentile:g} ≤ {requirement.response_ms:g} ms")
    if requirement.mean_ms is not None:
        words.append(f"mean ≤ {requirement.mean_ms:g} ms")
    words.append(f"loss ≤ {100 * requirement.loss:g} %")
    if requirement.throughput is not None:
        words.append(f"≥ {requirement.throughput:g}/s")
    return ", ".join(words)


def _reasons(plan: Plan) -> Iterator[str]:
    """Why each group stands where it stands."""
    yield (
        f"Dropped by weight: {plan.cost:.3g} messages/s. Pressure (weight × response / response "
        f"asked for): {plan.pressure[0]:.3g} → {plan.pressure[1]:.3g}."
    )
    for outlook in plan.outlooks:
        if outlook.requirement is None:
            continue
        before, after = outlook.before, outlook.after
        if after.met and not before.met:
            yield f"{outlook.application}: its requirement is broken now, and met by this plan."
        elif not after.met:
            yield f"{outlook.application}: its requirement stays broken ({_shortfall(outlook)})."
        else:
            yield f"{outlook.application}: uses {_used(outlook)} of what it asked for."


def _shortfall(outlook: Outlook) -> str:
    asked, after = outlook.requirement, outlook.after
    assert asked is not None
    if asked.response_ms is not None and (after.percentile_ms or 0) > asked.response_ms:
        return f"p{asked.percentile:g} {_number(after.percentile_ms)} ms"
    if asked.mean_ms is not None and after.mean_ms > asked.mean_ms:
        return f"mean {_number(after.mean_ms)} ms"
    return f"loss {100 * after.loss:.2f} %"


def _used(outlook: Outlook) -> str:
    asked, after = outlook.requirement, outlook.after
    assert asked is not None
    parts = []
    if asked.response_ms is not None and after.percentile_ms is not None:
        parts.append(after.percentile_ms / asked.response_ms)
    if asked.mean_ms is not None:
        parts.append(after.mean_ms / asked.mean_ms)
    return f"{100 * max(parts):.0f} %" if parts else "nothing"


def _met(before: Expected, after: Expected) -> str:
    words = {True: "yes", False: "no"}
    return (
        words[after.met] if before.met == after.met else f"{words[before.met]} → {words[after.met]}"
    )


def _change(before: float | None, after: float | None) -> str:
    old, new = _number(before), _number(after)
    return new if old == new else f"{old} → {new}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return "∞" if math.isinf(value) else f"{value:.4g}"


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
