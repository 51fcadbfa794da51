"""What a caller says of its trace is read as W3C Trace Context has it, and what goes on fits any header."""

import pytest

from serving.values.traces import NO_TRACE, STATE_CHARS_MAX, TraceContext, flags_of, trace_context

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_context_is_kept_as_it_came() -> None:
    assert trace_context(PARENT, " rojo=00f067aa,congo=t61 ") == TraceContext(
        PARENT, "rojo=00f067aa,congo=t61"
    )
    assert flags_of(PARENT) == 1
    assert flags_of(f"{PARENT[:-2]}fe") == 0xFE


@pytest.mark.parametrize(
    "parent",
    [
        "",
        PARENT.upper(),
        PARENT[:-1],
        f"{PARENT}0",
        f"{PARENT}-more",
        f"{PARENT}\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
    ],
)
def test_what_is_no_traceparent_is_none_and_takes_its_state_along(parent: str) -> None:
    assert trace_context(parent, "rojo=1") is NO_TRACE


@pytest.mark.parametrize("more", ["", "-", "-what-a-later-version-says"])
def test_a_later_version_goes_on_as_the_one_that_is_known(more: str) -> None:
    assert trace_context(f"cc-{TRACE}-{SPAN}-01{more}", "").parent == PARENT


@pytest.mark.parametrize("state", ["rojo=é", "rojo=1\r\nx: y", "rojo=1\tcongo=2"])
def test_a_state_that_no_field_may_hold_is_left_out(state: str) -> None:
    assert trace_context(PARENT, state) == TraceContext(PARENT, "")


def test_a_state_that_is_too_long_loses_whole_entries_from_its_end() -> None:
    entries = [f"key{number}={'v' * 50}" for number in range(20)]
    state = trace_context(PARENT, ",".join(entries)).state
    kept = state.split(",")
    assert kept == entries[: len(kept)]
    assert STATE_CHARS_MAX - 60 < len(state) <= STATE_CHARS_MAX
    assert trace_context(PARENT, "k=" + "v" * STATE_CHARS_MAX).state == ""
    whole = "k=" + "v" * (STATE_CHARS_MAX - 2)
    assert trace_context(PARENT, f"{whole},another=1").state == whole
