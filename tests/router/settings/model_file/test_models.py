"""`model.yaml` and `build/accuracy.json`: what they become, and how a mistake is named."""

from pathlib import Path

import pytest

from router.settings import SettingsError, load_model
from serving.values.specs import PaddedSize, ParameterSpec, SizeHint, TensorSpec, VariantSpec
from tests.router.settings.samples import DIGITS, TEXT, model_faults, write_accuracy, write_model


def test_a_model_folder_becomes_its_spec(home: Path) -> None:
    folder = home / "models" / "digits"
    spec = load_model(folder)
    assert (spec.name, spec.folder, spec.description) == ("digits", folder, "Reads a digit.")
    assert spec.inputs == (TensorSpec("PIXELS", "FP32", (-1, 64)),)
    assert spec.outputs == (TensorSpec("SCORES", "FP32", (-1, 10)),)
    assert (spec.slo_us, spec.batch_max, spec.default_variant) == (25_000, 64, "cnn")
    assert spec.accuracy_metric == "top-1"
    options = (("bias", True), ("scale", 0.5), ("width", 64))
    assert spec.variants == (
        VariantSpec("linear", folder / "build" / "linear.safetensors", options, 0.964, deterministic=True),
        VariantSpec("cnn", folder / "build" / "cnn.safetensors", (), 1e-05, deterministic=False),
    )


def test_a_request_may_leave_out_an_optional_input(home: Path) -> None:
    folder = home / "models" / "digits"
    more = "FP32, shape: [-1, 64]}, {name: MASK, datatype: BOOL, shape: [-1, 64], optional: true}"
    write_model(folder, DIGITS.replace("FP32, shape: [-1, 64]}", more, 1))
    assert [each.optional for each in load_model(folder).inputs] == [False, True]
    hinted = TEXT.replace("inputs: [", "inputs: [{name: X, datatype: FP32, shape: [-1, 1]}, ", 1)
    hinted = hinted.replace("datatype: BYTES, ", "datatype: BYTES, optional: true, ", 1)
    (fault,) = model_faults(home / "models" / "minilm", hinted)
    assert "size_hint.input: 'TEXT' is optional; expected an input that every request has" in fault


def test_a_model_without_a_batch_states_whole_shapes(home: Path) -> None:
    folder = home / "models" / "digits"
    text = DIGITS.replace("batch_max: 64", "batch_max: 0").replace("[-1, 64]", "[8, -1]")
    write_model(folder, text)
    spec = load_model(folder)
    assert (spec.unbatched, spec.batch_max) == (True, 1)
    assert [spec.told(each) for each in (*spec.inputs, *spec.outputs)] == [(8, -1), (-1, 10)]
    assert [each.shape for each in spec.inputs] == [(-1, 8, -1)]
    write_model(folder, DIGITS)
    spec = load_model(folder)
    assert (spec.unbatched, spec.told(spec.inputs[0])) == (False, (-1, 64))


