"""Idle connections make room for others: of the address that has most, and never one with a request."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.limits.crowding import BUSY, leavers

GRACE_S = 0.5
CONNECTIONS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.one_of(st.just(BUSY), st.floats(0, 10))), max_size=20
)
COMER = st.sampled_from("abcde")


@given(CONNECTIONS, COMER, st.integers(0, 8))
def test_none_goes_that_is_busy_or_was_just_used(
    connections: list[tuple[str, float]], comer: str, count: int
) -> None:
    found = leavers(connections, comer, GRACE_S, count)
    assert len(found) == len({*found}) <= count
    assert all(connections[place][1] >= GRACE_S for place in found)


@given(CONNECTIONS, COMER)
def test_each_time_the_address_with_most_of_those_that_can_lose_the_longest_idle(
    connections: list[tuple[str, float]], comer: str
) -> None:
    left = dict(enumerate(connections))
    for place in leavers(connections, comer, GRACE_S, 20):
        held = Counter([comer, *(address for address, _ in left.values())])
        idle = [(address, idle_s) for address, idle_s in left.values() if idle_s >= GRACE_S]
        address, idle_s = left.pop(place)
        assert held[address] == max(held[each] for each, _ in idle)
        assert idle_s == max(each_s for each, each_s in idle if each == address)


@given(CONNECTIONS, COMER)
def test_an_address_with_less_than_its_share_loses_none(
    connections: list[tuple[str, float]], comer: str
) -> None:
    held = Counter([comer, *(address for address, _ in connections)])
    addresses = len(held)
    for place in leavers(connections, comer, GRACE_S, 20):
        address = connections[place][0]
        assert held[address] >= held.total() / addresses
        held[address] -= 1


@given(CONNECTIONS, COMER)
def test_somebody_goes_where_the_address_with_most_has_an_idle_one(
    connections: list[tuple[str, float]], comer: str
) -> None:
    held = Counter([comer, *(address for address, _ in connections)])
    idle = {address for address, idle_s in connections if idle_s >= GRACE_S}
    if any(held[address] == max(held.values()) for address in idle):
        assert leavers(connections, comer, GRACE_S, 1)


def test_behind_one_address_all_are_equal_and_the_longest_idle_goes() -> None:
    connections = [("a", 3.0), ("a", BUSY), ("a", 9.0), ("a", 0.1)]
    assert leavers(connections, "a", GRACE_S, 4) == [2, 0]
