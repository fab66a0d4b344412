"""Which messages wait for a client that is away: the join probability ζ of ON/OFF.

A subscriber states the mean response that its messages are to have (its threshold). What arrives
while it is away waits long; ζ is the largest fraction of it that may be queued so that the mean
over all that is delivered, ON and OFF, stays within the threshold (ON/OFF §II-C). ζ is computed
when the client leaves and, while it is away, again after each mean absence; as long as too little
is known of the client it is 1. A policy's own `join` wins, a requirement's `loss` bounds it
(decision 0006), and a client that is connected loses nothing by this rule.

The queue is the client's: all its flows wait for the same connection. A flow's ζ is found as if
all flows with a threshold used it, while the others keep theirs.

The closed form is repeated here in plain Python, because the broker runs without numpy;
`headgate.model.onoff` has it with distributions, and the tests hold one against the other.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from headgate.core.connectivity import Connectivity, Estimate
from headgate.core.journal import StoredSession
from headgate.core.session import Session

if TYPE_CHECKING:
    from headgate.core.broker import Broker
    from headgate.core.flows import Flow

STEPS = 24
"""Halvings: ζ is then exact to 1e-7, far more than any estimate is worth."""

SOONEST = 1.0
"""Seconds between two looks at one absence, at least."""


class Queue(NamedTuple):
    """The ON/OFF queue of one client (ON/OFF Eq. 2), apart from the ζ that is sought."""

    service_rate: float
    on_s: float
    off_s: float
    free_rate: float
    """Arrivals per second of the flows whose ζ is sought."""
    fixed_rate: float = 0.0
    """Arrivals per second of the other flows."""
    fixed_joins: float = 0.0
    """What of these joins while the client is away, per second."""


def mean_response(queue: Queue, join: float) -> float:
    """Mean response of the messages that join with `join` while the client is away.

    Steady state by ON/OFF Eqs. 19 and 22: P(n) = P0 Rⁿ, so that the mean numbers seen OFF and ON
    are P0 R (I - R)⁻². A message that finds n others waits for n + 1 services, each prolonged by
    the absences that fall into it, and for the end of the absence in which it came. If all flows
    have the same ζ this is Eq. 28, the mean number of Eq. 25 over the throughput.
    """
    mu, on_s, off_s = queue.service_rate, queue.on_s, queue.off_s
    lam = queue.free_rate + queue.fixed_rate
    zeta = (queue.free_rate * join + queue.fixed_joins) / lam if lam else join
    p = lam / mu
    if p * (1 + zeta * off_s / on_s) >= 1:  # the condition printed in §IV-A is wrong
        return inf
    theta_on, theta_off = 1 / on_s, 1 / off_s
    rise = lam * zeta + theta_off
    r00, r01 = p * zeta * (mu + theta_on) / rise, p * zeta
    r10, r11 = p * theta_on / rise, p
    empty_on = (theta_off * (1 - p) - p * zeta * theta_on) / (theta_on + theta_off)
    empty_off = theta_on / rise * empty_on
    # (x, y) → (x, y) (I - R)⁻¹, twice.
    determinant = (1 - r00) * (1 - r11) - r01 * r10
    off, on = empty_off * r00 + empty_on * r10, empty_off * r01 + empty_on * r11
    for _ in range(2):
        off, on = (
            (off * (1 - r11) + on * r10) / determinant,
            (off * r01 + on * (1 - r00)) / determinant,
        )
    is_on, is_off = on_s / (on_s + off_s), off_s / (on_s + off_s)
    service = (1 + off_s / on_s) / mu
    while_on = service * (is_on + on)
    while_off = service * (is_off + off) + off_s * is_off
    return (while_on + join * while_off) / (is_on + join * is_off)


def largest_join(queue: Queue, threshold_s: float, least: float = 0.0) -> float:
    """The largest ζ that keeps the threshold; `least` if even that breaks it."""
    if mean_response(queue, 1.0) <= threshold_s:
        return 1.0
    low, high = least, 1.0
    if mean_response(queue, low) > threshold_s:
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2
        if mean_response(queue, middle) <= threshold_s:
            low = middle
        else:
            high = middle
    return low


def least_join(loss: float, drop: float, away: float) -> float:
    """The ζ below which a flow with this drop rate loses more than it tolerates."""
    spare = 1.0 - (1.0 - loss) / (1.0 - drop) if drop < 1.0 else 0.0
    return min(1.0, max(0.0, 1.0 - spare / away)) if away > 0.0 else 0.0


# In the broker


def arrive(broker: Broker, session: Session, now: float) -> None:
    """A client connected."""
    if not session.persistent:
        forget(broker, session)
        return
    connectivity = session.connectivity
    if connectivity is None:
        connectivity = session.connectivity = Connectivity()
    if connectivity.alarm is not None:
        broker.timers.cancel(connectivity.alarm)
        connectivity.alarm = None
    connectivity.come(session.flows.values(), now)


def leave(broker: Broker, session: Session, now: float) -> None:
    """The client of a persistent session is gone."""
    connectivity = session.connectivity
    if connectivity is None:  # its expiry came with DISCONNECT
        connectivity = session.connectivity = Connectivity()
    connectivity.part(session, now)
    for flow in session.flows.values():
        if flow.threshold_s is None:
            assign(flow, 1.0)
    look(broker, session, now)


def forget(broker: Broker, session: Session) -> None:
    """The session ends."""
    if session.connectivity is not None and session.connectivity.alarm is not None:
        broker.timers.cancel(session.connectivity.alarm)
    session.connectivity = None


def look(broker: Broker, session: Session, now: float) -> None:
    """Compute ζ of a client that is away, and come back to it if it stays away."""
    connectivity = session.connectivity
    if connectivity is None:
        return
    connectivity.alarm = None
    wanting = [flow for flow in session.flows.values() if flow.threshold_s is not None]
    if session.channel is not None or not wanting:
        return
    rates = {
        flow: connectivity.watch(flow, now).per_second(flow.offered, now) * (1.0 - flow.drop_rate)
        for flow in session.flows.values()
    }
    estimate = connectivity.estimate(now)
    if estimate.known:
        settle(rates, estimate)
    else:
        for flow in wanting:
            assign(flow, 1.0)
    look_again(broker, session, now)


def look_again(broker: Broker, session: Session, now: float) -> None:
    """Set the clock for the next look at an absence, if any of its flows has a threshold."""
    connectivity = session.connectivity
    if connectivity is None:
        return
    if all(flow.threshold_s is None for flow in session.flows.values()):
        return
    due = now + max(connectivity.estimate(now).off_s, SOONEST)
    connectivity.alarm = broker.schedule(due, lambda at: look(broker, session, at))


def restore(session: Session, stored: StoredSession, now: float) -> None:
    """Take up what an earlier process measured and concluded."""
    assert stored.connectivity is not None
    session.connectivity = Connectivity.restored(stored.connectivity, now)
    for arrivals in stored.connectivity.arrivals:
        flow = session.flows.get(arrivals.filter)
        if flow is not None:
            assign(flow, arrivals.join)


def settle(rates: dict[Flow, float], estimate: Estimate) -> None:
    """Give each flow that has a threshold, and no policy of its own, its ζ."""
    free = fixed = joins = 0.0
    for flow, rate in rates.items():
        if flow.decided or flow.threshold_s is None:
            fixed += rate
            joins += rate * (flow.join if flow.qos else 0.0)  # QoS 0 never waits for its client
        else:
            free += rate
    queue = Queue(estimate.drain, estimate.on_s, estimate.off_s, free, fixed, joins)
    away = estimate.off_s / (estimate.on_s + estimate.off_s)
    found: dict[tuple[float, float], float] = {}
    for flow in rates:
        if flow.decided or flow.threshold_s is None:
            continue
        least = least_join(flow.membership.loss, flow.drop_rate, away)
        asked = (flow.threshold_s, least)
        if asked not in found:
            found[asked] = largest_join(queue, *asked)
        assign(flow, found[asked])


def assign(flow: Flow, join: float) -> None:
    """Let what was computed hold, unless the policy says otherwise."""
    flow.learned = join
    if not flow.decided:
        flow.join = join