def test_hints_and_parameters_become_theirs(home: Path) -> None:
    spec = load_model(home / "models" / "minilm")
    assert spec.size_hint == SizeHint("TEXT", (64, 128))
    assert spec.parameters == (ParameterSpec("delay_ms", "int", 0, 0, 60000),)
    assert spec.variants == (VariantSpec("fp32", None), VariantSpec("int8", None))
    assert (spec.accuracy_metric, spec.slo_us) == ("", 250_500)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: digits", "name:", "model.yaml:1:1: name: this key is required"),
        ("description:", "descripton:", "model.yaml:2:1: descripton: unknown key; got 'descripton', "),
        ("datatype: FP32", "datatype: fp32", "3:35: inputs[0].datatype: unknown datatype; got 'fp32'"),
        ("datatype: FP32", "datatype: fp32", "(did you mean FP32?)"),
        ("[-1, 64]}", "[-1, 64], optional: true}", "inputs[0].optional: the first input is optional; "),
        ("[-1, 64]}", "[-1, 64], optional: 1}", "inputs[0].optional: not true or false; got 1"),
        ("[-1, 64]", "[64]", "inputs[0].shape: not a shape; got [64], expected -1 (the batch)"),
        ("[-1, 64]", "[-1, 0]", "inputs[0].shape: not a shape; got [-1, 0]"),
        ("[-1, 64]", "[-1, x y]", "3:48: inputs[0].shape: not a shape; got [-1, 'x y'], expected sizes"),
        ("inputs: [{name: PIXELS, datatype: FP32, shape: [-1, 64]}]", "inputs: []", "3:9: inputs: empty"),
        ("FP32, shape: [-1, 64]}", "FP32, shape: [-1, 64], dims: 3}", "inputs[0].dims: unknown key"),
        ("batch_max: 64", "batch_max: -1", "batch_max: too small; got -1, expected 0 or more"),
        ("[-1, 64]", "[]", "inputs[0].shape: not a shape; got [], expected sizes of 1 or more"),
        ("deterministic: true", "deterministic: 'yes'", "deterministic: not true or false; got 'yes'"),
        ("deterministic: true", "decoupled: 'yes'", "decoupled: not true or false; got 'yes'"),
        (
            "deterministic: true",
            "decoupled: true\ndeterministic: true",
            "decoupled: with decoupled: true a request has any number of answers, which are never kept",
        ),
        ("default_variant: cnn", "default_variant: cmn", "unknown variant; got 'cmn', expected"),
        ("{name: linear,", "{name: cnn,", "variants[1].name: 'cnn' is used twice"),
        ("width: 64", "width: [64]", "variants[0].options.width: not a single value; got a list of 1"),
        ("width: 64", "width: .nan", "variants[0].options.width: not a single value; got nan"),
        ("build/cnn.safe", "build/cnm.safe", "variants[1].artifact: 'build/cnm.safetensors' is missing; "),
    ],
)  # fmt: skip
def test_a_mistake_is_named_in_model_yaml(home: Path, old: str, new: str, expected: str) -> None:
    assert old in DIGITS
    (fault,) = model_faults(home / "models" / "digits", DIGITS.replace(old, new, 1))
    assert fault.startswith("model.yaml:")
    assert expected in fault


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("input: TEXT", "input: TXT", "size_hint.input: unknown input; got 'TXT', expected TEXT"),
        ("BYTES", "ANY", "size_hint.input: 'TEXT' has any datatype; expected an input with one"),
        (
            "unit: bytes",
            "unit: words",
            "size_hint.unit: unknown value; got 'words', expected 'bytes', 'text' or 'values'",
        ),
        ("[64, 128]", "[128, 64]", "size_hint.buckets: not ascending sizes; got [128, 64]"),
        ("[64, 128]", "[]", "size_hint.buckets: not ascending sizes; got []"),
        ("type: int", "type: integer", "parameters[0].type: unknown type; got 'integer', expected bool"),
        ("default: 0", "default: no", "parameters[0].default: of another type; got false, expected type int"),
        ("default: 0", "default: 0.5", "parameters[0].default: of another type; got 0.5"),
        ("default: 0", "default: -1", "parameters[0].default: below the minimum; got -1, expected 0 or more"),
        ("default: 0", "default: 70000", "above the maximum; got 70000, expected 60000 or less"),
        ("maximum: 60000", "maximum: -1", "parameters[0].maximum: below the minimum; got -1"),
        ("type: int, default: 0", "type: string, default: a", "parameters[0].minimum: type string has no"),
        (
            "maximum: 60000", "maximum: 60000, time_unit: h",
            "parameters[0].time_unit: unknown time unit; got 'h', expected us, ms or s",
        ),
        (
            "type: int, default: 0, minimum: 0, maximum: 60000", "type: bool, default: true, time_unit: ms",
            "parameters[0].time_unit: type bool is no time; expected this key only with int or float",
        ),
        ("name: delay_ms", "name: timeout", "parameters[0].name: 'timeout' is the gateway's own"),
        (
            "parameters:", "priorities: {levels: 3, default: 4}\nparameters:",
            "priorities.default: no level; got 4, expected 1 to 3",
        ),
        (
            "parameters:", "priorities: {levels: 1, default: 1}\nparameters:",
            "priorities.levels: too small; got 1",
        ),
        (
            "parameters:\n  - {name: delay_ms",
            "priorities: {levels: 2, default: 1}\nparameters:\n  - {name: priority",
            "priorities: the parameter 'priority' states a request's level",
        ),
    ],
)  # fmt: skip
def test_hints_and_parameters_are_held_against_each_other(
    home: Path, old: str, new: str, expected: str
) -> None:
    assert old in TEXT
    (fault,) = model_faults(home / "models" / "minilm", TEXT.replace(old, new, 1))
    assert expected in fault


