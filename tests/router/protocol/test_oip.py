"""What both edges take for granted: which model is meant, and that the shortest time limit counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.protocol.oip import MAX_AGE_S, control_cache, find_model, stated_timeout_us, tenant_of, tighten
from router.tensors.parts.errors import RequestError
from serving.ports import Call
from serving.values.vocabulary import BAD_INPUT, NEVER_US, UNKNOWN_MODEL
from tests.router.fakes import SIMPLE, FakeServing

limits_us = st.floats(-1e3, 1e30, allow_nan=False) | st.floats(0, 10)


def test_a_model_is_found_by_name_and_version() -> None:
    assert find_model(FakeServing(), "simple", "1") is SIMPLE


@pytest.mark.parametrize(
    ("name", "version", "sentence"),
    [("simpel", "1", "did you mean 'simple'?"), ("simple", "2", "'simple' version 2 is not found")],
)
def test_another_name_or_version_is_unknown_with_a_sentence(name: str, version: str, sentence: str) -> None:
    with pytest.raises(RequestError) as caught:
        find_model(FakeServing(), name, version)
    assert caught.value.outcome is UNKNOWN_MODEL
    assert sentence in caught.value.message


@pytest.mark.parametrize("long", ["name", "version"])
def test_what_a_client_sends_is_not_repeated_at_length(long: str) -> None:
    asked = {"name": "simple", "version": "1"} | {long: "x" * 100_000}
    with pytest.raises(RequestError) as caught:
        find_model(FakeServing(), **asked)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("stated", "tenant"),
    [("gold", "gold"), (" batch.jobs\t", "batch.jobs"), ("default", "default")]
    + [
        (stated, "default")
        for stated in ("", "Gold", "goldx", "x" * 100_000, "z\u0142oto", "gold,gold", "\x00")
    ],
)
def test_a_tenant_that_is_not_listed_is_the_default_one(stated: str, tenant: str) -> None:
    assert tenant_of(FakeServing(), stated) == tenant


@given(st.lists(limits_us, min_size=1, max_size=4))
def test_the_shortest_of_all_limits_counts_and_ends_before_never(
    given_us: list[float],
) -> None:
    call = Call(SIMPLE, [], 1)
    for timeout_us in given_us:
        tighten(call, timeout_us)
    assert call.timeout_us is not None
    assert 1 <= call.timeout_us < NEVER_US // 2 + 1
    shortest_us = min(given_us)
    assert call.timeout_us == 1 if shortest_us <= 1 else call.timeout_us <= shortest_us + 1
    assert call.timeout_us >= min(shortest_us, NEVER_US // 2)


@pytest.mark.parametrize(("stated", "timeout_us"), [("250", 250_000), ("0.5", 500), (" 1e3 ", 1_000_000)])
def test_a_stated_timeout_is_in_milliseconds(stated: str, timeout_us: float) -> None:
    assert stated_timeout_us(stated) == timeout_us


@pytest.mark.parametrize("stated", ["", "soon", "0", "-1", "nan", "inf", "1" * 400, "x" * 100_000])
def test_a_senseless_timeout_is_bad_input_with_a_short_sentence(stated: str) -> None:
    with pytest.raises(RequestError) as caught:
        stated_timeout_us(stated)
    assert caught.value.outcome is BAD_INPUT
    assert "x-request-timeout-ms must be a positive number of milliseconds" in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("stated", "max_age_us", "store"),
    [
        ("", None, True),
        ("no-cache", 0, True),
        ("no-store", None, False),
        ("max-age=5", 5_000_000, True),
        ("max-age=0", 0, True),
        ('Max-Age = "5"', 5_000_000, True),
        (" NO-STORE , max-age=60,no-transform", 60_000_000, False),
        ("max-age=60, max-age=5, max-age=7", 5_000_000, True),
        ("max-age=60, no-cache", 0, True),
        ("max-age=" + "9" * 10_000, MAX_AGE_S * 1_000_000, True),
        ("max-age=1000000000", 10**15, True),
        (f"max-age={'0' * 10_000}5", 5_000_000, True),
        ("max-stale=5, min-fresh=x, only-if-cached, no-storehouse, s-maxage=1", None, True),
        ('note="no-store, max-age=5", max-age=9', 9_000_000, True),
        ("=,,;\x00 no-", None, True),
    ],
)
def test_cache_control_says_how_old_a_kept_answer_may_be_and_whether_this_one_is_kept(
    stated: str, max_age_us: int | None, store: bool
) -> None:
    call = Call(SIMPLE, [], 1)
    control_cache(call, stated)
    assert (call.max_age_us, call.store) == (max_age_us, store)


@given(st.lists(st.sampled_from(["no-cache", "no-store", "x", *(f"max-age={n}" for n in range(4))])))
def test_of_several_directives_the_strictest_counts(said: list[str]) -> None:
    call = Call(SIMPLE, [], 1)
    control_cache(call, ", ".join(said))
    ages_s = [0 if each == "no-cache" else int(each[-1]) for each in said if each not in ("no-store", "x")]
    assert call.max_age_us == (min(ages_s) * 1_000_000 if ages_s else None)
    assert call.store == ("no-store" not in said)


@given(st.lists(st.sampled_from(["max-age", "=", '"', ",", " ", "5", "no-cache"]) | st.text(max_size=2)))
def test_whatever_stands_in_cache_control_only_a_max_age_is_refused(pieces: list[str]) -> None:
    stated, refused = "".join(pieces), False
    try:
        control_cache(Call(SIMPLE, [], 1), stated)
    except RequestError:
        refused = True
    assert not refused or "max-age" in stated.lower()


@pytest.mark.parametrize("age", ["", "=", "=5m", "=-1", "=1.5", "=soon", '="', "=\xb2", "=" + "x" * 10_000])
def test_a_max_age_that_is_no_whole_number_is_bad_input_with_a_short_sentence(age: str) -> None:
    with pytest.raises(RequestError) as caught:
        control_cache(Call(SIMPLE, [], 1), "no-cache, max-age" + age)
    assert caught.value.outcome is BAD_INPUT
    assert "max-age of cache-control must be a whole number of seconds, 0 or more" in caught.value.message
    assert len(caught.value.message) < 200


def test_of_a_timeout_that_comes_twice_the_shorter_counts() -> None:
    assert stated_timeout_us("1,1000") == stated_timeout_us("1000, 1") == 1000
    with pytest.raises(RequestError):
        stated_timeout_us("1000,")
