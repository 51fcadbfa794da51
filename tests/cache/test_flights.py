"""Single flight under any interleaving: one leader each, deadlines move forward, everyone ends once."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.cache.flights import FAILURES_MAX, Flights, Join, Lead, ends_alike
from serving.values.vocabulary import NEVER_US, Kind
from tests.seeds import drawn

picks = st.integers(0, 99)
leasts = st.integers(0, 4)
falls = st.sampled_from([Kind.SHED, Kind.SHED, Kind.FAILED, Kind.REJECTED])
A, B = b"a" * 32, b"b" * 32


class Departures(RuleBasedStateMachine):
    """Flights beside plain lists of (member, deadline), leader first, then as they asked."""

    def __init__(self) -> None:
        super().__init__()
        self.flights = Flights()
        self.now_us = 100
        self.asked = 0
        self.ended: list[int] = []
        self.aboard: dict[bytes, list[tuple[int, int]]] = {}
        self.due_us: dict[bytes, int] = {}
        self.failures: dict[bytes, int] = {}

    def pick(self, pick: int) -> bytes:
        return sorted(self.aboard)[pick % len(self.aboard)]

    @rule(key=st.sampled_from([A, B]), slack_us=st.one_of(st.integers(-2, 9), st.none()), least_us=leasts,
          pause_us=st.integers(0, 3))  # fmt: skip
    def ask(self, key: bytes, slack_us: int | None, least_us: int, pause_us: int) -> None:
        self.now_us += pause_us
        self.asked += 1
        deadline_us = NEVER_US if slack_us is None else self.now_us + slack_us
        got = self.flights.ask(key, self.asked, deadline_us, self.now_us, least_us)
        members = self.aboard.setdefault(key, [])
        members.append((self.asked, deadline_us))
        if len(members) == 1:
            self.due_us[key] = deadline_us
            self.failures[key] = 0
            assert got == Lead()
        elif deadline_us >= self.now_us + least_us and deadline_us < self.due_us[key]:
            self.due_us[key] = deadline_us
            assert got == Join(members[0][0], deadline_us)
        else:
            assert got == Join(members[0][0], None)

    @precondition(lambda self: self.aboard)
    @rule(pick=picks)
    def land(self, pick: int) -> None:
        key = self.pick(pick)
        members = [member for member, _ in self.aboard.pop(key)]
        assert self.flights.landed(key) == members
        self.ended += members

    @precondition(lambda self: self.aboard)
    @rule(pick=picks, kind=falls, least_us=leasts, pause_us=st.integers(0, 6))
    def fall(self, pick: int, kind: Kind, least_us: int, pause_us: int) -> None:
        """The leader is shed, expires, fails or is rejected."""
        self.now_us += pause_us
        key = self.pick(pick)
        promoted, ended = self.flights.fell(key, kind, self.now_us, least_us)
        self.failures[key] += kind is Kind.FAILED
        if kind is Kind.REJECTED or self.failures[key] > FAILURES_MAX:
            assert (promoted, ended) == (None, [member for member, _ in self.aboard.pop(key)])
            self.ended += ended
            return
        fallen = self.aboard[key].pop(0)[0]
        assert ended[0] == fallen
        self.succession(key, promoted, ended[1:], least_us)
        self.ended.append(fallen)

    @precondition(lambda self: self.aboard)
    @rule(pick=picks, who=picks, least_us=leasts, pause_us=st.integers(0, 6))
    def leave(self, pick: int, who: int, least_us: int, pause_us: int) -> None:
        """Whoever leaves, those who stay wait on."""
        self.now_us += pause_us
        key = self.pick(pick)
        members = self.aboard[key]
        place = who % len(members)
        if place:
            member = members.pop(place)[0]
            self.flights.leave(member)
            self.ended.append(member)
        elif len(members) == 1:
            assert self.flights.resign(key, self.now_us, least_us) is None
        else:
            self.ended.append(members.pop(0)[0])
            latest_us = max(deadline_us for _, deadline_us in members)
            leader = next(each for each in members if each[1] == latest_us)
            assert self.flights.resign(key, self.now_us, least_us) == leader[0]
            self.aboard[key] = [leader, *(each for each in members if each is not leader)]
            able = [due_us for _, due_us in members if due_us >= self.now_us + least_us]
            self.due_us[key] = min(able, default=latest_us)

    @precondition(lambda self: self.ended)
    @rule(pick=picks)
    def leave_again(self, pick: int) -> None:
        self.flights.leave(self.ended[pick % len(self.ended)])

    def succession(self, key: bytes, promoted: int | None, ended: list[int], least_us: int) -> None:
        """What the leader's going must lead to, said of the list without it."""
        joiners = self.aboard.pop(key)
        able = [each for each in joiners if each[1] >= self.now_us + least_us]
        assert ended == [member for member, deadline_us in joiners if deadline_us < self.now_us + least_us]
        self.ended += ended
        if not able:
            assert promoted is None
            return
        latest_us = max(deadline_us for _, deadline_us in able)
        leader = next(each for each in able if each[1] == latest_us)
        assert promoted == leader[0]
        self.aboard[key] = [leader, *(each for each in able if each is not leader)]
        self.due_us[key] = min(deadline_us for _, deadline_us in able)

    @invariant()
    def no_flight_is_without_its_leader(self) -> None:
        assert len(self.flights) == len(self.aboard)
        for key in (A, B):
            members = self.aboard.get(key)
            assert self.flights.leader(key) == (members[0][0] if members else None)
            if members:
                assert self.flights.deadline_us(key) == self.due_us[key]

    @invariant()
    def everyone_waits_or_has_ended_once(self) -> None:
        waiting = [member for members in self.aboard.values() for member, _ in members]
        assert sorted(waiting + self.ended) == list(range(1, self.asked + 1))

    def teardown(self) -> None:
        for key in list(self.aboard):
            self.land(0)
            assert self.flights.leader(key) is None or key in self.aboard
        assert len(self.flights) == 0
        assert self.flights._keys == {}, "a member that ended is remembered"


