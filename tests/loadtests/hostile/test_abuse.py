"""What fails a run of the attacks, and what a storm says of requests without a worker."""

from collections import Counter
from dataclasses import replace
from math import inf

import pytest

from loadtests.hostile import h2wire
from loadtests.hostile.abuse.__main__ import NOTHING, _failed
from loadtests.hostile.abuse.others import Watched
from loadtests.hostile.abuse.rpc_probe import Seen
from loadtests.hostile.abuse.storm import absent


def watched(endings: dict[str, int], unexplained: dict[str, int]) -> Watched:
    return Watched(rpc=Seen(Counter(endings), Counter(unexplained)))


@pytest.mark.parametrize(
    ("endings", "unexplained", "refuses", "failed"),
    [
        ({"OK": 9}, {}, False, False),
        ({"OK": 9, "CANCELLED": 1}, {"CANCELLED": 1}, True, True),
        ({"OK": 9, "UNAVAILABLE": 1}, {"UNAVAILABLE": 1}, True, True),
        ({"OK": 9, "UNAVAILABLE": 1}, {}, True, False),
        ({"OK": 9, "UNAVAILABLE": 1}, {}, False, True),
    ],
)
def test_a_call_without_a_reason_fails_a_run_and_a_refusal_where_none_is_due(
    endings: dict[str, int], unexplained: dict[str, int], refuses: bool, failed: bool
) -> None:
    attack = replace(NOTHING, refuses=refuses)
    assert _failed(watched(endings, unexplained), attack, inf) == failed


def test_what_is_known_to_do_harm_fails_no_run() -> None:
    harmed = watched({"CANCELLED": 1}, {"CANCELLED": 1})
    assert not _failed(harmed, replace(NOTHING, known="somewhere"), inf)


def test_calls_are_counted_by_how_they_ended() -> None:
    seen = Seen(Counter({"OK": 5, "CANCELLED": 2, "UNAVAILABLE": 1, "INTERNAL": 1}))
    assert (seen.good, seen.cancelled, seen.other) == (5, 2, 2)


def test_both_reasons_for_want_of_a_worker_are_counted_apart_and_together() -> None:
    said = absent(Counter({"right": 90, "no_replica": 4, "not_loaded": 6}))
    assert ("4 no_replica (4.00%)" in said, "6 not_loaded (6.00%)" in said, "10.00%" in said) == (True,) * 3


@pytest.mark.parametrize("size", [0, 126, 127, 254, 255, 3900, 40_000])
def test_a_long_field_states_its_length_as_readers_read_it(size: int) -> None:
    """RFC 7541, 5.1: seven bits, or all ones and the rest, the low bits first."""
    field = h2wire.literal(b"x", bytes(size))
    assert field[:3] == b"\0\x01x"
    length, at, shift = field[3], 4, 0
    if length == 127:
        while True:
            length += (field[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if field[at - 1] < 128:
                break
    assert (length, len(field) - at) == (size, size)