def test_tensor_and_parameter_names_are_each_used_once(tmp_path: Path) -> None:
    text = TEXT.replace("inputs: [", "inputs: [{name: TEXT, datatype: BYTES, shape: [-1]}, ")
    text += "  - {name: delay_ms, type: bool, default: true}\n"
    assert [fault.split(": ")[1] for fault in model_faults(tmp_path / "m", text)] == [
        "inputs[1].name", "parameters[1].name"
    ]  # fmt: skip


def test_a_model_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    (fault,) = model_faults(folder, DIGITS)
    assert fault.startswith("model.yaml:11:30: variants[0].artifact: 'build/linear.safetensors' is missing; ")
    assert fault.endswith(f"{folder} is not built: run python build.py")


def test_a_file_that_no_build_makes_is_expected_where_it_would_be(tmp_path: Path) -> None:
    (fault,) = model_faults(tmp_path, DIGITS.replace("build: build.py\n", ""))
    assert fault.endswith(
        "'build/linear.safetensors' is missing; expected a file or folder build/linear.safetensors"
    )


def test_a_sample_of_a_clone_is_built_by_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.settings.model_file.models.SAMPLES", tmp_path)
    monkeypatch.setattr("router.settings.model_file.models.MAKEFILE", tmp_path / "Makefile")
    assert model_faults(tmp_path / "digits", DIGITS)[0].endswith("is not built: run python build.py")
    (tmp_path / "Makefile").touch()
    (fault,) = model_faults(tmp_path / "digits", DIGITS)
    assert fault.endswith("is not built: run `make setup`, or python build.py")


PADDED = """\
name: padded
inputs:
  - {name: ids, datatype: INT64, shape: [-1, tokens], pad: 0}
  - {name: mask, datatype: BOOL, shape: [-1, tokens], mask: true}
outputs: [{name: states, datatype: FP32, shape: [-1, tokens, 4]}]
batch_max: 8
size_hint: {input: ids, buckets: [16, 64]}
"""


def test_the_largest_size_alone_has_two_buckets_an_octave(tmp_path: Path) -> None:
    spec = load_model(write_model(tmp_path / "m", PADDED.replace("[16, 64]", "128")))
    assert spec.sizes == (6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    assert load_model(write_model(tmp_path / "n", PADDED.replace("[16, 64]", "1"))).sizes == (1,)


def test_rows_of_unlike_size_may_share_a_batch(tmp_path: Path) -> None:
    spec = load_model(write_model(tmp_path / "m", PADDED))
    assert spec.padded == (PaddedSize("tokens", 0, 1),)
    assert spec.size_hint == SizeHint("ids", (16, 64), "values")
    ids, mask = spec.inputs
    assert (ids.shape, ids.names, ids.pad, ids.mask) == ((-1, -1), ("", "tokens"), 0, False)
    assert (mask.optional, mask.pad, mask.mask) == (True, 0, True)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tokens], pad", "-1], pad", "inputs[0].pad: nothing to fill up; expected numbers, with a name for"),
        ("pad: 0", "pad: 0.5", "inputs[0].pad: INT64 has no such value; got 0.5"),
        ("INT64, shape: [-1, tokens], pad: 0", "UINT8, shape: [-1, tokens], pad: 256", "UINT8 has no such"),
        ("mask: true", "optional: true", "inputs[1].shape: rows have unlike tokens, which other inputs fill"),
        ("tokens], mask", "words], mask", "inputs[1].mask: no padding to say of it; expected numbers, or"),
        ("mask: true", "mask: true, pad: 1", "inputs[1].pad: a mask is 0 where a row is filled up; got 1"),
        ("size_hint: {input: ids, buckets: [16, 64]}\n", "", "inputs: rows of unlike size share batches"),
        ("input: ids", "input: mask", "size_hint.input: 'mask' is a mask; expected an input that every"),
        ("input: ids,", "input: ids, unit: text,", "size_hint.unit: 'ids' is INT64; got text, expected"),
        ("FP32, shape: [-1, tokens, 4]", "BYTES, shape: [-1, tokens]", "outputs[0].shape: answers are cut"),
        ("[-1, tokens], pad", "[rows, tokens], pad", "inputs[0].shape: not a shape; got ['rows', 'tokens']"),
    ],
)
def test_a_mistake_in_padding_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in PADDED
    faults = model_faults(tmp_path / "m", PADDED.replace(old, new, 1))
    assert any(expected in fault for fault in faults), faults


