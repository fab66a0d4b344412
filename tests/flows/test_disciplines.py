"""How a link is shared: strictly, with guaranteed shares, by weight.

All levels have more to send than the link takes; then bytes are counted, with the headers that they
cost, as the link counts them. `TOLERANCE` is of the link's capacity in the time measured.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config import Configuration
from headgate.contract import Discipline, LinkSpec, PolicyRule
from headgate.core.link import DRR, LEVELS, NORMAL_LEVEL, QUANTUM, STRICT_MIN, Link
from headgate.wire.packets import Publish

from .scene import Client, Scene, claimed

RATE = 2_000_000
SECONDS = 4.0
TOLERANCE = 0.02


class Contest:
    """Clients, one for each level given, that share a link under a discipline."""

    def __init__(
        self,
        levels: list[int],
        discipline: Discipline,
        shares: dict[int, float] | None = None,
        weights: dict[int, float] | None = None,
    ) -> None:
        rules = tuple(PolicyRule(topic=f"t/{level}", priority=level) for level in range(16))
        link = LinkSpec(
            name="link",
            clients=("app-*",),
            rate=RATE,
            discipline=discipline,
            shares=shares or {},
            weights=weights or {},
        )
        self.scene = Scene(Configuration(policy=rules, links=(link,)))
        self.clients = {level: self._client(level) for level in levels}
        self.publisher = self.scene.connect("p")

    def _client(self, level: int) -> Client:
        client = self.scene.connect(f"app-{level}")
        client.subscribe(f"t/{level}")
        return client

    @property
    def link(self) -> Link:
        (link,) = self.scene.broker.links
        return link

    def offer(self, level: int, seconds: float, size: int = 800) -> None:
        """Give a level as much as the whole link takes in some seconds."""
        count = int(RATE / 8 * seconds / size) + 1
        for start in range(0, count, 200):
            some = min(200, count - start)
            self.publisher.say(*[Publish(f"t/{level}", bytes(size))] * some)
            self.scene.turn()

    def share(self, seconds: float = SECONDS) -> dict[int, float]:
        """The fraction of the link's capacity that each level gets from now on."""
        before = {level: self._cost(client) for level, client in self.clients.items()}
        self.scene.advance(seconds)
        capacity = self.link.rate * seconds
        return {
            level: (self._cost(client) - before[level]) / capacity
            for level, client in self.clients.items()
        }

    def _cost(self, client: Client) -> float:
        """Bytes sent to a client of this level, with headers: packets are shorter than segments."""
        (flow,) = client.session.flows.values()
        return float(flow.sent_bytes + 66 * flow.delivered)


def about(expected: dict[int, float]) -> dict[int, object]:
    return {level: pytest.approx(share, abs=TOLERANCE) for level, share in expected.items()}


def test_strict_gives_all_to_the_highest() -> None:
    contest = Contest([0, 3, 9], Discipline.STRICT)
    for level in (9, 3, 0):
        contest.offer(level, 2 * SECONDS)
    assert contest.share() == about({0: 1.0, 3: 0.0, 9: 0.0})


def test_what_the_highest_leaves_goes_to_the_next() -> None:
    contest = Contest([0, 3, 9], Discipline.STRICT)
    contest.offer(0, SECONDS / 2)
    contest.offer(3, 2 * SECONDS)
    contest.offer(9, 2 * SECONDS)
    half = contest.share()
    assert half[9] == 0.0
    assert half[0] + half[3] == pytest.approx(1.0, abs=TOLERANCE)
    assert 0.3 < half[0] < 0.7


def test_guaranteed_shares_are_kept_and_the_rest_goes_to_the_highest() -> None:
    contest = Contest([0, 3, 4, 9], Discipline.STRICT_MIN, shares={3: 0.2, 4: 0.1})
    for level in (0, 3, 4, 9):
        contest.offer(level, 2 * SECONDS)
    contest.share(0.5)  # what each level saved before there was a contest
    assert contest.share() == about({0: 0.7, 3: 0.2, 4: 0.1, 9: 0.0})


def test_a_share_for_the_lowest_means_that_nothing_starves() -> None:
    levels = list(range(10))
    contest = Contest(levels, Discipline.STRICT_MIN, shares=dict.fromkeys(levels[1:], 0.05))
    for level in levels:
        contest.offer(level, 2 * SECONDS)
    contest.share(0.5)  # what each level saved before there was a contest
    shares = contest.share()
    assert shares == about({0: 0.55, **dict.fromkeys(levels[1:], 0.05)})
    assert all(share > 0.04 for share in shares.values())


def test_an_unused_share_is_not_lost() -> None:
    contest = Contest([0, 3], Discipline.STRICT_MIN, shares={3: 0.5})
    contest.offer(0, 2 * SECONDS)
    assert contest.share() == about({0: 1.0, 3: 0.0})


def test_a_level_gets_more_than_its_share_if_nobody_else_wants_it() -> None:
    contest = Contest([0, 3], Discipline.STRICT_MIN, shares={3: 0.2})
    contest.offer(3, 2 * SECONDS)
    assert contest.share() == about({0: 0.0, 3: 1.0})


def test_what_it_got_beyond_its_share_is_not_held_against_it() -> None:
    contest = Contest([0, 3], Discipline.STRICT_MIN, shares={3: 0.2})
    contest.offer(3, 4 * SECONDS)
    contest.share(2 * SECONDS)
    contest.offer(0, 2 * SECONDS)
    shares = contest.share(0.5)
    assert shares[3] >= 0.2 - TOLERANCE


