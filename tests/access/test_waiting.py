"""The order in which logins are checked: who waits behind whom, and who has to leave."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headgate.access.waiting import Applicant, Line, Rank, Reputation, neighbourhood


def drain(line: Line[str]) -> list[str]:
    taken = []
    while (item := line.take()) is not None:
        taken.append(item)
    return taken


class TestTurns:
    def test_addresses_take_turns_whatever_each_of_them_sends(self) -> None:
        line: Line[str] = Line(100, 1000)
        for number in range(50):
            assert line.add(Applicant("attacker", f"user{number}"), f"a{number}") is None
        line.add(Applicant("home", "anna"), "anna")
        line.add(Applicant("work", "bob"), "bob")
        assert drain(line)[:4] == ["a0", "anna", "bob", "a1"]

    def test_names_at_one_address_take_turns(self) -> None:
        line: Line[str] = Line(100, 1000)
        for number in range(50):
            line.add(Applicant("nat", "root"), f"guess{number}")
        line.add(Applicant("nat", "anna"), "anna")
        assert drain(line)[:3] == ["guess0", "anna", "guess1"]

    def test_one_name_at_one_address_is_served_as_it_came(self) -> None:
        line: Line[str] = Line(100, 1000)
        for number in range(5):
            line.add(Applicant("", "anna"), str(number))
        assert drain(line) == ["0", "1", "2", "3", "4"]

    def test_better_ranks_go_first_but_no_rank_waits_for_ever(self) -> None:
        line: Line[str] = Line(1000, 10_000)
        for number in range(100):
            for rank in Rank:
                line.add(Applicant(f"{rank.name}{number}", "u", rank), rank.name)
        shares = Counter(drain(line)[:100])
        assert shares["KNOWN"] > shares["NEW"]
        assert shares["NEW"] >= 25
        assert shares["DOUBTED"] >= 25 - 1
        assert len(line) == 0


class TestRoom:
    def test_an_address_that_is_full_turns_its_own_newcomers_away(self) -> None:
        line: Line[str] = Line(3, 100)
        for number in range(3):
            assert line.add(Applicant("a", f"u{number}"), f"a{number}") is None
        assert line.add(Applicant("a", "another"), "late") == "late"
        assert line.add(Applicant("b", "another"), "b") is None
        assert len(line) == 4

    def test_at_an_address_that_is_full_the_name_with_most_gives_way(self) -> None:
        line: Line[str] = Line(3, 100)
        for number in range(3):
            line.add(Applicant("nat", "root"), f"guess{number}")
        assert line.add(Applicant("nat", "anna"), "anna") == "guess2"
        assert line.add(Applicant("nat", "root"), "guess3") == "guess3"
        assert sorted(drain(line)) == ["anna", "guess0", "guess1"]

    def test_a_full_line_takes_from_the_address_with_most_in_the_worst_rank(self) -> None:
        line: Line[str] = Line(10, 4)
        line.add(Applicant("one", "u", Rank.DOUBTED), "one")
        line.add(Applicant("two", "u", Rank.DOUBTED), "two")
        line.add(Applicant("two", "v", Rank.DOUBTED), "three")
        line.add(Applicant("new", "u"), "new")
        assert line.add(Applicant("other", "u", Rank.DOUBTED), "x") in ("two", "three")
        assert line.add(Applicant("last", "u", Rank.DOUBTED), "y") == "y"
        assert line.add(Applicant("fresh", "u"), "z") in ("one", "two", "three", "x")
        assert len(line) == 4

    def test_a_worse_rank_never_displaces_a_better_one(self) -> None:
        line: Line[str] = Line(10, 2)
        line.add(Applicant("a", "u", Rank.KNOWN), "a")
        line.add(Applicant("a", "v", Rank.KNOWN), "b")
        assert line.add(Applicant("b", "u"), "late") == "late"

    @pytest.mark.parametrize("seed", range(20))
    def test_whoever_was_added_is_served_or_turned_away_once(self, seed: int) -> None:
        rng = Random(seed)
        line: Line[int] = Line(rng.randint(1, 6), rng.randint(1, 20))
        gone: list[int] = []
        for number in range(500):
            if rng.random() < 0.7:
                who = Applicant(
                    f"a{rng.randrange(5)}", f"u{rng.randrange(4)}", rng.choice(list(Rank))
                )
                leaves = line.add(who, number)
            else:
                gone.append(number)  # no login: only counted
                leaves = line.take()
            if leaves is not None:
                gone.append(leaves)
            assert len(line) + len(gone) == number + 1
        while (item := line.take()) is not None:
            gone.append(item)
        assert sorted(gone) == list(range(500))


class TestReputation:
    def test_an_address_is_doubted_for_a_while_after_a_wrong_password(self) -> None:
        reputation = Reputation()
        first = reputation.applicant("1.2.3.4", "root", 0.0)
        assert first.rank is Rank.NEW
        reputation.was_wrong(first, 0.0)
        assert reputation.applicant("1.2.3.4", "anna", 59.0).rank is Rank.DOUBTED
        assert reputation.applicant("1.2.3.5", "anna", 59.0).rank is Rank.NEW
        assert reputation.applicant("1.2.3.4", "anna", 60.0).rank is Rank.NEW

    def test_who_was_right_here_does_not_suffer_from_its_neighbours(self) -> None:
        reputation = Reputation()
        anna = reputation.applicant("nat", "anna", 0.0)
        reputation.was_right(anna)
        reputation.was_wrong(reputation.applicant("nat", "root", 1.0), 1.0)
        assert reputation.applicant("nat", "anna", 2.0).rank is Rank.KNOWN
        assert reputation.applicant("elsewhere", "anna", 2.0).rank is Rank.NEW
        reputation.was_wrong(anna, 3.0)
        assert reputation.applicant("nat", "anna", 4.0).rank is Rank.DOUBTED

    def test_it_is_bounded(self) -> None:
        reputation = Reputation()
        for number in range(10_001):
            who = reputation.applicant(f"a{number}", "u", 0.0)
            reputation.was_wrong(who, 0.0)
            reputation.was_right(who)
        assert reputation.applicant("a0", "u", 0.0).rank is Rank.NEW
        assert reputation.applicant("a1", "u", 0.0).rank is Rank.KNOWN
        assert reputation.applicant("a1", "v", 0.0).rank is Rank.DOUBTED

    @pytest.mark.parametrize(
        ("address", "counts_as"),
        [
            ("", ""),
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("fe80::1%eth0", "fe80::/64"),
        ],
    )
    def test_a_network_that_one_house_has_counts_as_one_address(
        self, address: str, counts_as: str
    ) -> None:
        assert neighbourhood(address) == counts_as
