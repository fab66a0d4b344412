"""The loop: monitor, analyse, plan, execute, verify (MAPE-K, PlanEMQX §III).

    snapshot ──▶ Measurements ──▶ a reason to plan? ──▶ plan ──▶ better than in force? ──▶ policy
                 (knowledge)              │                                                  │
                                          └──── verify: did it do what it promised? ◀────────┘

It knows no network and no clock: `Controller.see` takes a snapshot and returns what is to be done
about it. `process.py` brings the snapshots and carries out the answer. Losing all of this changes
nothing for clients: the broker keeps the last policy.

Four things keep it calm. There must be a reason: traffic that left `LOAD_RANGE`, a link that left
`RATE_RANGE`, somebody who came or went, a requirement that is seen broken twice. A plan must be
worthwhile. Changes have a budget per minute. And what was rolled back is not tried again until a
time has passed that doubles with every failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.config import Configuration, PlannerMode
from headgate.contract import FlowSnapshot, Policy, PolicyRule, Requirement, Snapshot
from headgate.control.history import Event, Record
from headgate.control.measuring import Measurements, literally
from headgate.control.planning import Plan, plan
from headgate.errors import HeadgateError
from headgate.model import Scenario

LOAD_RANGE = 0.2
"""A plan holds while no application's traffic on a link changes by more than this fraction."""
RATE_RANGE = 0.1
"""The same for the rate of a link."""
WORTHWHILE = 0.1
"""Pressure must fall by this fraction, if nothing broken is mended."""
SEEN_TWICE = 2
"""Snapshots in a row in which a requirement must be broken."""
BUDGET = 6
"""Changes of policy within a minute."""
VERIFY_AFTER = 3.0
"""Seconds after which measurements speak of the new policy alone."""
VERIFY_FOR = 5.0
"""Seconds in which they are gathered."""
BACK_OFF = 30.0
"""Seconds before a policy that was rolled back is tried again; doubles each time."""
TIME_LIMIT = 1.0
"""Seconds for one plan."""

Planner = Callable[[Scenario, Policy], Plan]
Strains = dict[str, float]
"""By application: response over what was asked for; above 1 the requirement is broken."""


@dataclass(frozen=True)
class Answer:
    """What is to be done about a snapshot."""

    policy: Policy | None = None
    """To be sent to the broker."""
    record: Record | None = None
    """For the history."""


@dataclass
class Trial:
    """A change that is being watched."""

    before: Policy
    strains_before: Strains
    since: float
    fingerprint: tuple[PolicyRule, ...]
    measured: list[Strains] = field(default_factory=list)


