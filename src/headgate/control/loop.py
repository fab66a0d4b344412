"""The loop: monitor, analyse, plan, execute, verify (MAPE-K, PlanEMQX §III).

    snapshot ──▶ Measurements ──▶ a reason to plan? ──▶ plan ──▶ better than in force? ──▶ policy
                 (knowledge)              │                                                  │
                                          └──── verify: did it do what it promised? ◀────────┘

It knows no network and no clock: `Controller.see` takes a snapshot and returns what is to be done
about it. `process.py` brings the snapshots and carries out the answer. Losing all of this changes
nothing for clients: the broker keeps the last policy.

It looks ahead (`forecasting`): where the load is certain to rise, plans are made for what it will
be, as long as that gives up nothing that holds at present.

Four things keep it calm. There must be a reason: traffic or a link that left the range that was
planned for (`circumstances`), who came or went, a requirement that is seen broken twice, or
foreseen twice. A plan must be worthwhile. Changes have a budget per minute. And what was rolled
back is not tried again until a time has passed that doubles with every failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from headgate.config import Configuration, PlannerMode
from headgate.contract import Application, Policy, PolicyRule, Snapshot
from headgate.control.circumstances import (
    HARDER,
    Ahead,
    Circumstances,
    Validity,
    circumstances,
)
from headgate.control.drift import Drift
from headgate.control.forecasting import Trends, grown, scheduled
from headgate.control.history import Event, Record
from headgate.control.knowledge import Knowledge, Learned, Refused
from headgate.control.margin import plan_with_room
from headgate.control.measuring import Measurements
from headgate.control.planning import Plan, broken
from headgate.control.strains import Strains, foretold, measured_strains, typical
from headgate.errors import HeadgateError
from headgate.model import Scenario

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
SECOND_LOOK = "a second look at what the first answer gave up"
MOST_SEEN = 200
"""Links and applications that one record tells of."""
FIRST_ANSWER = 0.3
"""Seconds for a plan that is waited for."""
TIME_LIMIT = 1.5
"""Seconds for a second look, where the first answer gave up requirements."""

FOR_FORECASTS = 4
"""Of the budget: what is only foreseen must leave something for what happens."""

Planner = Callable[[Scenario, Policy, float], Plan]
"""The last is its time limit."""
Rehearsing = Callable[[Scenario, Plan], Sequence[str]]
"""Simulates a plan; returns to whom it does not keep what it promises."""
Fingerprint = tuple[tuple[PolicyRule, ...], tuple[tuple[str, float], ...]]
"""What a policy says, whatever its version."""


@dataclass(frozen=True)
class Answer:
    """What is to be done about a snapshot."""

    policy: Policy | None = None
    """To be sent to the broker."""
    record: Record | None = None
    """For the history."""
    planned_for: Scenario | None = None
    """For the archive of plans."""


@dataclass
class Trial:
    """A change that is being watched."""

    before: Policy
    strains_before: Strains
    since: float
    fingerprint: Fingerprint
    predicted: Strains
    circumstances: Circumstances
    """Those for which the old policy was planned: what was measured before belongs to them."""
    measured: list[Strains] = field(default_factory=list)


class Controller:
    """Steers one broker. All times are those of the snapshots."""

    def __init__(
        self,
        config: Configuration,
        planner: Planner | None = None,
        rehearse: Rehearsing | None = None,
    ) -> None:
        self.config = config
        self.mode = config.planner.mode
        self.measurements = Measurements(config)
        self.in_force = config.first_policy
        self.base = config.first_policy
        """What the operator wrote: plans are laid on top of it, so that rules do not pile up."""
        self._planner = planner or plan_with_room
        self._rehearse = rehearse
        self._own: int | None = None
        """Version of the last policy that came from here."""
        self._heard = False
        self._planned_for: Validity | None = None
        self._planned_before: Circumstances | None = None
        """Those for which the plan before that was made."""
        self._told = ""
        """What came from elsewhere since the last plan, and is a reason for another."""
        self._trends = Trends()
        self._knowledge = Knowledge()
        self._drift = Drift()
        self._broken_in_a_row = 0
        self._foreseen_in_a_row = 0
        self._changes: deque[float] = deque()
        self._trial: Trial | None = None
        self._said: object = None
        """What the last record without a change said."""
        self._failed: dict[Fingerprint, tuple[float, float]] = {}
        """Policies that were rolled back: not before which time, and how long the wait was."""

    # Monitor

    def policy_is(self, policy: Policy) -> None:
        """The broker says which policy is in force."""
        self.in_force = policy
        self.measurements.periods = dict(policy.periods)
        first, self._heard = not self._heard, True
        # A returning controller finds its own last plan: it begins with the operator's rules.
        own = policy.rules[: len(self.base.rules)] == self.base.rules if first else False
        if policy.version not in (0, self._own) and not own:
            # Somebody else, by hand or another controller: from now on that is what we build on.
            self.base = policy
            self._trial = None
            self._planned_for = None

    def applications_are(self, commanded: list[Application]) -> None:
        """The broker says which applications it was told of, beside the configured ones."""
        if self.measurements.applications_are(commanded):
            self._told = "applications were commanded"

    def learned(self, news: Learned | Refused, now: float) -> Record:
        """The pipeline left something: it is used from now on, or cannot be used."""
        if isinstance(news, Refused):
            return self._record(now, Event.REFUSED, str(news), {})
        self._knowledge.take(news)
        if news.calibration:
            self.measurements.calibration = self._knowledge.calibration
            # What drifted before was measured against another model.
            self._drift.factors.clear()
            self._drift.restart(now, 0.0)
            self._told = f"learned: {news}"
            drifted = sorted(name for name, link in news.calibration.items() if link.drift)
            if drifted:
                self._told += f"; model drift on {', '.join(drifted[:5])}"
        return self._record(now, Event.LEARNED, str(news), {})

    def watch(self, snapshot: Snapshot) -> None:
        """Learn from a snapshot, and leave decisions to whoever has the lease."""
        self.measurements.take(snapshot)
        self._trends.observe(self.measurements.loads, snapshot.time)

    def see(self, snapshot: Snapshot) -> Answer:
        """One turn of the loop."""
        self.watch(snapshot)
        strains = measured_strains(snapshot, self.measurements)
        if self._trial is not None:
            verdict = self._verify(self._trial, strains, snapshot.time)
            if verdict is not None:
                return verdict
        scenario = self.measurements.scenario()
        if not scenario.topics:
            return Answer()
        if self._trial is None:
            drifted = self._drift.look(snapshot, scenario, self.in_force, strains)
            if drifted:
                self.measurements.drifted = dict(self._drift.factors)
                self._told = drifted
                return Answer(record=self._record(snapshot.time, Event.DRIFTED, drifted, strains))
        ahead = self._foresee(scenario, snapshot.time)
        reason = self._analyse(scenario, strains, snapshot.time)
        foreseen = "" if reason or ahead is None else self._trouble(scenario, ahead)
        self._foreseen_in_a_row = self._foreseen_in_a_row + 1 if foreseen else 0
        if not reason and self._foreseen_in_a_row < SEEN_TWICE:
            return Answer()
        while self._changes and self._changes[0] < snapshot.time - 60:
            self._changes.popleft()
        if len(self._changes) >= (BUDGET if reason else FOR_FORECASTS):
            return Answer()  # the reason stays, and is looked at again
        return self._plan(scenario, ahead, strains, reason or foreseen, snapshot.time)

    # Analyse

    def _analyse(self, scenario: Scenario, strains: Strains, time: float) -> str:
        """Why it should be planned now; empty if it should not."""
        broken = sorted(name for name, strain in strains.items() if strain > 1)
        self._broken_in_a_row = self._broken_in_a_row + 1 if broken else 0
        now = circumstances(scenario)
        valid, told = self._planned_for, self._told
        if valid is None:
            return "nothing was planned yet"
        if told:
            return told
        if came := sorted(str(key) for key in now.keys() - valid.present.keys()):
            return f"came: {', '.join(came[:3])}"
        if went := sorted(str(key) for key in valid.present.keys() - now.keys()):
            return f"went: {', '.join(went[:3])}"
        if left := valid.left(now, time):
            return left
        if self._broken_in_a_row >= SEEN_TWICE and self._trial is None:
            self._broken_in_a_row = 0
            return f"broken: {', '.join(broken)}"
        return ""

    def _foresee(self, scenario: Scenario, now: float) -> Ahead | None:
        """What is coming, if it is certain that the load rises."""
        if not self.config.planner.proactive:
            return None
        present = {k: v for k, v in circumstances(scenario).items() if isinstance(k, tuple)}
        horizon = self.config.planner.horizon
        trend = self._trends.factors(present, horizon)
        learned, newcomers = scheduled(present, self._knowledge.expected(now, horizon))
        growth = {key: max(trend.get(key, 1), learned.get(key, 1)) for key in {*trend, *learned}}
        if not growth and not newcomers:
            return None
        scenario = grown(scenario, growth, newcomers, self.measurements.described())
        return Ahead(scenario, growth, tuple(newcomers))

    def _trouble(self, scenario: Scenario, ahead: Ahead) -> str:
        """Which requirements that hold by the model will break if nothing is done."""
        coming = broken(ahead.scenario, self.in_force)
        coming -= broken(scenario, self.in_force) if coming else set()
        if not coming:
            return ""
        seconds = self.config.planner.horizon
        return f"forecast: {', '.join(sorted(coming))} would break within {seconds:g} s ({ahead})"

    # Plan

    def _plan(
        self, scenario: Scenario, ahead: Ahead | None, strains: Strains, reason: str, now: float
    ) -> Answer:
        present = circumstances(scenario)
        valid = self._planned_for
        self._planned_before = present if valid is None else valid.present
        self._planned_for = Validity(present, present, now)
        self._told = ""
        try:
            made = None if ahead is None else self._prepared(scenario, ahead)
            target = scenario
            if made is not None and ahead is not None:
                target = ahead.scenario
                # Twice the horizon: a trend that goes on is planned for again before that.
                until = now + 2 * self.config.planner.horizon
                self._planned_for = Validity(present, circumstances(ahead.scenario), until)
            else:
                seconds = TIME_LIMIT if reason == SECOND_LOOK else FIRST_ANSWER
                made = self._planner(scenario, self.in_force, seconds)
                self._told = "" if made.feasible or reason == SECOND_LOOK else SECOND_LOOK
        except HeadgateError as error:
            return Answer(record=self._record(now, Event.FAILED, f"{reason}: {error}", strains))
        fresh = Policy(
            version=self.in_force.version + 1,
            rules=self._on_base(made),
            periods=made.policy.periods,
        )
        if not self._worthwhile(made) or fingerprint(fresh) == fingerprint(self.in_force):
            return self._without_change(Event.KEPT, target, reason, strains, made, now)
        until, _ = self._failed.get(fingerprint(fresh), (0.0, 0.0))
        if now < until:
            reason += "; the same was rolled back before"
            return self._without_change(Event.KEPT, target, reason, strains, made, now)
        if self.mode is not PlannerMode.AUTO:
            doubtful = [] if self._rehearse is None else self._rehearse(target, made)
            if doubtful:
                reason += f"; simulated, it does not keep what it promises: {', '.join(doubtful)}"
            return self._without_change(Event.ADVISED, target, reason, strains, made, now)
        return self._execute(fresh, target, strains, reason, made, now)

    def _prepared(self, scenario: Scenario, ahead: Ahead) -> Plan | None:
        """A plan for what is coming; None if it would give up what can be had at present."""
        made = self._planner(ahead.scenario, self.in_force, FIRST_ANSWER)
        if self._rehearse is not None and self._rehearse(ahead.scenario, made):
            return None  # there is time left to plan for what will really be
        fails = broken(scenario, made.policy)
        if not fails:
            return made
        if fails - broken(scenario, self.in_force):
            return None
        # It mends not all of what is broken now. Perhaps a plan for the present does.
        better = self._planner(scenario, self.in_force, FIRST_ANSWER)
        return None if broken(scenario, better.policy) < fails else made

    def _without_change(
        self,
        event: Event,
        scenario: Scenario,
        reason: str,
        strains: Strains,
        made: Plan,
        now: float,
    ) -> Answer:
        """A record, unless it would only repeat the last one."""
        said = (event, tuple(made.policy.rules), made.verdict)
        if said == self._said:
            return Answer()
        self._said = said
        return Answer(None, self._record(now, event, reason, strains, made), scenario)

    def _on_base(self, made: Plan) -> tuple[PolicyRule, ...]:
        """The operator's rules, and on top the plan's own."""
        own = tuple(rule for rule in made.policy.rules if rule not in self.base.rules)
        return (*self.base.rules, *own)

    def _worthwhile(self, made: Plan) -> bool:
        """Does it mend something, or ease what presses by enough? A worse plan never is."""
        if not made.better_than_in_force():
            return False
        mended = any(o.after.met and not o.before.met for o in made.outlooks)
        if mended or made.drops_less(by=WORTHWHILE):
            return True
        return made.pressure[1] < made.pressure[0] * (1 - WORTHWHILE)

    # Execute

    def _execute(
        self,
        fresh: Policy,
        scenario: Scenario,
        strains: Strains,
        reason: str,
        made: Plan,
        now: float,
    ) -> Answer:
        self._trial = Trial(
            self.in_force,
            strains,
            now,
            fingerprint(fresh),
            foretold(made),
            self._planned_before or {},
        )
        self._said = None
        self._changes.append(now)
        self._drift.restart(now, VERIFY_AFTER)
        self._own = fresh.version
        self.in_force = fresh
        return Answer(fresh, self._record(now, Event.APPLIED, reason, strains, made), scenario)

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
        after = typical(trial.measured)
        worse = self._harm(after) > self._harm(trial.strains_before)
        if not worse or self._is_excused(trial, after):
            self._failed.pop(trial.fingerprint, None)
            why = "more is broken than before, but the old policy would be no better"
            record = self._record(now, Event.CONFIRMED, why if worse else "as measured", after)
            return Answer(record=msgspec.structs.replace(record, predicted=trial.predicted))
        _, waited = self._failed.get(trial.fingerprint, (0.0, BACK_OFF / 2))
        self._failed[trial.fingerprint] = (now + 2 * waited, 2 * waited)
        self._changes.append(now)
        back = msgspec.structs.replace(trial.before, version=self.in_force.version + 1)
        self._own, self.in_force = back.version, back
        why = "more was broken after the change than before: " + ", ".join(
            sorted(name for name, strain in after.items() if strain > 1)
        )
        record = self._record(now, Event.ROLLED_BACK, why, after)
        return Answer(back, msgspec.structs.replace(record, predicted=trial.predicted))

    def _is_excused(self, trial: Trial, after: Strains) -> bool:
        """Things got worse because the world did, and the old policy would break no less in it."""
        scenario = self.measurements.scenario()
        then, now = trial.circumstances, circumstances(scenario)
        harder = now.keys() - then.keys() or any(
            value < then[key] * (1 - HARDER)
            if isinstance(key, str)
            else value > then[key] * (1 + HARDER)
            for key, value in now.items()
        )
        if not harder:
            return False
        return self._harm(dict.fromkeys(broken(scenario, trial.before), 2.0)) >= self._harm(after)

    def _harm(self, strains: Strains) -> float:
        """The weight of what is broken."""
        weights = {name: a.weight for name, a in self.measurements.applications.items()}
        return sum(weights.get(name, 1.0) for name, strain in strains.items() if strain > 1)

    def _record(
        self, now: float, event: Event, why: str, strains: Strains, made: Plan | None = None
    ) -> Record:
        return Record(
            time=now,
            event=event,
            why=why,
            version=self.in_force.version,
            seen=self._seen(),
            broken={name: round(strain, 3) for name, strain in strains.items() if strain > 1},
            measured={name: round(strain, 4) for name, strain in strains.items()},
            predicted={} if made is None else foretold(made),
            knowledge=dict(self._knowledge.versions),
            conflicts=[] if made is None else [str(conflict) for conflict in made.conflicts],
            steps=[] if made is None else [*_steps(made)],
            pddl="" if made is None else f"{now:.3f}-policy-{self.in_force.version}",
            rules=len(self.in_force.rules),
            seconds=0.0 if made is None else round(made.seconds, 4),
        )

    def _seen(self) -> dict[str, float]:
        """Rates of links and loads of applications on them, in bit/s."""
        loads = {f"{link}/{name}": load for (name, link), load in self.measurements.loads.items()}
        seen = {**self.measurements.links, **loads}
        return {name: round(value) for name, value in list(seen.items())[:MOST_SEEN]}


def fingerprint(policy: Policy) -> Fingerprint:
    return policy.rules, tuple(sorted(policy.periods.items()))


def _steps(made: Plan) -> Iterator[str]:
    """A plan's decisions, one line each."""
    for step in made.steps:
        join = "" if step.join is None else f", join {step.join:.4g}"
        yield f"{step.link}/{step.group}: priority {step.priority}, drop {step.drop:.4g}{join}"
    for topic, seconds in made.policy.periods.items():
        yield f"{topic}: every {seconds:.4g} s"
