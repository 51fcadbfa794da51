"""What the file of co-runs promises: what was written is read; damage is named, never raised further."""

import json
from pathlib import Path
from typing import Any  # JSON has no narrower type in the standard library

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.curve import Origin
from serving.profile.files.corun import CoRun, Tenant, parse, render
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share

KIND = "gpu-test"
ORIGIN = Origin("2026-11-21T10:00:00+00:00", "penstock profile", (("driver", "D"),))
ONE, TWO = Tenant("m", "a", Share("mps", 50.0), 8), Tenant("n", "b", Share("mig", 3.0, "3g.71gb"), 1, 64)
RUN = CoRun(ONE, (TWO,), 100.5, 130.25, 30, ORIGIN)

texts = st.text(st.characters(codec="utf-8"), max_size=5)
shares = st.sampled_from([Share("cores", 2.0), Share("mps", 12.5), Share("mig", 3.0, "3g.71gb")])
tenants = st.builds(Tenant, texts, texts, shares, st.integers(1, 64), st.integers(0, 512))
origins = st.builds(Origin, measured=texts, command=texts, build=texts, noise=st.floats(0, 9))
runs = st.builds(
    CoRun, tenants, st.lists(tenants, min_size=1, max_size=3).map(tuple), st.floats(0.1, 1e9),
    st.floats(0.1, 1e9), st.integers(1, 40), origins,
)  # fmt: skip

DOCUMENT: dict[str, Any] = json.loads(render(KIND, [RUN]))
CONTENT = json.dumps(DOCUMENT).encode()


@given(st.lists(runs, max_size=6))
def test_what_was_written_is_read_back_exactly(kept: list[CoRun]) -> None:
    found = parse(render(KIND, kept).encode(), KIND)
    assert sorted(map(repr, found)) == sorted(map(repr, kept))
    assert render(KIND, found) == render(KIND, kept)


@given(st.integers(0, len(CONTENT) - 1), st.binary(max_size=3))
def test_damaged_bytes_are_a_value_error_or_still_sound_runs(place: int, other: bytes) -> None:
    damaged = CONTENT[:place] + other + CONTENT[place + 1 :]
    try:
        found = parse(damaged, KIND)
    except ValueError:
        return
    assert all(run.slowdown > 0 and run.count and run.others for run in found)


def changed(**fields: object) -> bytes:
    run = DOCUMENT["measured"][0]["runs"][0] | fields
    return json.dumps(DOCUMENT | {"measured": [{"runs": [run]}]}).encode()


def tenant(**fields: object) -> dict[str, object]:
    return {**DOCUMENT["measured"][0]["runs"][0]["tenant"], **fields}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "expected co-runs of schema 1"),
        (json.dumps(DOCUMENT | {"schema": 9}).encode(), "expected co-runs of schema 1"),
        (
            json.dumps(DOCUMENT | {"device_kind": "other"}).encode(),
            "it is of 'other', its place says 'gpu-test'",
        ),
        (json.dumps(DOCUMENT | {"measured": 3}).encode(), "measured must be a list"),
        (json.dumps(DOCUMENT | {"measured": [{}]}).encode(), "missing or of the wrong kind: 'runs'"),
        (changed(others=[]), "impossible run"),
        (changed(others=[tenant()] * 61), "impossible run"),
        (changed(alone_us=0), "impossible run"),
        (changed(beside_us=float("inf")), "impossible beside_us"),
        (changed(count=0), "impossible run"),
        (changed(count=True), "count must be a whole number"),
        (changed(tenant=None), "a tenant must be an object"),
        (changed(tenant=tenant(rows=0)), "batches of at least 1 row"),
        (changed(tenant=tenant(rows=2_000_000)), "impossible rows"),
        (changed(tenant=tenant(model=3)), "model must be a text"),
        (changed(tenant=tenant(share="half")), "a share is KIND:AMOUNT"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(content, KIND)


def test_the_store_keeps_the_last_of_the_same_tenants_side_by_side(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    assert store.co_runs(KIND) == ()
    later, other = CoRun(ONE, (TWO,), 100.0, 110.0, 30, ORIGIN), CoRun(TWO, (ONE,), 50.0, 60.0, 30, ORIGIN)
    store.write_co_runs(KIND, [RUN])
    path = store.write_co_runs(KIND, [other, later])
    assert path == tmp_path / KIND / "interference.json"
    assert set(store.co_runs(KIND)) == {later, other}
    assert [entry.name for entry in path.parent.iterdir()] == ["interference.json"]
    assert store.sets(KIND) == []


def test_a_damaged_file_is_named_once_and_counts_as_none(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    store.write_co_runs(KIND, [RUN]).write_text("{")
    assert store.co_runs(KIND) == store.co_runs(KIND) == ()
    assert len(store.problems) == 1
    assert "interference.json: ignored: not JSON" in store.problems[0]
