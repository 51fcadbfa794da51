"""What was applied is kept beside the settings, outlives a restart, and ends when these say otherwise."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from router.management.operations.applied import (
    AppliedPlacement,
    PlannedFor,
    applied,
    digest,
    forget,
    in_force,
    keep,
    path_of,
    put_back,
    read,
    settings_in_force,
)
from router.management.operations.slice_json import read_slice, told_slice
from router.settings import Settings, load_settings
from serving.values.rehearsal import RehearsalSpec
from serving.values.slice_specs import DeviceSpec, Share, SliceSpec
from tests.router.settings.samples import write_deployment

GATEWAY = """\
slices: [{name: cpu-a, cores: 1}, {name: cpu-b, cores: 1}]
models:
  - {path: models/digits, slices: [cpu-a]}
  - {path: models/minilm, slices: [cpu-b]}
"""
SLICES = (SliceSpec("cpu-a", (0,), 1), SliceSpec("cpu-1", (1, 2), 2))


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(write_deployment(tmp_path, GATEWAY))


def sample(settings: Settings, **changes: Any) -> AppliedPlacement:
    models = {"digits": ("cpu-a", "cpu-1"), "minilm": ("cpu-1",)}
    loads = {"digits": PlannedFor(50.0, 2.5, 400.0)}
    whole = AppliedPlacement("ab12", "2026-01-02 03:04:05 UTC", digest(settings), SLICES, models, loads)
    return replace(whole, **changes)


def test_what_is_kept_is_read_again_as_it_was(settings: Settings) -> None:
    assert read(settings.path) is None
    keep(settings.path, sample(settings))
    assert read(settings.path) == sample(settings)
    assert path_of(settings.path) == settings.path.parent / ".penstock" / "penstock.placement.json"
    assert [each.name for each in path_of(settings.path).parent.iterdir()] == ["penstock.placement.json"]


def test_after_a_restart_slices_and_models_are_those_that_were_applied(settings: Settings) -> None:
    assert settings_in_force(settings) == (settings, None)
    keep(settings.path, sample(settings))
    found, said = settings_in_force(settings)
    assert found.slices == SLICES
    assert {each.name: each.slices for each in found.models} == {
        "digits": ("cpu-a", "cpu-1"),
        "minilm": ("cpu-1",),
    }
    assert said is not None
    assert "slices are as a placement has them that was applied (2026-01-02 03:04:05 UTC), not as" in said
    assert applied(found) == sample(settings)
    assert applied(settings) is None  # these are not in force


def test_settings_of_other_names_have_placements_of_their_own(settings: Settings, tmp_path: Path) -> None:
    keep(settings.path, sample(settings))
    other = tmp_path / "other.yaml"
    other.write_text(GATEWAY)
    assert settings_in_force(load_settings(other))[1] is None


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("slices: [cpu-b]", "slices: [cpu-a]"),
        ("{name: cpu-b, cores: 1}", "{name: cpu-b, cores: 2}"),
        ("{name: cpu-b, cores: 1}", "{name: cpu-b, cores: 1}, {name: cpu-c}"),
        ("  - {path: models/minilm, slices: [cpu-b]}\n", ""),
    ],
)
def test_while_the_file_has_other_slices_or_models_than_when_it_was_applied_the_file_counts(
    settings: Settings, was: str, now: str
) -> None:
    keep(settings.path, sample(settings))
    settings.path.write_text(GATEWAY.replace(was, now))
    changed = load_settings(settings.path)
    found, said = settings_in_force(changed)
    assert found == changed
    assert said is not None
    assert "(2026-01-02 03:04:05 UTC): penstock.yaml counts, not " in said
    assert settings_in_force(settings)[0].slices == SLICES  # with the old lines it holds again


def test_what_else_changes_in_the_file_leaves_it_applied(settings: Settings) -> None:
    keep(settings.path, sample(settings))
    settings.path.write_text(
        GATEWAY.replace("slices: [cpu-b]", "slo_ms: 99, slices: [cpu-b]").replace("slices: [{", "slices:  [{")
    )
    assert settings_in_force(load_settings(settings.path))[0].slices == SLICES


def test_a_placement_of_cores_that_are_gone_is_passed_over_and_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(settings.path, sample(settings))
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    found, said = settings_in_force(settings)
    assert found == settings
    assert said is not None
    assert "is passed over: it uses core 2, not usable here" in said
    assert path_of(settings.path).exists()


def test_a_model_that_the_placement_does_not_know_keeps_what_is_left_of_its_slices(
    settings: Settings,
) -> None:
    keep(settings.path, sample(settings, models={"minilm": ("cpu-1",)}))
    assert settings_in_force(settings)[0].models[0].slices == ("cpu-a",)
    keep(settings.path, sample(settings, models={"digits": ("cpu-1",)}))
    assert settings_in_force(settings)[0].models[1].slices == ("cpu-a", "cpu-1")


def told(settings: Settings) -> dict[str, Any]:
    keep(settings.path, sample(settings))
    found: dict[str, Any] = json.loads(path_of(settings.path).read_text())
    return found


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"\xff\xfe", b"null", b'{"format": 2}', b"[" * 100_000, b"x" * (5 << 20)],
)
def test_a_damaged_file_is_named_and_passed_over(settings: Settings, content: bytes) -> None:
    keep(settings.path, sample(settings))
    path_of(settings.path).write_bytes(content)
    found, said = settings_in_force(settings)
    assert found == settings
    assert said is not None
    assert f"{path_of(settings.path)} is passed over: it holds no applied placement" in said
    assert path_of(settings.path).exists()  # perhaps somebody wants to see it


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("slices", []),
        ("slices", [{"name": "a", "cores": [0], "threads": 0, "memory_bytes": 0}]),
        ("slices", [{"name": "a", "cores": [-1], "threads": 1, "memory_bytes": 0}]),
        ("slices", [{"name": "a", "cores": [True], "threads": 1, "memory_bytes": 0}]),
        ("slices", [{"name": 7, "cores": [0], "threads": 1, "memory_bytes": 0}]),
        ("slices", [{"name": "a", "cores": [0], "threads": 1}]),
        ("slices", [{"name": "a", "cores": [0], "threads": 1, "memory_bytes": 0}] * 2),
        ("models", {"digits": ["nowhere"]}),
        ("models", {"digits": []}),
        ("models", ["digits"]),
        ("loads", {"digits": {"requests": "many"}}),
        ("loads", {"digits": {"requests": 1, "rows": 1}}),
        ("id", ""),
        ("digest", None),
    ],
)
def test_a_file_that_is_no_placement_is_named_and_passed_over(
    settings: Settings, key: str, value: object
) -> None:
    path = path_of(settings.path)
    path.parent.mkdir()
    path.write_text(json.dumps(told(settings) | {key: value}))
    found, said = settings_in_force(settings)
    assert found == settings
    assert said is not None
    assert "it holds no applied placement" in said


def test_a_file_that_cannot_be_read_is_named_and_passed_over(settings: Settings) -> None:
    path_of(settings.path).mkdir(parents=True)
    found, said = settings_in_force(settings)
    assert found == settings
    assert said is not None
    assert "is passed over: it cannot be read: it is no regular file" in said


def test_a_fifo_in_its_place_is_named_and_holds_up_no_start(settings: Settings) -> None:
    path_of(settings.path).parent.mkdir()
    os.mkfifo(path_of(settings.path))
    found, said = settings_in_force(settings)
    assert found == settings
    assert said == f"{path_of(settings.path)} is passed over: it cannot be read: it is no regular file"
    keep(settings.path, sample(settings))  # a placement takes its place
    assert read(settings.path) == sample(settings)


def test_a_placement_that_cannot_be_written_leaves_the_old_one_whole(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(settings.path, sample(settings))

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=f"No space left on device: '{path_of(settings.path)}'"):
        keep(settings.path, sample(settings, id="new"))
    assert read(settings.path) == sample(settings)
    assert len([*path_of(settings.path).parent.iterdir()]) == 1


def test_what_was_kept_before_is_put_back_be_it_nothing(settings: Settings) -> None:
    put_back(settings.path, sample(settings))
    assert read(settings.path) == sample(settings)
    put_back(settings.path, None)
    assert read(settings.path) is None
    forget(settings.path)  # nothing to forget is nothing wrong


def test_prices_are_kept_and_others_end_what_was_applied(settings: Settings) -> None:
    priced = replace(settings, slices=tuple(replace(each, price=0.7) for each in settings.slices))
    slices = tuple(replace(each, price=0.35) for each in SLICES)
    keep(settings.path, sample(priced, slices=slices))
    assert settings_in_force(priced)[0].slices == slices
    assert settings_in_force(settings)[0] == settings, "the file has no prices"


def test_what_was_applied_before_there_were_spot_slices_still_holds(settings: Settings) -> None:
    told = [
        [[each.name, each.cores, each.threads, each.memory_bytes] for each in settings.slices],
        [[each.name, each.slices] for each in settings.models],
    ]
    assert digest(settings) == hashlib.sha256(json.dumps(told).encode()).hexdigest()


def test_spot_slices_are_kept_and_others_end_what_was_applied(settings: Settings) -> None:
    spot = tuple(replace(each, spot=True) for each in SLICES)
    keep(settings.path, sample(settings, slices=spot))
    found = read(settings.path)
    assert found is not None
    assert found.slices == spot
    assert digest(replace(settings, slices=spot)) != digest(replace(settings, slices=SLICES))


def test_what_is_neither_spot_nor_not_is_passed_over(settings: Settings) -> None:
    keep(settings.path, sample(settings))
    told = json.loads(path_of(settings.path).read_text())
    told["slices"][0]["spot"] = "yes"
    path_of(settings.path).write_text(json.dumps(told))
    assert "spot is 'yes', neither true nor false" in str(settings_in_force(settings)[1])


@pytest.mark.parametrize("price", [-1, "much", float("nan"), float("inf"), 10**400], ids=str)
def test_what_is_no_price_is_passed_over(settings: Settings, price: object) -> None:
    keep(settings.path, sample(settings))
    told = json.loads(path_of(settings.path).read_text())
    told["slices"][0]["price"] = price
    path_of(settings.path).write_text(json.dumps(told))
    found, said = settings_in_force(settings)
    assert found == settings
    assert "holds no applied placement" in str(said)


@pytest.mark.parametrize("load", [-1, "much", float("nan"), 10**400], ids=str)
def test_what_is_no_load_is_passed_over(settings: Settings, load: object) -> None:
    keep(settings.path, sample(settings))
    told = json.loads(path_of(settings.path).read_text())
    told["loads"] = {"digits": {"requests": load, "rows": 1.0, "capacity": 2.0}}
    path_of(settings.path).write_text(json.dumps(told))
    assert settings_in_force(settings)[0] == settings
    told["loads"]["digits"]["requests"] = 1
    path_of(settings.path).write_text(json.dumps(told))
    assert settings_in_force(settings)[0] != settings


def test_what_was_kept_before_slices_had_prices_is_read(settings: Settings) -> None:
    keep(settings.path, sample(settings))
    told = json.loads(path_of(settings.path).read_text())
    for each in told["slices"]:
        del each["price"], each["spot"]
    path_of(settings.path).write_text(json.dumps(told))
    assert read(settings.path) == sample(settings)


GPU = SliceSpec(
    "g-1", (4, 5), 2, "cuda:0", Share.parse("mig:2g.35gb*2"), 1 << 30, 0.5, True, "gpu-nvidia-h200",
    instance="g cuda:0 0",
)  # fmt: skip


@pytest.mark.parametrize("spec", [SliceSpec("c", (0, 2), 2, memory_bytes=7, price=0.25, spot=True), GPU,
                                  replace(GPU, rehearsed=True, device="h-1", instance="")])  # fmt: skip
def test_a_slice_in_json_is_the_same_slice(spec: SliceSpec) -> None:
    assert read_slice(json.loads(json.dumps(told_slice(spec)))) == spec


def test_what_an_earlier_version_has_kept_still_holds(settings: Settings) -> None:
    written = told(settings)
    before = [
        {"name": each["name"], "cores": each["on"], "threads": each["threads"], "memory_bytes": 0,
         "price": 0.0, "spot": False, "device": "cpu", "kind": "", "rehearsed": False, "instance": "",
         "share": ""}
        for each in written["slices"]
    ]  # fmt: skip
    path_of(settings.path).write_text(json.dumps(written | {"format": 1, "slices": before}))
    assert read(settings.path) == sample(settings)


def test_a_rehearsed_device_that_departs_from_its_profiles_is_still_the_one_that_was_applied(
    settings: Settings,
) -> None:
    made_up = replace(GPU, rehearsed=True, device="h")
    devices = (DeviceSpec("h", "gpu-nvidia-h200", "mig", rehearse=True, rehearsal=RehearsalSpec(noise=0.1)),)
    rehearsed = replace(settings, devices=devices)
    kept = sample(rehearsed, slices=(*SLICES, made_up))
    keep(rehearsed.path, kept)
    assert applied(in_force(rehearsed, kept)) == kept
