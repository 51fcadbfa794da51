"""What the store promises: what was written is read, the newest first; damage is named, never raised."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any  # JSON has no narrower type in the standard library

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.profile.curve import Origin, Point, Profile
from serving.profile.derived.latency import Latency
from serving.profile.files.document import parse, render
from serving.profile.files.store import ProfileStore
from serving.profile.profiles import ProfileSet
from serving.profile.sweeping.sweep import Sweep
from serving.values.slice_specs import Share

KIND = "cpu-test"
IDENTITY = ("m", "a", KIND)
ONE, TWO = Share("cores", 1.0), Share("cores", 2.0)
latencies_us = st.floats(0.1, 1e9)
texts = st.text(st.characters(codec="utf-8"), max_size=5)


@st.composite
def points(draw: st.DrawFn) -> Point:
    low, high, highest = sorted(draw(latencies_us) for _ in range(3))
    return Point(
        draw(st.integers(0, 512)), draw(st.integers(1, 64)), low, high, draw(st.integers(1, 40)),
        draw(st.sampled_from([0.0, highest])), draw(st.floats(0, 1e6)), draw(st.integers(0, 1 << 30)),
        draw(st.floats(0, 1e3)),
    )  # fmt: skip


origins = st.builds(
    Origin, measured=texts, command=texts, build=texts, seconds=st.floats(0, 1e6), noise=st.floats(0, 9),
    error=st.floats(0, 9), machine=st.dictionaries(texts, texts, max_size=2).map(lambda d: tuple(d.items())),
)  # fmt: skip
profiles = st.builds(
    Profile,
    model=st.just("m"),
    variant=st.just("a"),
    device_kind=st.just(KIND),
    points=st.lists(points(), min_size=1, max_size=5, unique_by=lambda p: (p.size, p.rows)).map(tuple),
    load_us=st.integers(0, 1 << 40),
    memory_bytes=st.integers(0, 1 << 40),
    source=st.just("here"),
    share=st.sampled_from([ONE, TWO, Share("mps", 12.5), Share("mig", 3.0, "3g.71gb")]),
    warm_us=st.integers(0, 1 << 40),
    origin=origins,
)
PROFILE = Profile(*IDENTITY, (Point(0, 1, 1.5, 2.0, 3), Point(0, 8, 9.0, 12.5, 3)), 100, 1 << 20)
BETTER = replace(PROFILE, points=(Point(0, 1, 7.0, 8.0, 30),))


POINT_FIELDS = ("size", "rows", "p50_us", "p95_us", "count")
EXTRA_FIELDS = ("p99_us", "yardstick_us", "activation_bytes", "power_w")
SHARE: dict[str, Any] = {
    "share": "cores:1",
    "points": [dict.fromkeys(POINT_FIELDS, 2), dict.fromkeys(POINT_FIELDS, 8)],
    "load_us": 100,
    "memory_bytes": 1 << 20,
    "origin": {"measured": "2026-11-21T10:00:00+00:00", "machine": {"processor": "P"}, "noise": 0.02},
}
DOCUMENT: dict[str, Any] = {
    "schema": 2,
    "model": "m",
    "variant": "a",
    "device_kind": KIND,
    "shares": [SHARE],
}
CONTENT = json.dumps(DOCUMENT).encode()
places = st.integers(0, len(CONTENT) - 1)


def same(found: Profile | None, kept: Profile) -> bool:
    """Whether it is that profile, wherever and whenever it was stored."""
    assert found is not None
    origin = replace(found.origin, measured=kept.origin.measured)
    return replace(found, source=kept.source, origin=origin) == kept


def of(share: dict[str, object]) -> bytes:
    return json.dumps(DOCUMENT | {"shares": [share]}).encode()


def test_two_slices_of_one_kind_may_store_the_same_variant_at_once(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    shares = [Share("cores", float(number)) for number in range(1, 9)]
    with ThreadPoolExecutor(4) as slices:
        kept = list(slices.map(store.write_local, [replace(PROFILE, share=share) for share in shares * 20]))
    assert [path.name for path in kept[0].parent.iterdir()] == ["m.a.json"]
    found = store.read_set(KIND, "m", "a")
    assert found is not None
    assert found.shares("cores") == tuple(shares)


@given(st.lists(profiles, min_size=1, max_size=4, unique_by=lambda each: each.share))
def test_what_was_written_is_read_back_exactly(kept: list[Profile]) -> None:
    written = ProfileSet(*IDENTITY, ()).joined(kept)
    assert parse(render(written).encode(), IDENTITY, "here") == written


def test_a_file_of_its_own_for_every_variant_and_a_section_for_every_share(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    for share in (TWO, ONE):
        path = store.write(replace(PROFILE, share=share))
    assert path == tmp_path / KIND / "m.a.json"
    assert same(store.read(KIND, "m", "a", TWO), replace(PROFILE, share=TWO))
    assert store.read(KIND, "m", "a", Share("cores", 3.0)) is None
    assert [each.variant for each in store.sets(KIND)] == ["a"]
    assert store.kinds() == [KIND]
    assert [entry.name for entry in path.parent.iterdir()] == ["m.a.json"]


def test_writing_again_replaces(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    for written in (PROFILE, BETTER):
        store.write_local(written)
    assert same(store.read(KIND, "m", "a", ONE), BETTER)


def test_the_newest_counts_wherever_it_lies(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    store.write_local(PROFILE)
    for year, expected in (("2020", PROFILE), ("9020", BETTER)):
        store.write(replace(BETTER, origin=Origin(measured=f"{year}-01-01T00:00:00+00:00")))
        assert same(store.read(KIND, "m", "a", ONE), replace(expected, origin=Origin()))


def test_a_measurement_takes_the_place_of_a_prediction_and_never_the_other_way(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    guess = replace(BETTER, origin=Origin(error=0.1, measured="9020-01-01T00:00:00+00:00"))
    store.write(guess)
    assert same(store.read(KIND, "m", "a", ONE), replace(guess, origin=guess.origin))
    store.write_local(PROFILE)
    assert same(store.read(KIND, "m", "a", ONE), PROFILE)


def test_a_damaged_committed_profile_is_named_once_and_the_local_one_serves(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    path = store.write(PROFILE)
    path.write_text("{")
    store.write_local(PROFILE)
    for _ in range(2):
        assert same(store.read(KIND, "m", "a", ONE), PROFILE)
    assert len(store.problems) == 1
    assert str(path) in store.problems[0]


def test_no_file_is_no_problem(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    assert store.read(KIND, "m", "a", ONE) is None
    assert store.problems == []


def test_a_fifo_in_the_place_of_a_profile_is_named_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / KIND).mkdir()
    for name in ("m.a.json", "interference.json"):
        os.mkfifo(tmp_path / KIND / name)
    store = ProfileStore(tmp_path)
    assert store.read(KIND, "m", "a", ONE) is None
    assert store.co_runs(KIND) == ()
    assert [each.rpartition(": ")[2] for each in store.problems] == ["it is no regular file"] * 2


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / KIND / "m.a.json"
    path.parent.mkdir()
    path.symlink_to("/proc/self/mem")  # a regular file, even to root, whose first byte cannot be read
    store = ProfileStore(tmp_path)
    assert store.read(KIND, "m", "a", ONE) is None
    assert str(path) in store.problems[0]


@pytest.mark.parametrize("identity", [("x", "a", KIND), ("m", "x", KIND), ("m", "a", "cpu-other-1t")])
def test_a_profile_in_the_wrong_place_is_refused(identity: tuple[str, str, str]) -> None:
    with pytest.raises(ValueError, match="its place says"):
        parse(CONTENT, identity, "here")


def test_a_file_of_an_earlier_version_still_counts_where_one_batch_ran_at_a_time() -> None:
    before = parse(of(SHARE | {"streams": 1}), IDENTITY, "here")
    assert before == parse(CONTENT, IDENTITY, "here")
    assert b"streams" not in render(before).encode()


@pytest.mark.parametrize("streams", [0, -1, 2, 10**6, "2", 1.5, None])
def test_a_profile_of_several_batches_at_once_is_refused_with_the_cure(streams: object) -> None:
    with pytest.raises(ValueError, match=r"streams: got .*, expected 1 .*such as mig:2g\.35gb\*2"):
        parse(of(SHARE | {"streams": streams}), IDENTITY, "here")


def accept_or_name(content: bytes) -> None:
    """Parse a damaged file: a usable profile, or ValueError; nothing else, and no endless work later."""
    try:
        profile = parse(content, IDENTITY, "here").profiles[0]
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
HEAD_FIELDS = ("schema", "model", "shares")
SHARE_FIELDS = ("share", "points", "load_us", "warm_us", "memory_bytes", "origin")


@given(st.sampled_from(HEAD_FIELDS + SHARE_FIELDS), documents, st.booleans())
@example("points", [], False)
@example("load_us", float("inf"), False)
@example("memory_bytes", -1, False)
def test_every_wrong_field_is_named(field: str, value: object, missing: bool) -> None:
    share, document = dict(SHARE), dict(DOCUMENT)
    where = document if field in HEAD_FIELDS else share
    where[field] = value
    if missing:
        del where[field]
    accept_or_name(
        json.dumps(
            {"shares": [share]} | document if field == "shares" else document | {"shares": [share]}
        ).encode()
    )


@given(st.sampled_from(POINT_FIELDS + EXTRA_FIELDS), documents, st.booleans())
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
    accept_or_name(of(SHARE | {"points": [point]}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("size", -1), ("rows", 0), ("count", 0), ("p50_us", -1), ("p95_us", 1), ("rows", 2.5), ("rows", True)],
)
def test_an_impossible_point_is_refused(field: str, value: float) -> None:
    point: dict[str, float] = dict.fromkeys(POINT_FIELDS, 2) | {field: value}
    with pytest.raises(ValueError, match=r"impossible|wrong kind"):
        parse(of(SHARE | {"points": [point]}), IDENTITY, "here")


def test_two_points_for_one_batch_and_no_points_are_refused() -> None:
    none: list[object] = []
    for several in (none, SHARE["points"][:1] * 2):
        with pytest.raises(ValueError, match="point"):
            parse(of(SHARE | {"points": several}), IDENTITY, "here")


def test_brackets_without_end_are_named() -> None:
    accept_or_name(b"[" * 1_000_000)
