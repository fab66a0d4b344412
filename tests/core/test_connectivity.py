"""Clients that come and go: what is measured of them, and what is queued while they are away."""

from __future__ import annotations

import heapq
import math
from random import Random
from statistics import fmean, stdev
from typing import Any

import pytest
from durability.peer import Publisher, Subscriber

from core.stage import Stage
from headgate.config import Configuration
from headgate.contract import Application, Policy, PolicyRule, Requirement
from headgate.core.applications import Applications
from headgate.core.connectivity import ENOUGH_PERIODS, Connectivity
from headgate.core.flows import Flow
from headgate.core.joining import Queue, largest_join, least_join, mean_response
from headgate.core.policies import Enforcer
from headgate.core.reasons import Drop
from headgate.core.session import Session
from headgate.core.snapshots import Snapshots
from headgate.model.inverse import largest_join as models_join
from headgate.model.onoff import OnOffQueue
from headgate.wire.packets import Connect, Packet, Subscribe, SubscriptionOptions
from headgate.wire.reasons import Reason

ON = OFF = 20.0
SERVICE = 8.0
"""ON/OFF §IV: µ = 8/s, T_ON = T_OFF = 20 s."""


# The estimator


def habits(cycles: int, on_s: float, off_s: float, rng: Random, now: float = 1e9) -> Connectivity:
    """What is known of a client after some cycles of exponential periods."""
    connectivity = Connectivity()
    keep_up(connectivity, cycles, on_s, off_s, rng, now)
    return connectivity


def keep_up(
    one: Connectivity, cycles: int, on_s: float, off_s: float, rng: Random, now: float
) -> float:
    for _ in range(cycles):
        one.come((), now)
        one.parted = now = now + rng.expovariate(1 / on_s)
        now += rng.expovariate(1 / off_s)
    one.come((), now)
    return now


def test_the_means_of_exponential_periods_are_found() -> None:
    """Of 400 clients: the mean within 4 standard errors, the spread as the weights say."""
    rng = Random(1)
    known = [habits(150, 150.6, 78.0, rng).estimate(2e9) for _ in range(400)]
    expected = math.sqrt(0.05 / 1.95)  # of samples weighted by 0.95^n
    for mean, found in ((150.6, [e.on_s for e in known]), (78.0, [e.off_s for e in known])):
        assert fmean(found) == pytest.approx(mean, rel=4 * expected / 20)
        assert stdev(found) / mean == pytest.approx(expected, rel=0.25)
    assert known[0].periods == pytest.approx(1.95 / 0.05, rel=0.01)


def test_the_means_follow_a_client_that_changes_its_habits() -> None:
    rng = Random(2)
    found = []
    for _ in range(400):
        one = Connectivity()
        now = keep_up(one, 60, 20.0, 20.0, rng, 1e9)
        keep_up(one, 45, 20.0, 200.0, rng, now)
        found.append(one.estimate(2e9).off_s)
    left = 0.95**45
    assert fmean(found) == pytest.approx(left * 20 + (1 - left) * 200, rel=0.05)


def test_an_absence_longer_than_all_before_counts_before_it_ends() -> None:
    one = habits(30, 20.0, 20.0, Random(3))
    one.parted = one.since + 20.0
    before = one.estimate(one.parted).off_s
    assert one.estimate(one.parted + before).off_s == pytest.approx(before, rel=1e-6)
    assert one.estimate(one.parted + 2000.0).off_s > 5 * before


def test_confidence_grows_with_every_cycle() -> None:
    rng = Random(4)
    periods = [habits(cycles, ON, OFF, rng).estimate(2e9).periods for cycles in range(8)]
    assert periods[0] == 0
    assert periods == sorted(periods)
    assert periods[4] < ENOUGH_PERIODS <= periods[6]


# The closed form


