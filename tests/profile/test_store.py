"""What the store promises: what was written is read, the committed first; damage is named, never raised."""

import json
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from pathlib import Path
from typing import Any  # JSON has no narrower type in the standard library

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.profile.curve import Point, Profile
from serving.profile.latency import Latency
from serving.profile.store import ProfileStore, parse
from serving.profile.sweep import Sweep

KIND = "cpu-test-1t"
IDENTITY = ("m", "a", KIND)
latencies_us = st.floats(0.1, 1e9)


@st.composite
def points(draw: st.DrawFn) -> Point:
    low, high = sorted((draw(latencies_us), draw(latencies_us)))
    return Point(draw(st.integers(0, 512)), draw(st.integers(1, 64)), low, high, draw(st.integers(1, 40)))


profiles = st.builds(
    Profile,
    model=st.just("m"),
    variant=st.just("a"),
    device_kind=st.just(KIND),
    points=st.lists(points(), min_size=1, max_size=5, unique_by=lambda p: (p.size, p.rows)).map(tuple),
    load_us=st.integers(0, 1 << 40),
    memory_bytes=st.integers(0, 1 << 40),
    streams=st.integers(1, 128),
)
PROFILE = Profile(*IDENTITY, (Point(0, 1, 1.5, 2.0, 3), Point(0, 8, 9.0, 12.5, 3)), 100, 1 << 20)


POINT_FIELDS = ("size", "rows", "p50_us", "p95_us", "count")
DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "model": "m",
    "variant": "a",
    "device_kind": KIND,
    "points": [dict.fromkeys(POINT_FIELDS, 2), dict.fromkeys(POINT_FIELDS, 8)],
    "load_us": 100,
    "memory_bytes": 1 << 20,
}
CONTENT = json.dumps(DOCUMENT).encode()
places = st.integers(0, len(CONTENT) - 1)


def commit(profile: Profile, folder: Path) -> Path:
    """Put a profile where a committed one lies."""
    path = folder / KIND / "m.a.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(ProfileStore(folder / "scratch").write_local(profile).read_bytes())
    return path


def without_source(profile: Profile | None) -> tuple[object, ...]:
    assert profile is not None
    return (profile.model, profile.variant, profile.device_kind, profile.points, profile.load_us,
            profile.memory_bytes, profile.streams)  # fmt: skip


def test_two_slices_of_one_kind_may_store_the_same_variant_at_once(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    with ThreadPoolExecutor(2) as slices:
        kept = list(slices.map(store.write_local, [PROFILE] * 200))
    assert [path.name for path in kept[0].parent.iterdir()] == ["m.a.json"]
    assert without_source(store.read(KIND, "m", "a")) == without_source(PROFILE)


@given(profiles)
def test_what_was_written_is_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, kept: Profile
) -> None:
    store = ProfileStore(tmp_path_factory.mktemp("profiles"))
    path = store.write_local(kept)
    found = store.read(KIND, "m", "a")
    assert without_source(found) == without_source(kept)
    assert found is not None
    assert found.source == str(path)
    assert store.problems == []
    assert [entry.name for entry in path.parent.iterdir()] == ["m.a.json"]