def test_a_level_that_was_silent_saves_for_a_tenth_of_a_second_only() -> None:
    contest = Contest([0, 3], Discipline.STRICT_MIN, shares={3: 0.5})
    contest.offer(0, 3 * SECONDS)
    contest.share()
    contest.offer(3, 3 * SECONDS)
    saved = 0.5 * 0.1 + contest.link.burst / contest.link.rate
    assert contest.share(0.5)[3] <= 0.5 + saved / 0.5 + TOLERANCE
    assert contest.share() == about({0: 0.5, 3: 0.5})


@pytest.mark.parametrize("weights", [{0: 1.0, 5: 1.0, 9: 1.0}, {0: 8.0, 5: 2.0}, {0: 0.3, 9: 0.1}])
def test_by_weight(weights: dict[int, float]) -> None:
    levels = [0, 5, 9]
    contest = Contest(levels, Discipline.DRR, weights=weights)
    for level in levels:
        contest.offer(level, 2 * SECONDS)
    whole = {level: weights.get(level, 1.0) for level in levels}
    total = sum(whole.values())
    assert contest.share() == about({level: weight / total for level, weight in whole.items()})


def test_by_weight_whatever_the_sizes() -> None:
    contest = Contest([1, 2], Discipline.DRR, weights={1: 3.0, 2: 1.0})
    contest.offer(1, 2 * SECONDS, size=100)
    contest.offer(2, 2 * SECONDS, size=1300)
    assert contest.share() == about({1: 0.75, 2: 0.25})


def test_who_has_nothing_to_send_saves_nothing_by_weight() -> None:
    contest = Contest([1, 2], Discipline.DRR)
    contest.offer(1, 3 * SECONDS)
    assert contest.share() == about({1: 1.0, 2: 0.0})
    contest.offer(2, 3 * SECONDS)
    assert contest.share(1.0) == about({1: 0.5, 2: 0.5})


def test_what_was_sent_alone_is_no_debt_by_weight() -> None:
    contest = Contest([1, 2], Discipline.DRR)
    for _ in range(200):  # uncongested: each is sent as it comes
        contest.offer(1, 0.001)
        contest.scene.advance(0.02)
    contest.offer(1, 2 * SECONDS)
    contest.offer(2, 2 * SECONDS)
    assert contest.share(1.0) == about({1: 0.5, 2: 0.5})


@pytest.mark.parametrize("discipline", Discipline)
def test_urgent_and_critical_go_before_all_of_these(discipline: Discipline) -> None:
    shares = {9: 1.0} if discipline is Discipline.STRICT_MIN else None
    contest = Contest([0, 9], discipline, shares)
    for level in (0, 9):
        contest.offer(level, SECONDS)
    contest.scene.advance(0.1)
    for client in contest.clients.values():
        client.take(Publish)
    for rank in ("urgent", "critical"):
        contest.publisher.publish("t/9", rank.encode(), properties=claimed(rank))
    contest.scene.advance(0.02)
    assert contest.clients[9].payloads()[:2] == [b"urgent", b"critical"]


# The choice itself, without a broker


def loaded(discipline: int, weights: list[float]) -> Link:
    """A link on which every level has something ready, for ever."""
    link = Link("link")
    link.pace(1e6)
    link.discipline = discipline
    for level, weight in enumerate(weights, NORMAL_LEVEL):
        link.weights[level] = weight
        link.enlist(object(), level)
    return link


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=16),
    st.lists(st.integers(1, 20_000), min_size=16, max_size=16),
)
def test_round_robin_is_fair_within_a_quantum_and_a_packet(
    weights: list[float], sizes: list[int]
) -> None:
    """Shreedhar and Varghese's bound: no level is ahead of another by more than this, ever."""
    link = loaded(DRR, weights)
    sent = [0.0] * LEVELS
    for _ in range(2000):
        level = link.next_level()
        before = link.sent
        link.charge(level, sizes[level - NORMAL_LEVEL])
        sent[level] += link.sent - before
    levels = range(NORMAL_LEVEL, NORMAL_LEVEL + len(weights))
    rounds = [sent[level] / (QUANTUM * link.weights[level]) for level in levels]
    for one in levels:
        for other in levels:
            slack = 1.0 + sum(
                (sizes[level - NORMAL_LEVEL] * 1.1 + 132) / (QUANTUM * link.weights[level])
                for level in (one, other)
            )
            assert rounds[one - NORMAL_LEVEL] - rounds[other - NORMAL_LEVEL] <= slack


def test_a_huge_packet_at_a_tiny_weight_costs_no_time() -> None:
    link = loaded(DRR, [1e-6, 1e-6, 1e-6])
    for _ in range(50):
        link.charge(link.next_level(), 256 * 1024 * 1024)
    # A round gives 0.0015 bytes: taken one by one, this would not end today.


def test_credits_cannot_run_away() -> None:
    link = loaded(STRICT_MIN, [1.0, 1.0])
    link.shares[NORMAL_LEVEL + 1] = 0.5
    now = 1000.0
    for _ in range(10_000):
        now += 0.001
        link.refill(now)
        link.charge(link.next_level(), 1000)
    assert min(link.credits) >= -2000
    assert max(link.credits) <= 0.5 * link.rate * 0.1 + link.burst
