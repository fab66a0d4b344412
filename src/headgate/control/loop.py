"""The loop: monitor, analyse, plan, execute, verify (MAPE-K, PlanEMQX §III).

    snapshot ──▶ Measurements ──▶ a reason to plan? ──▶ plan ──▶ better than in force? ──▶ policy
                 (knowledge)              │                                                  │
                                          └──── verify: did it do what it promised? ◀────────┘

It knows no network and no clock: `Controller.see` takes a snapshot and returns what is to be done
about it. `process.py` brings the snapshots and carries out the answer. Losing all of this changes
nothing for clients: the broker keeps the last policy.

It looks ahead (`forecasting`): where the load is certain to rise, plans are made for what it will
be, as long as that gives up nothing that holds at present.

Five things keep it calm. There must be a reason: traffic or a link that left the range that was
planned for (`circumstances`), who came or went, a requirement that twice is seen broken, or about
to be, or foreseen to be. A plan must be worthwhile. Changes have a budget per minute. What was
rolled back is not tried again, and what the model cannot explain is not planned for again, until a
time has passed that doubles with every failure (`restraint`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from headgate.config import Configuration, PlannerMode
from headgate.contract import Application, Policy, PolicyRule, Snapshot
from headgate.control.auditing import decided, measured_and_broken, what_was_seen
from headgate.control.circumstances import (
    Ahead,
    Circumstances,
    Validity,
    circumstances,
    named,
)
from headgate.control.drift import Drift
from headgate.control.forecasting import Trends, grown, scheduled
from headgate.control.history import Event, Record
from headgate.control.knowledge import Knowledge, Learned, Refused
from headgate.control.margin import LITTLE, is_backlog, plan_with_room, shares_levels, smaller
from headgate.control.measuring import Measurements
from headgate.control.places import places
from headgate.control.planning import Plan, broken
from headgate.control.restraint import (
    Budget,
    Fingerprint,
    RolledBack,
    Unexplained,
    fingerprint,
)
from headgate.control.strains import Strains, foretold, measured_strains, missed, typical
from headgate.control.trial import Trial
from headgate.errors import HeadgateError
from headgate.model import Scenario

WORTHWHILE = 0.1
"""Drops or pressure must fall by this fraction, if nothing broken is mended."""
SEEN_TWICE = 2
"""Snapshots in a row in which a requirement must be broken."""
BUDGET = 10
"""Changes of policy within a minute."""
FOR_RESPONSES = 6
"""Of the budget: what is seen broken, or about to be, must leave something for what is certain,
that somebody came or went, a link changed, or a load."""
VERIFY_AFTER = 3.0
"""Seconds after which measurements speak of the new policy alone."""
VERIFY_FOR = 5.0
"""Seconds in which they are gathered."""
SECOND_LOOK = "a second look at what the first answer gave up"
MOST_SENT = 32
"""Policies of our own that are recognised when the broker announces them."""
MOST_GONE = 100
"""Rules that are kept for who is not there: most of them come back."""
FIRST_ANSWER = 0.3
"""Seconds for a plan that is waited for."""
TIME_LIMIT = 1.5
"""Seconds for a second look, where the first answer gave up requirements."""

FOR_FORECASTS = 4
"""What is only foreseen must leave something for what happens."""

QUICKLY_JUDGED = 2000
"""Flows that the model judges in some hundredths of a second. With more, it is asked less often
whether something is about to break."""

Planner = Callable[[Scenario, Policy, float, Mapping[str, float]], Plan]
"""With a time limit, and the bits that wait for each link."""
Rehearsing = Callable[[Scenario, Plan], Sequence[str]]
"""Simulates a plan; returns to whom it does not keep what it promises."""


@dataclass(frozen=True)
class Answer:
    """What is to be done about a snapshot."""

    policy: Policy | None = None
    """To be sent to the broker."""
    record: Record | None = None
    """For the history."""
    planned_for: Scenario | None = None
    """For the archive of plans."""
    before: tuple[Record, ...] = ()
    """For the history as well, before `record`: what came of the last change, what drifted."""


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
        self._sent: dict[int, Fingerprint] = {}
        """What came from here, by version."""
        self._told_in_force = self.in_force
        """What the broker last said was in force: an answer to what was sent takes its time."""
        self._heard = False
        self._planned_for: Validity | None = None
        self._anew = "nothing was planned yet"
        """Why there is no valid plan, where there is none."""
        self._planned_before: Circumstances | None = None
        """Those for which the plan before that was made."""
        self._told = ""
        """What came from elsewhere since the last plan, and is a reason for another."""
        self._trends = Trends()
        self._knowledge = Knowledge()
        self._drift = Drift()
        self._broken_in_a_row = 0
        self._about_in_a_row = 0
        self._foreseen_in_a_row = 0
        self._narrow: set[str] = set()
        """Who was about to break in spite of the last plan: there was no better one."""
        self._judge_again = 0.0
        self._backlogs: set[str] = set()
        """Links on which it was planned for what waits to drain."""
        self._budget = Budget()
        self._rolled_back = RolledBack()
        self._unexplained = Unexplained()
        self._trial: Trial | None = None
        self._said: object = None
        """What the last record without a change said."""

    # Monitor

    def policy_is(self, policy: Policy) -> None:
        """The broker says which policy is in force."""
        self._told_in_force = policy
        first, self._heard = not self._heard, True
        ours = self._sent.get(policy.version) == fingerprint(policy)
        if ours and policy.version < self.in_force.version:
            return  # the answer to what was sent before the last
        self.in_force = policy
        self.measurements.periods = dict(policy.periods)
        if ours or policy.version == 0:
            return
        self._trial = None
        self._planned_for = None
        # A returning controller finds its own last plan: it begins with the operator's rules.
        if first and policy.rules[: len(self.base.rules)] == self.base.rules:
            self._anew = f"the controller came back and found policy {policy.version}"
            return
        # Somebody else, by hand or another controller: from now on that is what we build on.
        self.base = policy
        self._anew = f"policy {policy.version} came from elsewhere"

    def applications_are(self, commanded: list[Application]) -> None:
        """The broker says which applications it was told of, beside the configured ones."""
        if self.measurements.applications_are(commanded):
            self._told = "applications were commanded"

    def configure(self, config: Configuration) -> None:
        """The configuration was read again: other applications, links, or ways to plan."""
        self.config = config
        self.mode = config.planner.mode
        self.measurements.configure(config)
        self._told = "the configuration was read again"

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

    def see(self, snapshot: Snapshot, now: float | None = None) -> Answer:
        """One turn of the loop. `now` is the controller's own time, for its budget."""
        now = snapshot.time if now is None else now
        self.watch(snapshot)
        strains = measured_strains(snapshot, self.measurements)
        noted = []
        if self._trial is not None:
            verdict = self._verify(self._trial, strains, snapshot.time, now)
            if verdict.policy is not None:
                return verdict
            noted.append(verdict.record)
        scenario = self.measurements.scenario()
        if drifted := self._look_for_drift(snapshot, scenario, strains):
            noted.append(drifted)
            scenario = self.measurements.scenario()
        answer = self._decide(snapshot, scenario, strains, now) if scenario.topics else Answer()
        # What is only noted keeps nobody waiting who needs another plan.
        records = [record for record in (*noted, answer.record) if record is not None]
        if not records:
            return answer
        return replace(answer, record=records[-1], before=tuple(records[:-1]))

    def _look_for_drift(
        self, snapshot: Snapshot, scenario: Scenario, strains: Strains
    ) -> Record | None:
        """Does the model still tell what is measured? Only while no change is being judged."""
        if self._trial is not None or not scenario.topics:
            return None
        drifted = self._drift.look(snapshot, scenario, self.in_force, strains)
        if not drifted:
            return None
        self.measurements.drifted = dict(self._drift.factors)
        self._told = drifted
        return self._record(snapshot.time, Event.DRIFTED, drifted, strains)

    def _decide(
        self, snapshot: Snapshot, scenario: Scenario, strains: Strains, now: float
    ) -> Answer:
        """Analyse, and plan if there is a reason."""
        ahead = self._foresee(scenario, snapshot.time)
        reason = self._analyse(scenario, strains, snapshot.time)
        foreseen = "" if reason or ahead is None else self._trouble(scenario, ahead)
        self._foreseen_in_a_row = self._foreseen_in_a_row + 1 if foreseen else 0
        if not reason and self._foreseen_in_a_row < SEEN_TWICE:
            return Answer()
        if self._budget.spent(now) >= _allowance(reason):
            return Answer()  # the reason stays, and is looked at again
        answer = self._plan(scenario, ahead, strains, reason or foreseen, snapshot.time)
        if answer.policy is not None:
            self._budget.spend(now)
        self._after_planning(scenario, changed=answer.policy is not None)
        return answer

    # Analyse

    def _analyse(self, scenario: Scenario, strains: Strains, time: float) -> str:
        """Why it should be planned now; empty if it should not."""
        broken = sorted(name for name, strain in strains.items() if strain > 1)
        mendable = self._unexplained.mendable(broken, time)
        self._broken_in_a_row = self._broken_in_a_row + 1 if mendable else 0
        now = circumstances(scenario)
        valid, told = self._planned_for, self._told
        if valid is None:
            return self._anew
        if told:
            return told
        if came := sorted(named(key) for key in now.keys() - valid.present.keys()):
            return f"came: {', '.join(came[:3])}"
        if went := sorted(named(key) for key in valid.present.keys() - now.keys()):
            return f"went: {', '.join(went[:3])}"
        if left := valid.left(now, time):
            return left
        if valid.partial:  # what came has been seen for a whole second now
            self._planned_for = replace(valid, partial=self.measurements.partial)
        if self._broken_in_a_row >= SEEN_TWICE and self._trial is None:
            self._broken_in_a_row = 0
            return f"broken: {', '.join(mendable)}"
        if drained := sorted(link for link in self._backlogs if not self._is_backlog(link)):
            return f"what waited for {', '.join(drained)} is gone"
        return self._about_to_break(scenario, time)

    def _about_to_break(self, scenario: Scenario, time: float) -> str:
        """Whose requirement would break if the links were a little slower, or the load a little
        higher: what has to be mended is mended before anything gathers."""
        if time < self._judge_again:
            return ""
        flows = sum(len(client.subscriptions) for client in scenario.clients)
        self._judge_again = time + flows // QUICKLY_JUDGED
        about = broken(smaller(scenario, LITTLE), self.in_force) - self._narrow
        self._about_in_a_row = self._about_in_a_row + 1 if about else 0
        if self._about_in_a_row < SEEN_TWICE:
            return ""
        self._about_in_a_row = 0
        return f"about to break: {', '.join(sorted(about))}"

    def _is_backlog(self, link: str) -> bool:
        """Does more wait for a link than it carries in a moment?"""
        known = self.measurements
        return is_backlog(known.waiting.get(link, 0.0), known.links.get(link, 0.0) or 1.0)

    def _foresee(self, scenario: Scenario, now: float) -> Ahead | None:
        """What is coming, if it is certain that the load rises."""
        if not self.config.planner.proactive:
            return None
        present = {k: v for k, v in circumstances(scenario).items() if isinstance(k, tuple)}
        horizon = self.config.planner.horizon
        trend = self._trends.factors(present, horizon)
        learned, newcomers = scheduled(
            present, self._knowledge.expected(now, horizon), self.measurements.known_as
        )
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
        partial = self.measurements.partial
        self._planned_for = Validity(present, present, now, partial)
        self._told = ""
        try:
            made = None if ahead is None else self._prepared(scenario, ahead)
            target = scenario
            if made is not None and ahead is not None:
                target = ahead.scenario
                # Twice the horizon: a trend that goes on is planned for again before that.
                until = now + 2 * self.config.planner.horizon
                self._planned_for = Validity(present, circumstances(ahead.scenario), until, partial)
            else:
                seconds = TIME_LIMIT if reason == SECOND_LOOK else FIRST_ANSWER
                made = self._planner(scenario, self.in_force, seconds, self.measurements.waiting)
                self._told = "" if made.feasible or reason == SECOND_LOOK else SECOND_LOOK
        except HeadgateError as error:
            return Answer(record=self._record(now, Event.FAILED, f"{reason}: {error}", strains))
        fresh = Policy(
            version=self.in_force.version + 1,
            rules=self._on_base(made),
            periods=made.policy.periods,
        )
        if self.config.planner.proactive:
            fresh = self._with_places(fresh, target)
        better = made.worthwhile(WORTHWHILE) and fingerprint(fresh) != fingerprint(self.in_force)
        mends = better and self.mode is PlannerMode.AUTO
        if reason.startswith("broken"):
            reason += self._doubt(scenario, strains, now, mends=mends)
        if not better:
            return self._without_change(Event.KEPT, target, reason, strains, made, now)
        if self._rolled_back.waits(fingerprint(fresh), now):
            reason += "; the same was rolled back before"
            return self._without_change(Event.KEPT, target, reason, strains, made, now)
        if self.mode is not PlannerMode.AUTO:
            if self._rehearse is not None:
                doubtful = ", ".join(self._rehearse(target, made))
                reason += "; simulated: " + (
                    f"it does not keep what it promises to {doubtful}"
                    if doubtful
                    else "it keeps what it promises"
                )
            return self._without_change(Event.ADVISED, target, reason, strains, made, now)
        return self._execute(fresh, target, strains, reason, made, now)

    def _prepared(self, scenario: Scenario, ahead: Ahead) -> Plan | None:
        """A plan for what is coming; None if it would give up what can be had at present, or if
        not everything can be had then: who loses is decided when it is so. Neither is anybody made
        to wait behind others for it, who would have a level of their own at present."""
        waiting = self.measurements.waiting
        made = self._planner(ahead.scenario, self.in_force, FIRST_ANSWER, waiting)
        if not made.feasible or shares_levels(made):
            self._foreseen_in_a_row = 0
            return None
        if self._rehearse is not None and self._rehearse(ahead.scenario, made):
            return None  # there is time left to plan for what will really be
        fails = broken(scenario, made.policy)
        if not fails:
            return made
        if fails - broken(scenario, self.in_force):
            return None
        # It mends not all of what is broken now. Perhaps a plan for the present does.
        better = self._planner(scenario, self.in_force, FIRST_ANSWER, waiting)
        return None if broken(scenario, better.policy) < fails else made

    def _doubt(self, scenario: Scenario, strains: Strains, now: float, *, mends: bool) -> str:
        """What is said of the seen broken that no plan will mend."""
        return self._unexplained.doubt(
            {name for name, strain in strains.items() if strain > 1},
            broken(scenario, self.in_force),
            now,
            drains=any(self._is_backlog(link) for link in self.measurements.waiting),
            mends=mends,
        )

    def _after_planning(self, scenario: Scenario, *, changed: bool) -> None:
        """Remember what the plan could not help."""
        self._about_in_a_row = 0
        self._narrow = broken(smaller(scenario, LITTLE), self.in_force)
        full = {link for link in self.measurements.waiting if self._is_backlog(link)}
        self._backlogs = full if changed else self._backlogs & full

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
        doubt = reason.partition(";")[2]
        said = (event, tuple(made.policy.rules), made.verdict, doubt)
        if said == self._said:
            return Answer()
        self._said = said
        predicted = foretold(made, scenario, made.policy)
        return Answer(None, self._record(now, event, reason, strains, made, predicted), scenario)

    def _on_base(self, made: Plan) -> tuple[PolicyRule, ...]:
        """The operator's rules, and on top the plan's own. Of those for somebody who is not there
        any more the newest stay: guests make up their names."""
        own = [rule for rule in made.policy.rules if rule not in self.base.rules]
        gone = [rule for rule in own if not self.measurements.is_known(rule)]
        too_old = gone[:-MOST_GONE]
        return (*self.base.rules, *(rule for rule in own if rule not in too_old))

    def _with_places(self, fresh: Policy, scenario: Scenario) -> Policy:
        """With rules for those who are not there, in place of what was planned for them when they
        were."""
        there = {*self.measurements.known_as.values(), *(a.name for a in scenario.applications)}
        added = tuple(places(scenario, fresh, self.measurements.described(), there))
        anew = {rule.application for rule in added}
        own = fresh.rules[len(self.base.rules) :]
        kept = tuple(
            rule
            for rule in own
            if rule.application not in anew or rule.flow is not None or rule.topic is not None
        )
        return msgspec.structs.replace(fresh, rules=(*self.base.rules, *kept, *added))

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
            foretold(made, scenario, fresh),
            self._planned_before or {},
        )
        self._said = None
        self._drift.restart(now, VERIFY_AFTER)
        self._send(fresh)
        predicted = self._trial.predicted
        record = self._record(now, Event.APPLIED, reason, strains, made, predicted)
        return Answer(fresh, record, scenario)

    def _send(self, policy: Policy) -> None:
        """From now on this is taken to be in force, until the broker says otherwise."""
        self.in_force = policy
        self._sent[policy.version] = fingerprint(policy)
        for version in sorted(self._sent)[:-MOST_SENT]:
            del self._sent[version]

    def refused(self, why: str, now: float) -> Record:
        """The broker did not take what was sent."""
        self._trial = None
        self._planned_for = None
        self._anew = "the broker refused the last policy"
        self.in_force = self._told_in_force
        return self._record(now, Event.REFUSED, why, {})

    # Verify

    def _verify(self, trial: Trial, strains: Strains, now: float, own: float) -> Answer:
        """Wait, gather, then judge the change by what was measured."""
        if now < trial.since + VERIFY_AFTER:
            return Answer()
        trial.measured.append(strains)
        if now < trial.since + VERIFY_AFTER + VERIFY_FOR:
            return Answer()
        self._trial = None
        after = typical(trial.measured)
        worse = self._harm(after) > self._harm(trial.strains_before)
        if not worse or self._is_excused(trial, after):
            self._rolled_back.forgive(trial.fingerprint)
            why = "more is broken than before, but the old policy would be no better"
            event, lacking = Event.CONFIRMED, missed(after, trial.predicted)
            if not worse:
                why = "no worse than before" if lacking else "what was promised is kept"
            if lacking:
                event, why = Event.MISSED, f"{why}; not as promised: {lacking}"
            return Answer(record=self._record(now, event, why, after, None, trial.predicted))
        self._rolled_back.add(trial.fingerprint, now)
        self._budget.spend(own)
        back = msgspec.structs.replace(trial.before, version=self.in_force.version + 1)
        self._send(back)
        why = "more was broken after the change than before: " + ", ".join(
            sorted(name for name, strain in after.items() if strain > 1)
        )
        record = self._record(now, Event.ROLLED_BACK, why, after, None, trial.predicted)
        return Answer(back, record)

    def _is_excused(self, trial: Trial, after: Strains) -> bool:
        """Things got worse because the world did, and the old policy would break no less in it."""
        scenario = self.measurements.scenario()
        if not trial.became_harder(circumstances(scenario)):
            return False
        return self._harm(dict.fromkeys(broken(scenario, trial.before), 2.0)) >= self._harm(after)

    def _harm(self, strains: Strains) -> float:
        """The weight of what is broken."""
        known = self.measurements
        weights = {name: a.weight for name, a in known.applications.items()}
        return sum(
            weights.get(known.known_as.get(name, name), 1.0)
            for name, strain in strains.items()
            if strain > 1
        )

    def _record(
        self,
        now: float,
        event: Event,
        why: str,
        strains: Strains,
        made: Plan | None = None,
        predicted: Strains | None = None,
    ) -> Record:
        seen = what_was_seen(self.measurements)
        base = Record(time=now, event=event, why=why, version=self.in_force.version, seen=seen)
        return msgspec.structs.replace(
            base,
            **measured_and_broken(strains),
            **decided(made, f"{now:.3f}-policy-{self.in_force.version}"),
            predicted=predicted or {},
            knowledge=dict(self._knowledge.versions),
            rules=len(self.in_force.rules),
        )


def _allowance(reason: str) -> int:
    """How much of the budget may be spent for a reason; an empty one is a forecast."""
    if not reason:
        return FOR_FORECASTS
    return FOR_RESPONSES if reason.startswith(("broken", "about to break")) else BUDGET