class Controller:
    """Steers one broker. All times are those of the snapshots."""

    def __init__(self, config: Configuration, planner: Planner | None = None) -> None:
        self.config = config
        self.mode = config.planner.mode
        self.measurements = Measurements(config)
        self.in_force = config.first_policy
        self.base = config.first_policy
        """What the operator wrote: plans are laid on top of it, so that rules do not pile up."""
        self._planner = planner or (
            lambda scenario, policy: plan(scenario, policy, seconds=TIME_LIMIT, remedies=False)
        )
        self._own: int | None = None
        """Version of the last policy that came from here."""
        self._heard = False
        self._planned_for: dict[object, float] | None = None
        self._broken_in_a_row = 0
        self._changes: deque[float] = deque()
        self._trial: Trial | None = None
        self._said: object = None
        """What the last record without a change said."""
        self._failed: dict[tuple[PolicyRule, ...], tuple[float, float]] = {}
        """Policies that were rolled back: not before which time, and how long the wait was."""

    # Monitor

    def policy_is(self, policy: Policy) -> None:
        """The broker says which policy is in force."""
        self.in_force = policy
        first, self._heard = not self._heard, True
        # A returning controller finds its own last plan: it begins with the operator's rules.
        own = policy.rules[: len(self.base.rules)] == self.base.rules if first else False
        if policy.version not in (0, self._own) and not own:
            # Somebody else, by hand or another controller: from now on that is what we build on.
            self.base = policy
            self._trial = None
            self._planned_for = None

    def see(self, snapshot: Snapshot) -> Answer:
        """One turn of the loop."""
        self.measurements.take(snapshot)
        strains = measured_strains(snapshot.flows, self.measurements)
        if self._trial is not None:
            verdict = self._verify(self._trial, strains, snapshot.time)
            if verdict is not None:
                return verdict
        scenario = self.measurements.scenario()
        reason = self._analyse(scenario, strains)
        if not reason or not scenario.topics:
            return Answer()
        return self._plan(scenario, strains, reason, snapshot.time)

    # Analyse

    def _analyse(self, scenario: Scenario, strains: Strains) -> str:
        """Why it should be planned now; empty if it should not."""
        broken = sorted(name for name, strain in strains.items() if strain > 1)
        self._broken_in_a_row = self._broken_in_a_row + 1 if broken else 0
        now = circumstances(scenario)
        before = self._planned_for
        if before is None:
            return "nothing was planned yet"
        if came := sorted(str(key) for key in now.keys() - before.keys()):
            return f"came: {', '.join(came[:3])}"
        if went := sorted(str(key) for key in before.keys() - now.keys()):
            return f"went: {', '.join(went[:3])}"
        for key, value in now.items():
            allowed = RATE_RANGE if isinstance(key, str) else LOAD_RANGE
            if abs(value - before[key]) > allowed * max(before[key], 1e-9):
                return f"{key} changed from {before[key]:.4g} to {value:.4g}"
        if self._broken_in_a_row >= SEEN_TWICE and self._trial is None:
            self._broken_in_a_row = 0
            return f"broken: {', '.join(broken)}"
        return ""

    # Plan

    def _plan(self, scenario: Scenario, strains: Strains, reason: str, now: float) -> Answer:
        while self._changes and self._changes[0] < now - 60:
            self._changes.popleft()
        if len(self._changes) >= BUDGET:
            return Answer()  # the reason stays, and is looked at again
        self._planned_for = circumstances(scenario)
        try:
            made = self._planner(scenario, self.in_force)
        except HeadgateError as error:
            return Answer(record=self._record(now, Event.FAILED, f"{reason}: {error}", strains))
        fresh = Policy(version=self.in_force.version + 1, rules=self._on_base(made))
        if not self._worthwhile(made) or fresh.rules == self.in_force.rules:
            return self._without_change(Event.KEPT, reason, strains, made, now)
        until, _ = self._failed.get(fresh.rules, (0.0, 0.0))
        if now < until:
            reason += "; the same was rolled back before"
            return self._without_change(Event.KEPT, reason, strains, made, now)
        if self.mode is not PlannerMode.AUTO:
            return self._without_change(Event.ADVISED, reason, strains, made, now)
        return self._execute(fresh, strains, reason, made, now)

    def _without_change(
        self, event: Event, reason: str, strains: Strains, made: Plan, now: float
    ) -> Answer:
        """A record, unless it would only repeat the last one."""
        said = (event, tuple(made.policy.rules), made.verdict)
        if said == self._said:
            return Answer()
        self._said = said
        return Answer(record=self._record(now, event, reason, strains, made))

    def _on_base(self, made: Plan) -> tuple[PolicyRule, ...]:
        """The operator's rules, and on top the plan's own."""
        own = tuple(rule for rule in made.policy.rules if rule not in self.base.rules)
        return (*self.base.rules, *own)

    def _worthwhile(self, made: Plan) -> bool:
        """Does it mend something, or ease what presses by enough? A worse plan never is."""
        if not made.better_than_in_force():
            return False
        mended = any(o.after.met and not o.before.met for o in made.outlooks)
        return mended or made.pressure[1] < made.pressure[0] * (1 - WORTHWHILE)

    # Execute

    def _execute(
        self, fresh: Policy, strains: Strains, reason: str, made: Plan, now: float
    ) -> Answer:
        self._trial = Trial(self.in_force, strains, now, fresh.rules)
        self._said = None
        self._changes.append(now)
        self._own = fresh.version
        self.in_force = fresh
        return Answer(fresh, self._record(now, Event.APPLIED, reason, strains, made))

    def refused(self, why: str, now: float) -> Record:
        """The broker did not take what was sent."""
        self._trial = None
        self._planned_for = None
        return self._record(now, Event.REFUSED, why, {})

    # Verify

    def _verify(self, trial: Trial, strains: Strains, now: float) -> Answer | None:
        """Wait, gather, then judge the change by what was measured."""
        if now < trial.since + VERIFY_AFTER:
            return None
        trial.measured.append(strains)
        if now < trial.since + VERIFY_AFTER + VERIFY_FOR:
            return None
        self._trial = None
        after = _typical(trial.measured)
        if self._harm(after) <= self._harm(trial.strains_before):
            self._failed.pop(trial.fingerprint, None)
            return Answer(record=self._record(now, Event.CONFIRMED, "as measured", after))
        _, waited = self._failed.get(trial.fingerprint, (0.0, BACK_OFF / 2))
        self._failed[trial.fingerprint] = (now + 2 * waited, 2 * waited)
        self._changes.append(now)
        back = Policy(version=self.in_force.version + 1, rules=trial.before.rules)
        self._own, self.in_force = back.version, back
        why = "more was broken after the change than before: " + ", ".join(
            sorted(name for name, strain in after.items() if strain > 1)
        )
        return Answer(back, self._record(now, Event.ROLLED_BACK, why, after))

    def _harm(self, strains: Strains) -> float:
        """The weight of what is broken."""
        weights = {a.name: a.weight for a in self.config.applications}
        return sum(weights.get(name, 1.0) for name, strain in strains.items() if strain > 1)

    def _record(
        self, now: float, event: Event, why: str, strains: Strains, made: Plan | None = None
    ) -> Record:
        return Record(
            time=now,
            event=event,
            why=why,
            version=self.in_force.version,
            broken={name: round(strain, 3) for name, strain in strains.items() if strain > 1},
            predicted={} if made is None else _expected(made),
            conflicts=[] if made is None else [str(conflict) for conflict in made.conflicts],
            steps=[]
            if made is None
            else [
                f"{s.link}/{s.group}: priority {s.priority}, drop {s.drop:.4g}" for s in made.steps
            ],
            rules=len(self.in_force.rules),
            seconds=0.0 if made is None else round(made.seconds, 4),
        )


