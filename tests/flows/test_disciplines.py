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
from headgate.core.link import (
    DRR,
    HORIZON,
    LEVELS,
    NORMAL_LEVEL,
    QUANTUM,
    STRICT_MIN,
    Contender,
    Link,
)
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


def test_what_it_got_beyond_its_share_counts_for_half_a_second() -> None:
    contest = Contest([0, 3], Discipline.STRICT_MIN, shares={3: 0.2})
    contest.offer(3, 4 * SECONDS)
    contest.share(2 * SECONDS)
    contest.offer(0, 2 * SECONDS)
    assert contest.share(0.9 * HORIZON)[3] == pytest.approx(0.0, abs=TOLERANCE)
    assert contest.share(0.1 * HORIZON + 1.0)[3] >= 0.2 - TOLERANCE


def test_who_gets_its_share_anyway_goes_before_nobody() -> None:
    """The highest waits for one message that is under way, as without any guarantee."""
    contest = Contest([0, 3], Discipline.STRICT_MIN, shares={3: 0.3})
    contest.offer(3, 2 * SECONDS, size=1400)
    contest.share(1.0)
    for _ in range(50):  # a quarter of the link, in messages far apart
        contest.clients[0].take(Publish)
        contest.publisher.say(Publish("t/0", bytes(1000)))
        contest.scene.turn()
        contest.scene.advance((1466 + 1075) / contest.link.rate + 0.001)
        assert contest.clients[0].payloads() == [bytes(1000)]
        contest.scene.advance(0.009)


def test_a_level_that_was_silent_saves_for_a_burst_only() -> None:
    contest = Contest([0, 3], Discipline.STRICT_MIN, shares={3: 0.5})
    contest.offer(0, 3 * SECONDS)
    contest.share()
    contest.offer(3, 3 * SECONDS)
    saved = contest.link.burst / contest.link.rate
    assert contest.share(0.5)[3] <= 0.5 + saved / 0.5 + TOLERANCE
    assert contest.share() == about({0: 0.5, 3: 0.5})


@pytest.mark.parametrize("discipline", Discipline)
def test_nothing_starves_for_longer_than_its_share_explains(discipline: Discipline) -> None:
    """Whatever came before, whatever the levels above offer: never silent for a second."""
    shares = {2: 0.1, 3: 0.1} if discipline is Discipline.STRICT_MIN else None
    contest = Contest([0, 1, 2, 3], discipline, shares)
    for level in (3, 2, 1, 0):
        contest.offer(level, 2 * SECONDS, size=1400 if level else 200)
        contest.share(1.0)  # each is alone for a while, and gets far more than its share
    silent = dict.fromkeys(contest.clients, 0.0)
    longest = dict(silent)
    for _ in range(30):
        for level, share in contest.share(0.1).items():
            silent[level] = 0.0 if share else silent[level] + 0.1
            longest[level] = max(longest[level], silent[level])
    starved = [level for level, time in longest.items() if time > 0.9]
    assert starved == (
        [1, 2, 3]
        if discipline is Discipline.STRICT
        else [1]
        if discipline is Discipline.STRICT_MIN
        else []
    )


def test_a_share_is_one_of_what_the_path_takes() -> None:
    """Half of the rate is withheld for a second: the minimum is half of what it was, too."""
    contest = Contest([0, 3], Discipline.STRICT_MIN, shares={3: 0.4})
    for level in (0, 3):
        contest.offer(level, 2 * SECONDS)
    contest.share(1.0)
    got = dict.fromkeys(contest.clients, 0.0)
    for _ in range(50):
        for level, share in contest.share(0.02).items():
            got[level] += share / 50
        contest.link.withhold(0.5 * 0.02 * contest.link.rate)
    assert got == about({0: 0.3, 3: 0.2})


# Flows of one level


def neighbours(sizes: dict[str, int]) -> tuple[Scene, dict[str, Client]]:
    """Subscribers of one level on one link, each with more to get than the link takes."""
    link = LinkSpec(name="link", clients=("app-*",), rate=RATE)
    scene = Scene(Configuration(links=(link,)))
    clients = {name: scene.connect(f"app-{name}") for name in sizes}
    publisher = scene.connect("p")
    for name, size in sizes.items():
        clients[name].subscribe(f"t/{name}")
        count = int(RATE / 8 * SECONDS / size) + 1
        for start in range(0, count, 200):
            some = min(200, count - start)
            publisher.say(*[Publish(f"t/{name}", bytes(size))] * some)
            scene.turn()
    return scene, clients


def bytes_to(client: Client) -> float:
    (flow,) = client.session.flows.values()
    return float(flow.sent_bytes + 66 * flow.delivered)


def test_flows_of_a_level_share_it_by_bytes() -> None:
    scene, clients = neighbours({"small": 20, "middle": 300, "large": 1300})
    before = {name: bytes_to(client) for name, client in clients.items()}
    scene.advance(2.0)
    got = [bytes_to(client) - before[name] for name, client in clients.items()]
    assert max(got) - min(got) <= 2 * (1300 + 100)


def test_who_had_nothing_to_send_goes_before_those_who_do() -> None:
    scene, _ = neighbours({f"busy-{number}": 1300 for number in range(40)})
    sparse = scene.connect("app-sparse")
    sparse.subscribe("t/sparse")
    publisher = scene.connect("q")
    (link,) = scene.broker.links
    scene.advance(1.0)
    for number in range(20):
        publisher.publish("t/sparse", b"%d" % number)
        scene.advance(4 * 1400 / link.rate)  # one in forty would wait ten times as long
        assert sparse.payloads() == [b"%d" % number]
        scene.advance(0.05)


def test_who_had_nothing_to_send_saved_nothing() -> None:
    scene, clients = neighbours({"busy": 1300, "other": 1300})
    late = scene.connect("app-late")
    late.subscribe("t/late")
    publisher = scene.connect("q")
    scene.advance(2.0)
    publisher.say(*[Publish("t/late", bytes(1300))] * 60)
    scene.turn()
    before = bytes_to(clients["busy"])
    scene.advance(0.2)
    assert abs(bytes_to(late) - (bytes_to(clients["busy"]) - before)) <= 2 * 1400


def test_a_flow_that_changes_its_level_takes_no_debt_there() -> None:
    scene, clients = neighbours({"old": 1300, "new": 1300})
    scene.advance(1.0)
    (link,) = scene.broker.links
    (flow,) = clients["new"].session.flows.values()
    level = flow.level(2)
    link.passed[level] = link.furthest[level] = 1e9  # as after a gigabyte
    flow.lanes[2].start = 1e9
    link.sort()
    flow.promote(0)
    link.sort()
    before = bytes_to(clients["new"])
    scene.advance(0.5)
    assert bytes_to(clients["new"]) - before >= 0.9 * 0.5 * link.rate


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
        link.enlist(Contender(), level)
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
    assert min(link.credits) >= -HORIZON * 0.5 * link.rate - 2000
    assert max(link.credits) <= link.burst