Departures.TestCase.settings = settings(max_examples=drawn(200), stateful_step_count=40)
TestDepartures = pytest.mark.slow(Departures.TestCase)


def test_a_hundred_who_ask_alike_make_one_flight() -> None:
    flights = Flights()
    assert flights.ask(A, 1, 50) == Lead()
    assert [flights.ask(A, member, 50) for member in range(2, 101)] == [Join(1, None)] * 99
    assert flights.landed(A) == list(range(1, 101))


def test_a_hopeless_joiner_does_not_hurry_the_leader_into_being_given_up() -> None:
    flights = Flights()
    flights.ask(A, 1, 100)
    assert flights.ask(A, 2, 40, now_us=20, least_us=30) == Join(1, None)
    assert flights.ask(A, 3, 60, now_us=20, least_us=30) == Join(1, 60)


def test_when_the_leader_falls_the_member_with_most_time_tries_again_and_the_hopeless_are_told() -> None:
    flights = Flights()
    for member, deadline_us in ((1, 30), (2, 80), (3, 90), (4, 35), (5, 90)):
        flights.ask(A, member, deadline_us)
    assert flights.fell(A, Kind.SHED, now_us=30, least_us=10) == (3, [1, 4])
    assert flights.deadline_us(A) == 80
    assert flights.fell(A, Kind.SHED, now_us=85, least_us=10) == (None, [3, 2, 5])
    assert flights.ask(A, 6, 200) == Lead()


def test_when_the_leader_leaves_nobody_who_waits_ends_however_late() -> None:
    flights = Flights()
    for member, deadline_us in ((1, 90), (2, 10), (3, 60)):
        flights.ask(A, member, deadline_us)
    with pytest.raises(ValueError, match="member 1 leads: others may wait for its request"):
        flights.leave(1)
    assert flights.resign(A, now_us=30, least_us=10) == 3
    assert flights.deadline_us(A) == 60, "what is past hurries nobody"
    assert flights.resign(A, now_us=70, least_us=10) == 2
    assert flights.resign(A, now_us=80, least_us=10) is None
    assert flights.landed(A) == [2]


def test_who_waits_already_cannot_ask_again() -> None:
    flights = Flights()
    flights.ask(A, 1, 100)
    with pytest.raises(ValueError, match="member 1 waits already"):
        flights.ask(B, 1, 100)


def test_what_is_not_under_way_neither_lands_nor_falls() -> None:
    flights = Flights()
    with pytest.raises(KeyError):
        flights.landed(A)
    with pytest.raises(KeyError):
        flights.fell(A, Kind.SHED, 0, 0)


def test_a_flight_is_over_for_all_with_the_failure_after_the_last_that_is_forgiven() -> None:
    flights = Flights()
    for member in range(1, FAILURES_MAX + 4):
        flights.ask(A, member, 100)
    for failures in range(1, FAILURES_MAX + 1):
        assert flights.fell(A, Kind.FAILED, 0, 10) == (failures + 1, [failures])
    assert flights.fell(A, Kind.SHED, 0, 10)[0] is not None, "what is shed is no failure"
    assert flights.fell(A, Kind.FAILED, 0, 10) == (None, [FAILURES_MAX + 2, FAILURES_MAX + 3])
    flights.ask(A, 100, 100)
    flights.ask(A, 101, 100)
    assert flights.fell(A, Kind.FAILED, 0, 10) == (101, [100]), "a new flight counts anew"


def test_a_leader_that_leaves_takes_no_failure_with_it() -> None:
    flights = Flights()
    for member in (1, 2, 3, 4):
        flights.ask(A, member, 100)
    flights.fell(A, Kind.FAILED, 0, 10)
    assert flights.resign(A, 0, 10) == 3
    assert flights.fell(A, Kind.FAILED, 0, 10) == (None, [3, 4])


def test_followers_get_the_outcome_of_a_leader_that_was_rejected_or_failed_only() -> None:
    assert [kind for kind in Kind if ends_alike(kind)] == [Kind.REJECTED, Kind.FAILED]


def test_leaders_expire_last_and_only_if_they_still_lead() -> None:
    flights = Flights()
    for key, member in ((A, 1), (A, 2), (B, 3), (B, 4)):
        flights.ask(key, member, 100)
    assert list(flights.expiring([3, 1, 2])) == [(2, False), (3, True), (1, True)]
    order = flights.expiring([1, 3, 4])
    assert next(order) == (4, False)
    flights.landed(A)  # as what the follower hears ends another flight
    assert list(order) == [(3, True)]


def test_a_follower_that_leads_by_the_time_of_its_turn_expires_as_a_leader() -> None:
    flights = Flights()
    for member in (1, 2, 3):
        flights.ask(A, member, 100)
    order = flights.expiring([2, 3])
    assert next(order) == (2, False)
    flights.leave(2)
    assert flights.resign(A, 0, 0) == 3
    assert list(order) == [(3, True)]
