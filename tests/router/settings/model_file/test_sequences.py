"""`sequence:` of a model.yaml: what it says arrives, and what is wrong with it is named with its place."""

from pathlib import Path

import pytest

from router.settings import SettingsError, load_model, load_settings
from serving.values.sequences import ControlSpec, SequenceSpec, StateSpec

MODEL = """\
name: m
inputs: [{name: X, datatype: FP32, shape: [-1, 4]}]
outputs: [{name: Y, datatype: FP32, shape: [-1, 3]}]
batch_max: 4
slo_ms: 10
"""


def written(home: Path, sequence: str, more: str = "") -> Path:
    (home / "model.yaml").write_text(f"{MODEL}{more}sequence: {sequence}\n")
    (home / "model.py").touch()
    return home


def test_an_empty_mapping_is_direct_with_a_slot_for_each_row(tmp_path: Path) -> None:
    assert load_model(written(tmp_path, "{}")).sequence == SequenceSpec("direct", 4, 1_000_000)


def test_a_model_without_the_key_has_no_sequences(tmp_path: Path) -> None:
    assert load_model(written(tmp_path, "null")).sequence is None


def test_all_keys_arrive(tmp_path: Path) -> None:
    said = """
  strategy: oldest
  slots: 9
  idle_s: 0.5
  controls: [{kind: start, name: S}, {kind: ready, name: R, datatype: BOOL}, {kind: corrid, name: I}]
  state: [{input: A, output: B, datatype: FP16, shape: [2, 3]}]"""
    assert load_model(written(tmp_path, said)).sequence == SequenceSpec(
        "oldest",
        9,
        500_000,
        (
            ControlSpec("start", "S", "INT32"),
            ControlSpec("ready", "R", "BOOL"),
            ControlSpec("corrid", "I", "UINT64"),
        ),
        (StateSpec("A", "B", "FP16", (2, 3)),),
    )


STATE = "{input: A, output: B, datatype: FP32, shape: [1]}"


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        ("{strategy: newest}", "unknown strategy; got 'newest'"),
        ("{slots: 5}", "too many; got 5, expected at most batch_max, 4"),
        ("{slots: 0}", "too small; got 0, expected 1 or more"),
        ("{idle_s: 0}", "too small"),
        ("{max_candidate_sequences: 4}", "max_candidate_sequences"),
        ("{controls: [{kind: begin, name: S}]}", "unknown kind of control; got 'begin'"),
        ("{controls: [{kind: start, name: X}]}", "'X' is used twice; each needs its own name"),
        ("{controls: [{kind: start, name: S}, {kind: start, name: T}]}", "'start' is stated twice"),
        ("{controls: [{kind: start, name: S, datatype: UINT64}]}", "unknown datatype of start; got 'UINT64'"),
        ("{controls: [{kind: corrid, name: S, datatype: FP32}]}", "unknown datatype of corrid; got 'FP32'"),
        ("{state: [{input: A, output: Y, datatype: FP32, shape: [1]}]}", "'Y' is used twice"),
        ("{state: [{input: A, output: B, datatype: BYTES, shape: [1]}]}", "unknown datatype of a state"),
        ("{state: [{input: A, output: B, datatype: FP32, shape: [-1]}]}", "too small; got -1"),
        (f"{{state: [{STATE}, {STATE.replace('B', 'C')}]}}", "'A' is used twice"),
        (
            "{state: [{input: A, output: B, datatype: FP64, shape: [99999999]}]}",
            "too large; got '4 slots of 799",
        ),
        ("[direct]", "not a mapping"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, sequence: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_model(written(tmp_path, sequence))
    (problem,) = caught.value.problems
    assert sentence in str(problem)
    assert problem.line == 6


@pytest.mark.parametrize("more", ["deterministic: true\n", "variants: [{name: a, deterministic: true}]\n"])
def test_answers_that_follow_from_a_sequence_are_not_deterministic(tmp_path: Path, more: str) -> None:
    with pytest.raises(SettingsError, match="expected no deterministic: true"):
        load_model(written(tmp_path, "{}", more))


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("cache: true", "each answer of 'm' follows from its sequence"),
        ("selection: {policy: ensemble, members: [a, b]}", "has sequences, and each stays on one variant"),
    ],
)
def test_what_would_answer_a_request_twice_or_for_others_is_refused(
    tmp_path: Path, key: str, sentence: str
) -> None:
    written(tmp_path, "{}", "variants: [{name: a}, {name: b}]\ndefault_variant: a\n")
    (tmp_path / "penstock.yaml").write_text(f"models:\n  - path: .\n    {key}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path / "penstock.yaml")
    assert sentence in str(caught.value)


def test_a_cache_for_all_models_leaves_one_with_sequences_out(tmp_path: Path) -> None:
    written(tmp_path, "{}")
    (tmp_path / "penstock.yaml").write_text("cache: {}\nmodels:\n  - path: .\n")
    (model,) = load_settings(tmp_path / "penstock.yaml").models
    assert not model.cache


def test_a_decoupled_model_has_no_sequences(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="and a sequence counts one; expected decoupled: false"):
        load_model(written(tmp_path, "{}", "decoupled: true\n"))


def test_sequences_need_a_batch(tmp_path: Path) -> None:
    model = MODEL.replace("batch_max: 4", "batch_max: 0").replace("-1, ", "")
    written(tmp_path, "{}")
    (tmp_path / "model.yaml").write_text(f"{model}sequence: {{}}\n")
    with pytest.raises(SettingsError, match="each sequence has a row of the batch; got 0"):
        load_model(tmp_path)
