"""Versions of a model: which numbered folders an entry serves, under which names, and where files lie."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from router.settings import SettingsError, load_model, load_settings
from router.settings.gateway import read_served
from router.settings.model_file.revisions import revision_of
from router.settings.served.ends import read_ends
from router.settings.served.versions import load_versions
from router.verbs.plan import plan_lines
from serving.values.specs import ServedModel
from tests.router.settings.samples import gateway_faults, write_gateway

STATED = """
name: m
inputs: [{name: x, datatype: FP32, shape: [-1, 4]}]
outputs: [{name: y, datatype: FP32, shape: [-1, 4]}]
batch_max: 8
slo_ms: 50
"""
ROLLOUT = "rollout: {steps: [50]}"


def model(home: Path, *versions: int, more: str = "") -> Path:
    """A model folder with these versions, each with its code."""
    folder = home / "models" / "m"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.yaml").write_text(STATED + more)
    for version in versions:
        (folder / str(version)).mkdir(exist_ok=True)
        (folder / str(version) / "model.py").write_text(f"VERSION = {version}\n")
    return folder


def served(home: Path, entry: str = "") -> list[ServedModel]:
    text = f"slices: [{{name: a, cores: 1}}]\nmodels:\n  - {{path: models/m, {entry}}}\n"
    return list(load_settings(write_gateway(home, text)).models)


def names(models: list[ServedModel]) -> dict[str, int]:
    return {each.name: each.spec.version for each in models}


def keep(home: Path, states: Mapping[int, str], revision: str = "") -> None:
    """Keep that rollouts of these versions stand so."""
    kept = {
        f"m@{version}": {"of": "m", "revision": revision, "state": state, "why": "w"}
        for version, state in states.items()
    }
    (home / ".penstock").mkdir(exist_ok=True)
    (home / ".penstock" / "penstock.rollouts.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("", {"m": 10}),
        ("version_policy: {latest: 2}", {"m": 10, "m@3": 3}),
        ("version_policy: {latest: {num_versions: 2}}", {"m": 10, "m@3": 3}),
        ("version_policy: {latest: 9}", {"m": 10, "m@1": 1, "m@2": 2, "m@3": 3}),
        ("version_policy: all", {"m": 10, "m@1": 1, "m@2": 2, "m@3": 3}),
        ("version_policy: {all: {}}", {"m": 10, "m@1": 1, "m@2": 2, "m@3": 3}),
        ("version_policy: {specific: [3, 1]}", {"m": 3, "m@1": 1}),
        ('version_policy: {specific: {versions: ["2"]}}', {"m": 2}),
    ],
)  # fmt: skip
def test_the_policy_chooses_and_the_highest_has_the_models_name(
    home: Path, policy: str, found: dict[str, int]
) -> None:
    model(home, 1, 2, 3, 10)
    assert names(served(home, policy)) == found


def test_model_yaml_may_state_the_policy_and_the_entry_comes_first(home: Path) -> None:
    model(home, 1, 2, more="version_policy: all\n")
    assert names(served(home)) == {"m": 2, "m@1": 1}
    assert names(served(home, "version_policy: {latest: 1}")) == {"m": 2}


def test_each_version_has_its_own_files_and_shares_the_others(home: Path) -> None:
    folder = model(home, 1, 2, more="variants: [{name: a, artifact: weights.bin}]\n")
    (folder / "1" / "weights.bin").write_text("one")
    (folder / "weights.bin").write_text("all")
    (folder / "2" / "model.py").unlink()
    (folder / "model.py").write_text("VERSION = 0\n")
    first, second = load_model(folder, 1), load_model(folder)
    assert first.variants[0].artifact == folder / "1" / "weights.bin"
    assert (first.folder, first.home, first.code) == (folder / "1", folder, None)
    assert second.variants[0].artifact == folder / "weights.bin"
    assert (second.version, second.code) == (2, folder / "model.py")
    assert (first.model_name, first.model_version) == ("m", "1")


def test_a_version_with_a_model_yaml_of_its_own_is_as_that_says(home: Path) -> None:
    folder = model(home, 1, 2)
    (folder / "2" / "model.yaml").write_text(STATED.replace("batch_max: 8", "batch_max: 3"))
    assert (load_model(folder, 1).batch_max, load_model(folder, 2).batch_max) == (8, 3)


def test_a_version_cannot_be_another_model(home: Path) -> None:
    folder = model(home, 1, 2)
    (folder / "2" / "model.yaml").write_text(STATED.replace("name: m", "name: other"))
    with pytest.raises(SettingsError, match=r"2/model\.yaml:2:7: name: another model; got 'other'.* 'm', as"):
        load_model(folder)


def test_a_numbered_folder_can_be_served_by_itself(home: Path) -> None:
    folder = model(home, 1, 2)
    text = "slices: [{name: a, cores: 1}]\nmodels: [{path: models/m/1}]\n"
    (found,) = load_settings(write_gateway(home, text)).models
    assert (found.name, found.spec.version, found.spec.home) == ("m", 1, folder)


@pytest.mark.parametrize("named", ["variants: [{name: a, artifact: 1/model.py}]", "code: 1/model.py"])
def test_a_model_yaml_that_names_a_numbered_folder_itself_has_no_versions(home: Path, named: str) -> None:
    folder = model(home, 1, 2, more=named)
    assert load_model(folder).version == 0
    assert names(served(home)) == {"m": 0}


def test_folders_with_other_names_are_no_versions(home: Path) -> None:
    folder = model(home, 2)
    for name in ("01", "0", "x", "3x"):
        (folder / name).mkdir()
    (folder / "7").write_text("a file")
    assert names(served(home, "version_policy: all")) == {"m": 2}


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("version_policy: {latest: 0}", "version_policy: not a version policy; got a mapping, expected "
         "all, {latest: 2} or {specific: [1, 3]}"),
        ("version_policy: newest", "version_policy: not a version policy; got 'newest', expected "
         "all, {latest: 2} or {specific: [1, 3]}"),
        ("version_policy: {specific: [1, 7]}", "version_policy: no version 7; there are 1, 2"),
        ("version_policy: {specific: []}", "version_policy: not a version policy; got a mapping, "
         "expected all, {latest: 2} or {specific: [1, 3]}"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_policy_is_named_with_its_place(home: Path, entry: str, fault: str) -> None:
    model(home, 1, 2)
    text = f"models: [{{path: models/m, {entry}}}]\n"
    (found,) = gateway_faults(home, text)
    assert found.startswith("penstock.yaml:1:")
    assert found.endswith(f"models[0].{fault}")


def test_a_policy_or_a_rollout_without_versions_is_a_fault(home: Path) -> None:
    model(home)
    (found,) = gateway_faults(home, "models: [{path: models/m, version_policy: all}]\n")
    assert found.endswith("has no versions, which are numbered folders; expected no such key")
    (found,) = gateway_faults(home, f"models: [{{path: models/m, {ROLLOUT}}}]\n")
    assert "expected of: and a model, or a folder with several versions" in found


def test_a_faulty_version_is_named_by_its_file(home: Path) -> None:
    folder = model(home, 1, 2)
    (folder / "1" / "model.yaml").write_text("name: m\n")
    with pytest.raises(SettingsError, match=r"m/1/model\.yaml"):
        served(home, "version_policy: all")


def test_a_fault_of_all_versions_is_named_once(home: Path) -> None:
    model(home, 1, 2)
    text = "slices: [{name: a, cores: 1}]\nmodels: [{path: models/m, version_policy: all, slices: [b]}]\n"
    assert len(gateway_faults(home, text)) == 1


def test_with_a_rollout_the_highest_is_the_candidate_of_the_one_before(home: Path) -> None:
    model(home, 1, 2, 3)
    present, candidate = served(home, ROLLOUT)
    assert (present.name, present.spec.version, present.rollout) == ("m", 2, None)
    assert (candidate.name, candidate.spec.version) == ("m@3", 3)
    assert candidate.rollout is not None
    assert candidate.rollout.of == "m"


def test_check_says_which_version_has_the_models_name_and_which_is_the_candidate(home: Path) -> None:
    model(home, 1, 2, 3)
    served(home, f"version_policy: all, {ROLLOUT}")
    lines = [*plan_lines(load_settings(home / "penstock.yaml"))]
    assert [line.partition(" SLO")[0] for line in lines] == ["m: version 2,", "m@1:", "m@3:"]
    assert "candidate for m: 50, 100 %" in lines[2]


def test_a_candidate_replaces_one_of_the_versions_that_the_policy_names(home: Path) -> None:
    model(home, 1, 2, 3)
    assert names(served(home, f"version_policy: {{specific: [1, 3]}}, {ROLLOUT}")) == {"m": 1, "m@3": 3}


def test_the_only_version_has_no_rollout(home: Path) -> None:
    model(home, 1)
    (only,) = served(home, ROLLOUT)
    assert (only.name, only.rollout) == ("m", None)


def test_a_candidate_that_was_promoted_is_the_present_version(home: Path) -> None:
    model(home, 1, 2)
    keep(home, {2: "promoted"}, revision_of_candidate(home))
    (present,) = served(home, ROLLOUT)
    assert (present.name, present.spec.version, present.rollout) == ("m", 2, None)


def test_a_candidate_with_other_files_than_the_promoted_ones_is_rolled_out_again(home: Path) -> None:
    model(home, 1, 2)
    keep(home, {2: "promoted"}, "other files")
    assert names(served(home, ROLLOUT)) == {"m": 1, "m@2": 2}


@pytest.mark.parametrize(
    ("states", "present"),
    [
        ({}, 3),
        ({2: "promoted", 3: "rolled back"}, 2),
        ({2: "promoted", 3: "canary"}, 2),  # it was not judged when the next one came
        ({3: "rolled back"}, 2),
        ({1: "promoted", 2: "aborted", 3: "rolled back"}, 1),
        ({1: "aborted", 2: "aborted", 3: "rolled back"}, 3),  # something must answer
    ],
)
def test_the_present_version_is_the_last_that_proved_good(
    home: Path, states: Mapping[int, str], present: int
) -> None:
    model(home, 1, 2, 3, 4)
    keep(home, states)
    assert names(served(home, ROLLOUT)) == {"m": present, "m@4": 4}
    assert read_ends(home / "penstock.yaml").keys() == {f"m@{version}" for version in states}


def test_a_candidate_must_take_and_give_what_the_present_version_does(home: Path) -> None:
    folder = model(home, 1, 2)
    (folder / "2" / "model.yaml").write_text(STATED.replace("[-1, 4]", "[-1, 5]"))
    (found,) = gateway_faults(home, f"models: [{{path: models/m, {ROLLOUT}}}]\n")
    assert "m@2 cannot take the place of m: its inputs are others" in found


def test_an_entry_is_read_again_with_its_versions_of_now(home: Path) -> None:
    model(home, 1, 2)
    settings = load_settings(write_gateway(home, "models: [{path: models/m, version_policy: {latest: 2}}]\n"))
    model(home, 3)
    assert settings.document is not None
    assert names(read_served(settings.document, 0)) == {"m": 3, "m@2": 2}


def test_a_model_that_no_entry_names_is_served_as_its_model_yaml_says(home: Path) -> None:
    folder = model(home, 1, 2, 3, more="version_policy: {latest: 2}\n")
    assert [(each.name, each.version) for each in load_versions(folder)] == [("m", 3), ("m@2", 2)]


def revision_of_candidate(home: Path) -> str:
    return revision_of(served(home, "version_policy: {specific: [2]}")[0])


def test_versions_with_files_of_equal_sizes_and_times_are_of_two_revisions(home: Path) -> None:
    folder = model(home, 1, 2)
    for file in sorted(folder.rglob("*")):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    first, second = served(home, "version_policy: all")
    assert revision_of(first) != revision_of(second)