@pytest.mark.parametrize("rate", [0.0, 0.05, 1.0, 3.5, 7.7])
@pytest.mark.parametrize("zeta", [0.0, 0.001, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(("on_s", "off_s"), [(20.0, 20.0), (150.6, 78.0), (2.0, 300.0)])
def test_the_mean_response_is_the_models(
    rate: float, zeta: float, on_s: float, off_s: float
) -> None:
    mine = mean_response(Queue(SERVICE, on_s, off_s, rate), zeta)
    theirs = OnOffQueue(rate or 1e-9, SERVICE, on_s, off_s, zeta).mean_response
    assert mine == pytest.approx(float(theirs), rel=1e-6)


def test_flows_that_share_a_queue_and_not_the_threshold() -> None:
    """One joins with 0.3, the other always: the model's response of the first."""
    queue = Queue(SERVICE, 30.0, 20.0, free_rate=1.0, fixed_rate=2.0, fixed_joins=2.0)
    whole = OnOffQueue(3.0, SERVICE, 30.0, 20.0, (0.3 + 2.0) / 3.0)
    assert mean_response(queue, 0.3) == pytest.approx(float(whole.response_moments(0.3)[0]))


@pytest.mark.parametrize(
    ("rate", "zeta"),
    [
        (0.05, 0.497),
        (1.0, 0.417),
        (2.0, 0.350),
        (3.0, 0.292),
        (3.8, 0.249),
        (5.0, 0.186),
        (6.0, 0.130),
        (7.0, 0.065),
        (7.7, 0.001),
    ],
)
def test_the_join_probabilities_of_the_paper(rate: float, zeta: float) -> None:
    """7 s with the input queue of 16/s, which the broker itself does not have."""
    found = largest_join(Queue(SERVICE, ON, OFF, rate), 7.0 - 1 / (16.0 - rate))
    assert found == pytest.approx(zeta, abs=6e-4)
    assert found == pytest.approx(
        models_join(rate, SERVICE, ON, OFF, 7.0, input_rate=16.0).value,  # type: ignore[union-attr]
        abs=1e-5,
    )


def test_thresholds_that_are_easy_and_that_are_impossible() -> None:
    queue = Queue(SERVICE, ON, OFF, 1.0)
    assert largest_join(queue, 14.0) == 1.0
    assert largest_join(queue, 0.01) == 0.0
    assert largest_join(queue, 0.01, least=0.2) == 0.2
    assert largest_join(Queue(SERVICE, ON, OFF, 9.0), 7.0) == 0.0


def test_the_least_join_probability_loses_what_is_tolerated() -> None:
    assert least_join(1.0, 0.0, 0.5) == 0.0
    assert least_join(0.0, 0.0, 0.5) == 1.0
    zeta = least_join(0.3, 0.1, 0.5)
    assert 1 - 0.9 * (1 - (1 - zeta) * 0.5) == pytest.approx(0.3)


# In the broker


class Worker(Subscriber):
    """Takes one message at a time and acknowledges when it was served."""

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id, receive_maximum=1)
        self.served = 0
        self.claims: list[tuple[str, str]] = []

    @property
    def busy(self) -> bool:
        return bool(self._owed)

    def tick(self) -> None:
        self.holding = not self.served
        if self._owed and self.served:
            self.served -= 1
        super().tick()

    def send(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            packet.properties.user_properties += self.claims
        super().send(packet)


class Town:
    """A stage on which one client comes and goes, and a device publishes."""

    def __init__(self, config: Configuration, seed: int = 1, client_id: str = "phone-1") -> None:
        self.stage = Stage(config)
        self.rng = Random(seed)
        self.device = Publisher("device", window=1000)
        self.client = Worker(client_id)
        self.arrived: list[float] = []
        self.responses: list[float] = []
        self.stage.connect(self.device)
        self.stage.connect(self.client)
        self.stage.turn()
        self.subscribe("news")
        self.here = True

    def subscribe(self, topic_filter: str) -> None:
        self.client.send(Subscribe(1, [(topic_filter, SubscriptionOptions(1))]))
        self.stage.turn()
        self.stage.commit()
        assert self.client.granted == [1]

    @property
    def session(self) -> Session:
        return self.stage.broker.sessions[self.client.client_id]

    @property
    def flow(self) -> Flow:
        flow: Flow = self.session.flows["news"]
        return flow

    def publish(self, topic: str = "news") -> None:
        self.arrived.append(self.stage.now)
        self.device.publish(topic, str(len(self.arrived) - 1).encode(), 1)
        self.stage.turn()
        self.stage.commit()

    def toggle(self) -> None:
        if self.here:
            self.stage.lose(self.client)
        else:
            self.stage.connect(self.client)
        self.stage.turn()
        self.stage.commit()
        self.here = not self.here

    def wait(self, seconds: float) -> None:
        self.stage.now += seconds
        self.stage.broker.timers.run(self.stage.now)
        self.stage.turn()

    def live(
        self, cycles: int, rate: float = 1.0, on_s: float = ON, off_s: float = OFF
    ) -> list[float]:
        """ON/OFF §IV: exponential everything. Returns ζ of each absence; ends as it begins."""
        rng, stage = self.rng, self.stage
        zetas: list[float] = []
        events: list[tuple[float, str]] = []

        def after(mean: float, what: str) -> None:
            heapq.heappush(events, (stage.now + rng.expovariate(1 / mean), what))

        after(1 / rate, "arrival")
        after(on_s if self.here else off_s, "toggle")
        serving = ""  # which service is under way
        services = 0
        while len(zetas) < cycles or not self.here:
            if self.here and self.client.busy and not serving:
                services += 1
                serving = f"served {services}"
                after(1 / SERVICE, serving)
            at, what = heapq.heappop(events)
            stage.now = max(stage.now, at)
            stage.broker.timers.run(stage.now)
            if what == "arrival":
                self.publish()
                after(1 / rate, "arrival")
            elif what == serving:
                serving = ""
                number = int(self.client.messages[-1].payload)
                self.responses.append(stage.now - self.arrived[number])
                self.client.served += 1
                stage.turn()
            elif what == "toggle":
                serving = ""  # begun anew, which for an exponential service makes no difference
                self.toggle()
                if not self.here:
                    zetas.append(self.flow.join)
                after(on_s if self.here else off_s, "toggle")
        return zetas


def town(threshold_s: float | None = 7.0, *rules: PolicyRule, **rest: Any) -> Town:
    application = Application(
        name="commuters", clients=("phone-*",), threshold_s=threshold_s, **rest
    )
    return Town(Configuration(applications=(application,), policy=rules))


def test_a_client_that_comes_and_goes_gets_its_threshold() -> None:
    """λ = 1/s. ζ is 1 until enough is known. Then it is near the 0.424 that exact figures would
    give: estimates that err by 16 % make it 0.47 in the mean of many clients, of 300 cycles of one
    client give or take 0.07 (standard error), and the response 7.4 s, give or take 0.7 s.
    """
    here = town()
    zetas = here.live(6)
    assert zetas[:4] == [1.0] * 4
    here.live(44)
    here.responses.clear()
    offered, dropped = here.flow.offered, here.flow.drops[Drop.DISCONNECTED]
    zetas = here.live(300)
    assert fmean(zetas) == pytest.approx(0.47, abs=0.2)
    assert stdev(zetas) < 0.25
    assert fmean(here.responses) == pytest.approx(7.4, abs=2.0)
    lost = (here.flow.drops[Drop.DISCONNECTED] - dropped) / (here.flow.offered - offered)
    assert 1 - lost == pytest.approx((1 + fmean(zetas)) / 2, abs=0.05)
    estimate = here.session.connectivity.estimate(here.stage.now)  # type: ignore[union-attr]
    assert estimate.drain == pytest.approx(SERVICE, rel=0.25)
    rate = here.session.connectivity.arrivals["news"]  # type: ignore[union-attr]
    assert rate.per_second(here.flow.offered, here.stage.now) == pytest.approx(1.0, rel=0.25)


def test_the_join_probability_is_the_models_for_what_was_measured() -> None:
    here = town()
    here.live(12)
    here.toggle()
    known = here.session.connectivity
    assert known is not None
    estimate = known.estimate(here.stage.now)
    rate = known.arrivals["news"].per_second(here.flow.offered, here.stage.now)
    answer = models_join(rate, estimate.drain, estimate.on_s, estimate.off_s, 7.0)
    assert here.flow.join == pytest.approx(answer.value, abs=1e-3)  # type: ignore[union-attr]
    assert here.flow.join < 1.0


def test_nothing_is_dropped_while_the_client_is_connected_and_critical_never() -> None:
    here = town(0.001)
    here.live(12)
    here.toggle()
    assert here.flow.join == 0.0
    before = here.flow.drops[Drop.DISCONNECTED]
    for _ in range(10):
        here.publish("$critical/news")
    assert here.flow.drops[Drop.DISCONNECTED] == before
    assert here.flow.backlog == 10
    for _ in range(10):
        here.publish()
    assert here.flow.drops[Drop.DISCONNECTED] == before + 10
    here.toggle()
    for _ in range(10):
        here.publish()
    assert sum(here.flow.drops) == before + 10


def test_without_a_threshold_everything_waits() -> None:
    here = town(None)
    assert here.live(15) == [1.0] * 15


def test_a_policys_join_wins() -> None:
    here = town(7.0, PolicyRule(application="commuters", join=0.75))
    assert here.live(12) == [0.75] * 12


def test_a_policy_states_the_threshold() -> None:
    """λ = 1/s: 7 s need ζ near 0.42, 0.001 s cannot be kept; what the policy says goes first."""
    asked = town(None, PolicyRule(application="commuters", threshold_s=7.0))
    asked.live(15)
    asked.toggle()
    assert 0.0 < asked.flow.join < 1.0
    hasty = town(7.0, PolicyRule(threshold_s=0.001))
    hasty.live(15)
    hasty.toggle()
    assert hasty.flow.join == 0.0
    hasty.stage.broker.enforce(Enforcer(Policy()))
    assert hasty.flow.threshold_s == 7.0
    asked.stage.broker.enforce(Enforcer(Policy()))
    assert asked.flow.join == 1.0  # nobody asks for less any more, though the client is still away


def test_a_policys_join_goes_before_its_threshold() -> None:
    here = town(None, PolicyRule(join=0.75, threshold_s=0.001))
    assert here.live(12) == [0.75] * 12


def test_a_requirements_loss_bounds_it() -> None:
    strict = town(0.001, requirement=Requirement(response_ms=20))
    assert strict.live(12) == [1.0] * 12
    lenient = town(0.001, requirement=Requirement(loss=0.3))
    lenient.live(12)
    lenient.toggle()
    estimate = lenient.session.connectivity.estimate(lenient.stage.now)  # type: ignore[union-attr]
    away = estimate.off_s / (estimate.on_s + estimate.off_s)
    assert (1 - lenient.flow.join) * away == pytest.approx(0.3)


def test_a_longer_absence_is_looked_at_again() -> None:
    here = town(12.0)
    here.live(15)
    here.toggle()
    first = here.flow.join
    for _ in range(20):
        here.wait(60.0)
    assert here.flow.join < first


def test_a_drain_rate_that_is_not_seen_again_is_forgotten() -> None:
    """Else a ζ of 0 would last for ever: with no backlog there is nothing to measure."""
    here = town(0.001)
    zetas = here.live(200)
    assert 0.0 in zetas
    after = zetas[zetas.index(0.0) :]
    assert 1.0 in after
    assert after.count(0.0) > 2 * after.count(1.0)


@pytest.mark.parametrize("claim", [("threshold-s", "7"), ("max-response-ms", "7000")])
def test_a_client_states_its_threshold_itself(claim: tuple[str, str]) -> None:
    here = Town(Configuration(), client_id="bus-1")
    here.client.claims = [claim]
    here.live(15)
    assert here.flow.membership.threshold_s == 7.0
    here.toggle()
    assert 0.0 < here.flow.join < 1.0


def test_whose_threshold_counts() -> None:
    known = Applications([Application(name="a", clients=("x",), threshold_s=9.0)], [], "default")

    def stated(*claims: tuple[str, str]) -> float | None:
        return known.of("x", None, claims).threshold_s

    assert stated() == 9.0
    assert stated(("max-response-ms", "500")) == 0.5
    assert stated(("threshold-s", "3"), ("max-response-ms", "500")) == 3.0
    assert stated(("threshold-s", "soon")) == 9.0
    assert known.of("y", None, ()).threshold_s is None


# Ends that say nothing about the client, and restarts


def test_what_was_measured_survives_a_restart() -> None:
    here = town()
    here.live(12)
    here.toggle()
    here.stage.commit()
    before, zeta = here.session.connectivity, here.flow.join
    assert before is not None
    assert zeta < 1.0
    here.stage.crash()
    after = here.session.connectivity
    assert after is not None
    assert after.estimate(here.stage.now) == before.estimate(here.stage.now)
    assert here.flow.join == zeta
    here.stage.now += 30.0
    here.stage.broker.timers.run(here.stage.now)  # it is looked at again
    assert here.flow.join != zeta
    assert here.flow.join < 1.0
    here.toggle()
    assert after.off.weight > before.off.weight  # the absence goes on across the restart


def test_a_crash_says_nothing_about_the_client() -> None:
    here = town()
    here.live(12)
    here.stage.commit()
    before = here.session.connectivity
    assert before is not None
    here.stage.crash()
    here.here = False
    here.wait(1.0)
    here.toggle()
    after = here.session.connectivity
    assert after is not None
    assert (after.on.total, after.off.total) == (before.on.total, before.off.total)
    assert after.since > before.since


def test_a_shutdown_says_nothing_about_the_client() -> None:
    here = town()
    here.live(12)
    known = here.session.connectivity
    assert known is not None
    weight = known.on.weight
    here.stage.broker.dismiss(here.session.channel, Reason.SERVER_SHUTTING_DOWN, "", here.stage.now)
    here.stage.turn()
    here.here = False
    here.wait(1.0)
    here.toggle()
    assert known.on.weight == weight


def test_who_is_taken_over_was_never_away() -> None:
    here = town()
    here.live(12)
    known = here.session.connectivity
    assert known is not None
    since, weight = known.since, known.on.weight
    here.wait(5.0)
    here.stage.connect(here.client)
    here.stage.turn()
    assert (known.since, known.parted, known.on.weight) == (since, 0.0, weight)


def test_a_session_that_ends_with_its_connection_has_no_estimator() -> None:
    here = town()
    here.client.expiry = 0
    here.toggle()
    here.toggle()
    assert here.session.connectivity is None


def test_snapshots_show_it() -> None:
    here = town()
    snapshots = Snapshots(here.stage.broker, 1e9, here.stage.now)
    here.live(12)
    here.toggle()
    (flow,) = snapshots.take(here.stage.now).flows
    estimate = here.session.connectivity.estimate(here.stage.now)  # type: ignore[union-attr]
    assert (flow.on_s, flow.off_s, flow.periods) == (
        estimate.on_s,
        estimate.off_s,
        estimate.periods,
    )
    assert flow.join == here.flow.join < 1.0
