"""What both edges take for granted: which model is meant, and that the shortest time limit counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.oip import find_model, stated_timeout_us, tenant_of, tighten
from router.tensors.errors import RequestError
from serving.ports import Call
from serving.vocabulary import BAD_INPUT, NEVER_US, UNKNOWN_MODEL
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