SMALLEST = """\
name: small
inputs: [{name: X, datatype: FP32, shape: [-1, 4]}]
outputs: [{name: Y, datatype: FP32, shape: [-1, 4]}]
batch_max: 8
"""


def test_what_can_be_derived_need_not_be_said(tmp_path: Path) -> None:
    spec = load_model(write_model(tmp_path / "m", SMALLEST))
    assert spec.variants == (VariantSpec("default", None),)
    assert (spec.default_variant, spec.slo_us) == ("default", 0)


def test_the_one_variant_that_there_is_answers(tmp_path: Path) -> None:
    spec = load_model(write_model(tmp_path / "m", SMALLEST + "variants: [{name: big}]\n"))
    assert spec.default_variant == "big"


def test_of_several_variants_one_has_to_be_said_to_answer(tmp_path: Path) -> None:
    faults = model_faults(tmp_path / "m", SMALLEST + "variants: [{name: big}, {name: small}]\n")
    assert faults == [
        "model.yaml:5:1: variants: several variants, and none is said to answer; expected default_variant: "
        "big or small"
    ]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"cnn": 1.01}, "build/accuracy.json:2:10: cnn: not an accuracy; got 1.01, expected a number"),
        ({"cnn": True}, "build/accuracy.json:2:10: cnn: not an accuracy; got true"),
        ({"cnn": float("nan")}, "build/accuracy.json:2:10: cnn: not an accuracy; got 'NaN'"),
        ({"cmn": 0.5}, "build/accuracy.json:2:3: cmn: unknown variant; got 'cmn', expected linear or cnn"),
        ([0.5], "build/accuracy.json:1:1: not a mapping; got a list of 1"),
    ],
)  # fmt: skip
def test_an_impossible_accuracy_is_named_in_its_own_file(home: Path, table: object, expected: str) -> None:
    folder = home / "models" / "digits"
    write_accuracy(folder, table)
    (fault,) = model_faults(folder, DIGITS)
    assert fault.startswith(expected)


def test_an_accuracy_file_that_is_no_json_is_a_problem(home: Path) -> None:
    folder = home / "models" / "digits"
    (folder / "build" / "accuracy.json").write_text('{"cnn": ')
    (fault,) = model_faults(folder, DIGITS)
    assert fault.startswith("build/accuracy.json:1:9: not valid YAML")


def test_a_variant_without_a_measured_accuracy_has_none(home: Path) -> None:
    folder = home / "models" / "digits"
    write_accuracy(folder, {"linear": 1})
    assert [variant.accuracy for variant in load_model(folder).variants] == [1.0, None]


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"is no model folder: it has no model\.yaml"):
        load_model(tmp_path)
    write_model(tmp_path / "digits", DIGITS)
    with pytest.raises(SettingsError, match=r"no such folder; .* \(did you mean .*/digits\?\)"):
        load_model(tmp_path / "digit")


ONE_INPUT = """\
name: m
inputs: [{name: X, datatype: FP32, shape: [-1]}]
outputs:
  - {name: Y, datatype: FP32, shape: [-1], parameter: %s}
  - {name: Z, datatype: %s, shape: %s, parameter: true}
batch_max: 4
slo_ms: 10
"""


@pytest.mark.parametrize(
    ("written", "where", "said"),
    [
        (("true", "FP32", "[-1]"), "outputs", "all are parameters"),
        (("false", "FP32", "[-1, 2]"), "outputs[1].parameter", "'Z' has no single value a row"),
        (("false", "ANY", "[-1, 1]"), "outputs[1].parameter", "and a datatype"),
    ],
)
def test_an_output_that_is_a_parameter_has_one_value_a_row(
    tmp_path: Path, written: tuple[str, str, str], where: str, said: str
) -> None:
    (fault,) = model_faults(tmp_path, ONE_INPUT % written)
    assert where in fault
    assert said in fault


def test_outputs_that_are_parameters_are_marked(tmp_path: Path) -> None:
    spec = load_model(write_model(tmp_path, ONE_INPUT % ("false", "BYTES", "[-1, 1]")))
    assert [each.parameter for each in spec.outputs] == [False, True]
