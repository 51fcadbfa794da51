"""What an interrupted sweep leaves: it is read back as it was; damage is named."""

import json
from typing import Any  # JSON has no narrower type in the standard library

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.files.unfinished import Unfinished, parse, render
from serving.profile.sweeping.exploration import BatchRuns

MACHINE = (("processor", "P"), ("cores", "2"))


def seen(*latencies_us: int) -> BatchRuns:
    found = BatchRuns(activation_bytes=5)
    found.add(latencies_us, (7, 8))
    return found


KEPT = Unfinished("digest", MACHINE, 1.5, {(0, 1): seen(3, 4), (0, 8): seen(9)})


def test_runs_are_read_back_as_they_were() -> None:
    assert parse(render(KEPT).encode()) == KEPT


def test_it_fits_the_same_build_on_the_same_machine_only() -> None:
    assert KEPT.fits("digest", MACHINE)
    assert not KEPT.fits("other", MACHINE)
    assert not KEPT.fits("digest", (("processor", "Q"), ("cores", "2")))


def test_every_truncation_is_named() -> None:
    content = render(KEPT).encode()
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"."):
            parse(content[:length])


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
documents: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)
)
HEAD = ("schema", "build", "milliseconds", "machine", "seen")
PLACES = (*HEAD, "size", "rows", "latencies_us", "yardsticks_us")


@given(st.sampled_from(PLACES), documents)
def test_every_wrong_field_is_named_or_harmless(place: str, value: object) -> None:
    fields: dict[str, Any] = json.loads(render(KEPT))
    where = fields if place in HEAD else fields["seen"][0]
    where[place] = value
    try:
        found = parse(json.dumps(fields).encode())
    except ValueError:
        return
    assert all(rows and each.latencies_us for (_, rows), each in found.seen.items())
