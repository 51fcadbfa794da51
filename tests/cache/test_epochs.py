"""After an invalidation no answer from before it has a name that anybody asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.cache.epochs import EPOCH_MAX, Epochs, read_epoch

scopes = st.sampled_from(["", "a", "b"])
actions = st.lists(
    st.tuples(st.sampled_from(["here", "there", "sync", "lose"]), scopes, st.integers(1, 20)), max_size=40
)


@given(actions)
def test_a_name_from_before_an_invalidation_never_comes_back(events: list[tuple[str, str, int]]) -> None:
    """Two gateways and a store that forgets; clocks of any kind."""
    here, there, store = Epochs("ab"), Epochs("ab"), dict.fromkeys(("", "a", "b"), 0)
    dead: set[tuple[str, bytes]] = set()
    for what, scope, unix_us in events:
        if what == "lose":
            store[scope] = 0
        elif what == "sync":
            for gateway in (here, there, here):
                sync(gateway, store)
            asked = {(model, each.name(model)) for model in "ab" for each in (here, there)}
            assert not asked & dead
            assert len(asked) == 2, "both ask alike"
        else:
            gateway = here if what == "here" else there
            dead |= {(model, gateway.name(model)) for model in "ab" if scope in ("", model)}
            gateway.invalidate(scope, unix_us)
            assert scope in gateway.pending


def sync(gateway: Epochs, store: dict[str, int]) -> None:
    for scope in gateway.scopes:
        store[scope] = max(store[scope] + (scope in gateway.pending), gateway.known(scope))
        gateway.learn(scope, store[scope])
    gateway.pending.clear()


def test_an_invalidation_of_one_model_changes_no_other_and_one_of_all_changes_all() -> None:
    epochs = Epochs("ab")
    a, b = epochs.name("a"), epochs.name("b")
    epochs.invalidate("a", 5)
    assert epochs.name("a") != a
    assert epochs.name("b") == b
    epochs.invalidate("", 5)
    assert epochs.name("b") != b
    assert epochs.pending == {"", "a"}


def test_an_invalidation_within_the_same_microsecond_is_one_too() -> None:
    epochs = Epochs("a")
    epochs.invalidate("a", 5)
    name = epochs.name("a")
    epochs.invalidate("a", 5)
    assert epochs.name("a") != name
    assert not epochs.learn("a", 6)
    assert epochs.learn("a", 7)


def test_a_model_that_is_not_served_changes_nothing() -> None:
    epochs = Epochs("a")
    epochs.invalidate("c", 5)
    assert epochs.pending == set()


@pytest.mark.slow
@given(st.none() | st.binary(max_size=30) | st.integers() | st.text(max_size=3))
def test_what_is_no_epoch_counts_as_none(told: object) -> None:
    assert 0 <= read_epoch(told) < EPOCH_MAX


def test_an_epoch_is_read_as_it_is_written() -> None:
    assert read_epoch(b"1800000000000000") == 1_800_000_000_000_000
    assert [read_epoch(each) for each in (None, b"", b"-1", b"x", b"9" * 16, b"9" * 400)] == 6 * [0]