def circumstances(scenario: Scenario) -> dict[object, float]:
    """What a plan depends on: rates of links (by name), traffic of each application on each link
    (by application and link)."""
    rates = {topic.name: (topic.rate or 0.0) * topic.size * 8 for topic in scenario.topics}
    found: dict[object, float] = {
        link.name: float(link.rate) for link in scenario.links if link.rate is not None
    }
    link_of = {client: link.name for link in scenario.links for client in link.clients}
    for client in scenario.clients:
        link = link_of.get(literally(client.name))
        if link is not None:
            key = (client.application or "-", link)
            bits = sum(rates.get(s, 0.0) for s in client.subscriptions)
            found[key] = found.get(key, 0.0) + bits
    return found


def measured_strains(flows: list[FlowSnapshot], known: Measurements) -> Strains:
    """How near each application's requirement is, by its worst flow."""
    needs = {a.name: a.requirement for a in known.config.applications}
    categories = {c.name: c.requirement for c in known.config.categories}
    strains: Strains = {}
    for flow in flows:
        requirement = needs.get(flow.application) or categories.get(flow.category)
        if requirement is None or not flow.application or not flow.connected:
            continue
        strain = flow_strain(flow, requirement)
        strains[flow.application] = max(strains.get(flow.application, 0.0), strain)
    return strains


def flow_strain(flow: FlowSnapshot, requirement: Requirement) -> float:
    """A snapshot has p50, p95 and p99: the next one above what is asked for is compared."""
    strain = 0.0
    if not flow.delivered:
        return strain
    if requirement.mean_ms is not None:
        strain = flow.mean_ms / requirement.mean_ms
    if requirement.response_ms is not None:
        measured = flow.p95_ms if requirement.percentile <= 95 else flow.p99_ms
        strain = max(strain, measured / requirement.response_ms)
    return strain


def _typical(measured: list[Strains]) -> Strains:
    """The median of each application: one bad second does not condemn a policy."""
    values: dict[str, list[float]] = {}
    for strains in measured:
        for name, strain in strains.items():
            values.setdefault(name, []).append(strain)
    return {name: sorted(seen)[len(seen) // 2] for name, seen in values.items()}


def _expected(made: Plan) -> Strains:
    expected = {}
    for outlook in made.outlooks:
        asked, after = outlook.requirement, outlook.after
        if asked is None:
            continue
        parts = [0.0]
        if asked.mean_ms is not None:
            parts.append(after.mean_ms / asked.mean_ms)
        if asked.response_ms is not None and after.percentile_ms is not None:
            parts.append(after.percentile_ms / asked.response_ms)
        expected[outlook.application] = round(min(max(parts), 1e6), 4)
    return expected
