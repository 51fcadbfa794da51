"""A key is found by its id and counts only whole, and its caller may do what its entry says."""

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.security.auth.guard import KeyGuard
from router.security.auth.identity import Identity, may_use, own_tenant
from router.security.auth.issuing import make_key
from router.security.auth.keys import KEY_CHARS, KeyFile, hash_of
from router.security.auth.rights import CALLERS, CLIENTS, WATCHERS
from router.settings.keys import KeySpec
from router.tensors.parts.errors import RequestError
from serving.values.vocabulary import FORBIDDEN, UNAUTHENTICATED
from tests.router.security.auth.callers import NOW_S, Callers

KEY = make_key()
OTHER = make_key()
SPECS = [
    KeySpec("a", KEY.id, KEY.hash, "gold", ("infer",)),
    KeySpec("b", OTHER.id, OTHER.hash, "x", ("read",)),
]


def refused(guard: KeyGuard, api_key: str | None = None, authorization: str | None = None) -> str:
    """The sentence; and that it repeats no key."""
    key, field = (None if each is None else each.encode() for each in (api_key, authorization))
    with pytest.raises(RequestError) as caught:
        guard.identify(key, field)
    assert caught.value.outcome is UNAUTHENTICATED
    for each in (api_key, authorization):
        assert not each or each[20:] not in caught.value.message or len(each) <= 20
    return caught.value.message


def test_a_key_is_as_long_as_all_and_never_made_twice() -> None:
    made = [make_key() for _ in range(1000)]
    assert {len(each.text) for each in made} == {KEY_CHARS}
    assert len({each.text for each in made}) == len({each.hash for each in made}) == 1000
    assert all(hash_of(each.text) == each.hash and each.id in each.text for each in made)


def test_a_key_is_found_by_its_whole_text() -> None:
    known = KeyFile(SPECS).find(KEY.text.encode())
    assert known is not None
    assert known.identity == Identity("a", "gold", frozenset({"infer"}))


@given(st.integers(0, KEY_CHARS - 1), st.sampled_from("0123456789abcdef_pk G"))
def test_a_key_with_any_other_character_is_none(place: int, character: str) -> None:
    text = KEY.text[:place] + character + KEY.text[place + 1 :]
    assert (KeyFile(SPECS).find(text.encode()) is not None) == (text == KEY.text)


@given(st.one_of(st.binary(max_size=200), st.binary(min_size=KEY_CHARS, max_size=KEY_CHARS)))
def test_no_other_text_is_a_key(text: bytes) -> None:
    assert KeyFile(SPECS).find(text) is None


@pytest.mark.parametrize("cut", [slice(0, -1), slice(1, None), slice(0, 15), slice(16, None)])
def test_a_part_of_a_key_is_none(cut: slice) -> None:
    assert KeyFile(SPECS).find(KEY.text[cut].encode()) is None


def test_a_secret_with_the_id_of_another_key_is_none() -> None:
    assert KeyFile(SPECS).find(KEY.text.replace(KEY.id, OTHER.id).encode()) is None


def test_both_fields_carry_a_key_and_x_api_key_counts_first() -> None:
    callers = Callers()
    app, eyes = callers.key("app").encode(), callers.key("eyes").encode()
    identify = callers.guard.identify
    assert identify(app, None).name == identify(None, b"Bearer " + app).name == "app"
    assert identify(None, b"bEARER  " + app + b" ").name == "app"
    assert identify(app, b"Bearer " + eyes).name == identify(app, b"Basic Og==").name == "app"


def test_without_a_key_that_counts_the_sentence_says_what_would_be_right() -> None:
    callers = Callers()
    guard = callers.guard
    assert refused(guard) == (
        "an API key is needed; send one as `Authorization: Bearer KEY` or `x-api-key: KEY`"
    )
    assert "has no scheme Bearer" in refused(guard, None, "Basic dXNlcjpwYXNz")
    unknown = "the API key is none of this gateway; its operator can make one"
    assert (
        refused(guard, callers.key("nobody")) == refused(guard, "") == refused(guard, "k" * 9000) == unknown
    )
    assert refused(guard, None, f"Bearer {callers.key('nobody')}") == unknown
    assert refused(guard, callers.key("late")) == (
        "the API key 'late' has expired; its operator can make another"
    )
    assert guard.refused == {"missing": 2, "unknown": 4, "expired": 1, "role": 0, "model": 0, "tier": 0}


@pytest.mark.parametrize(("now_s", "counts"), [(NOW_S - 1e-3, True), (NOW_S, False), (NOW_S + 1, False)])
def test_a_key_expires_at_its_instant(now_s: float, counts: bool) -> None:
    spec = KeySpec("a", KEY.id, KEY.hash, "gold", ("infer",), expires_s=NOW_S)
    guard = KeyGuard(KeyFile([spec]), lambda: now_s)
    if counts:
        assert guard.identify(KEY.text.encode(), None).name == "a"
    else:
        assert "has expired" in refused(guard, KEY.text)


def test_what_a_caller_may_not_is_said_with_what_it_may() -> None:
    guard = Callers().guard
    narrow = Identity("n", "t", frozenset({"infer"}), frozenset({"b", "a"}), frozenset({"cheap"}))
    guard.require(narrow, CALLERS, "a")
    guard.require(narrow, CLIENTS)
    guard.check_tier(narrow, "cheap", "")
    guard.check_tier(narrow, "", "")
    guard.check_tier(narrow, "gold", "gold")  # its tenant's own
    refusals: list[tuple[Callable[[], None], str]] = [
        (lambda: guard.require(narrow, WATCHERS), "has the role 'infer'; this needs 'read' or 'admin'"),
        (lambda: guard.require(narrow, CALLERS, "c"), "may not use model 'c'; its models are 'a', 'b'"),
        (lambda: guard.check_tier(narrow, "gold", ""), "may not ask for tier 'gold'; its tiers are 'cheap'"),
    ]
    for work, sentence in refusals:
        with pytest.raises(RequestError) as caught:
            work()
        assert (caught.value.outcome, caught.value.message) == (FORBIDDEN, f"the API key 'n' {sentence}")
    assert {why: guard.refused[why] for why in ("role", "model", "tier")} == {
        "role": 1,
        "model": 1,
        "tier": 1,
    }


def test_a_caller_without_lists_may_use_all() -> None:
    free = Identity("f", "t", frozenset({"infer"}))
    guard = KeyGuard(KeyFile())
    guard.require(free, CALLERS, "any")
    guard.check_tier(free, "any", "")
    assert may_use(free, "any")
    assert may_use(None, "any")
    assert not may_use(Identity("n", "t", frozenset(), frozenset()), "any")
    assert (own_tenant(free), own_tenant(None)) == ("t", "")


def test_a_spec_counts_for_ever_unless_it_says_otherwise() -> None:
    assert SPECS[0].expires_s == inf