def test_writing_again_replaces(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    store.write_local(PROFILE)
    better = Profile(*IDENTITY, (Point(0, 1, 7.0, 8.0, 30),))
    store.write_local(better)
    assert without_source(store.read(KIND, "m", "a")) == without_source(better)


def test_the_committed_profile_comes_before_the_local_one(tmp_path: Path) -> None:
    committed = Profile(*IDENTITY, (Point(0, 1, 7.0, 8.0, 30),))
    path = commit(committed, tmp_path)
    store = ProfileStore(tmp_path)
    store.write_local(PROFILE)
    found = store.read(KIND, "m", "a")
    assert without_source(found) == without_source(committed)
    assert found is not None
    assert found.source == str(path)


def test_a_damaged_committed_profile_is_named_and_the_local_one_serves(tmp_path: Path) -> None:
    path = commit(PROFILE, tmp_path)
    path.write_text("{")
    store = ProfileStore(tmp_path)
    store.write_local(PROFILE)
    assert without_source(store.read(KIND, "m", "a")) == without_source(PROFILE)
    assert len(store.problems) == 1
    assert str(path) in store.problems[0]


def test_no_file_is_no_problem(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    assert store.read(KIND, "m", "a") is None
    assert store.problems == []


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / KIND / "m.a.json"
    path.parent.mkdir()
    path.symlink_to("/proc/self/mem")  # a regular file, even to root, whose first byte cannot be read
    store = ProfileStore(tmp_path)
    assert store.read(KIND, "m", "a") is None
    assert str(path) in store.problems[0]


@pytest.mark.parametrize("identity", [("x", "a", KIND), ("m", "x", KIND), ("m", "a", "cpu-other-1t")])
def test_a_profile_in_the_wrong_place_is_refused(identity: tuple[str, str, str]) -> None:
    with pytest.raises(ValueError, match="its place says"):
        parse(CONTENT, identity, "here")


def test_a_profile_says_how_many_batches_ran_at_once_one_where_it_does_not() -> None:
    assert parse(CONTENT, IDENTITY, "here").streams == 1
    assert parse(json.dumps(DOCUMENT | {"streams": 4}).encode(), IDENTITY, "here").streams == 4


@pytest.mark.parametrize(
    ("streams", "fault"),
    [
        (0, "streams must be at least 1"),
        (-1, "impossible streams"),
        (10**6, "impossible streams"),
        ("2", "streams must be a whole number, not '2'"),
        (1.5, "streams must be a whole number, not 1.5"),
    ],
)
def test_streams_that_cannot_be_are_named(streams: object, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse(json.dumps(DOCUMENT | {"streams": streams}).encode(), IDENTITY, "here")


def accept_or_name(content: bytes) -> None:
    """Parse a damaged file: a usable profile, or ValueError; nothing else, and no endless work later."""
    try:
        profile = parse(content, IDENTITY, "here")
    except ValueError:
        return
    assert profile.load_us >= 0
    assert profile.memory_bytes >= 0
    assert 1 <= Latency(profile).rows_within(1000) <= max(point.rows for point in profile.points)
    assert isfinite(Latency(profile).predict_us(1 << 20))
    sweep = Sweep(8, 1000, (0,), 1e6)
    sweep.resume(profile)
    assert len(sweep.points()) == len(profile.points)


def test_every_truncation_is_named() -> None:
    for length in range(len(CONTENT)):
        with pytest.raises(ValueError, match="not JSON"):
            parse(CONTENT[:length], IDENTITY, "here")


@given(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
def test_every_change_of_bytes_is_named_or_harmless(changes: list[tuple[int, int]], insert: bool) -> None:
    content = bytearray(CONTENT)
    for place, byte in changes:
        content[place : place + (not insert)] = bytes([byte])
    accept_or_name(bytes(content))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
huge = st.sampled_from([10**400, -(10**400), 10**30, 10**12, float("inf"), float("nan"), "9" * 5000])
documents: st.SearchStrategy[Any] = st.recursive(
    scalars | huge, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)
)
FIELDS = ("schema", "model", "points", "load_us", "memory_bytes", "streams")


@given(st.sampled_from(FIELDS), documents, st.booleans())
@example("points", [], False)
@example("load_us", float("inf"), False)
@example("memory_bytes", -1, False)
def test_every_wrong_field_is_named(field: str, value: object, missing: bool) -> None:
    document = DOCUMENT | {field: value}
    if missing:
        document.pop(field, None)
    accept_or_name(json.dumps(document).encode())


@given(st.sampled_from(POINT_FIELDS), documents, st.booleans())
@example("rows", 10**12, False)
@example("rows", 10**30, False)
@example("count", 10**12, False)
@example("p50_us", 10**400, False)
@example("rows", float("inf"), False)
@example("rows", 0, False)
@example("count", 1.5, False)
def test_every_wrong_point_is_named(field: str, value: object, missing: bool) -> None:
    point = dict.fromkeys(POINT_FIELDS, 2) | {field: value}
    if missing:
        del point[field]
    accept_or_name(json.dumps(DOCUMENT | {"points": [point]}).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [("size", -1), ("rows", 0), ("count", 0), ("p50_us", -1), ("p95_us", 1), ("rows", 2.5), ("rows", True)],
)
def test_an_impossible_point_is_refused(field: str, value: float) -> None:
    point: dict[str, float] = dict.fromkeys(POINT_FIELDS, 2) | {field: value}
    with pytest.raises(ValueError, match=r"impossible|wrong kind"):
        parse(json.dumps(DOCUMENT | {"points": [point]}).encode(), IDENTITY, "here")


def test_two_points_for_one_batch_and_no_points_are_refused() -> None:
    none: list[object] = []
    for several in (none, DOCUMENT["points"][:1] * 2):
        with pytest.raises(ValueError, match="point"):
            parse(json.dumps(DOCUMENT | {"points": several}).encode(), IDENTITY, "here")


def test_brackets_without_end_are_named() -> None:
    accept_or_name(b"[" * 1_000_000)
