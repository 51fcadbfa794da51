"""Promises that each sample model keeps."""

from contextlib import suppress

import numpy as np
import pytest

from tests.models.samples import MODELS, code, definition, load, loaded, measured, variants

NAMES = ("digits", "identity", "minilm", "mlp", "resnet50", "simple")
DECOUPLED = ("repeat",)
DTYPES = {"FP32": np.float32, "INT32": np.int32, "UINT8": np.uint8, "BYTES": np.object_}
WITH_SEQUENCES = ("accumulate",)
"""Their inputs are not all that they get: the worker adds state."""
VARIANTS = [(model, variant) for model in NAMES for variant in variants(model)]


def test_these_are_all_the_models() -> None:
    there = sorted(path.parent.name for path in MODELS.glob("*/model.yaml"))
    assert there == sorted((*NAMES, *DECOUPLED, *WITH_SEQUENCES))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "variant"), VARIANTS)
@pytest.mark.parametrize("rows", [1, 3])
def test_a_sample_has_the_declared_inputs_and_its_answer_the_declared_outputs(
    model: str, variant: str, rows: int
) -> None:
    inputs = loaded(model, variant).sample(rows, 40)
    outputs = loaded(model, variant).predict(inputs, {})
    for declared, arrays in (("inputs", inputs), ("outputs", outputs)):
        specs = definition(model)[declared]
        assert set(arrays) == {spec["name"] for spec in specs}
        for spec in specs:
            array = arrays[spec["name"]]
            assert array.shape[0] == rows
            assert array.ndim == len(spec["shape"])
            assert all(want in (-1, got) for want, got in zip(spec["shape"], array.shape, strict=True))
            assert spec["datatype"] == "ANY" or array.dtype == DTYPES[spec["datatype"]]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "variant"), VARIANTS)
def test_a_reloaded_variant_answers_the_same_to_the_bit(model: str, variant: str) -> None:
    inputs = loaded(model, variant).sample(2, 60)
    first, again = loaded(model, variant).predict(inputs, {}), load(model, variant).predict(inputs, {})
    for name, array in first.items():
        assert np.array_equal(array, again[name])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["digits", "mlp", "resnet50"])
def test_read_only_inputs_are_taken_without_a_warning(model: str) -> None:
    variant = loaded(model, definition(model)["default_variant"])
    inputs = variant.sample(2, 0)
    free = variant.predict(inputs, {})
    for array in inputs.values():
        array.flags.writeable = False
    locked = variant.predict(inputs, {})
    assert all(np.array_equal(array, locked[name]) for name, array in free.items())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["digits", "minilm", "mlp", "resnet50"])
def test_weights_and_inputs_go_to_the_device_that_the_worker_names(model: str) -> None:
    """To "meta", which every torch has: it refuses what lies elsewhere, and has no data to give back."""
    variant = load(model, definition(model)["default_variant"], device="meta")
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        variant.predict(variant.sample(2, 60), {})


@pytest.mark.parametrize("model", ["digits", "minilm"])
def test_the_build_measured_each_variant_and_no_other(model: str) -> None:
    assert list(measured(model)) == variants(model)


def test_repeat_answers_each_number_and_leaves_out_rows_without_clients() -> None:
    model = code("repeat").load(None, {})
    inputs = model.sample(2, 0)
    stream = model.stream(inputs, {})
    found = [next(stream)]
    with suppress(StopIteration):
        while True:
            found.append(stream.send(frozenset((1,)) if len(found) > 2 else frozenset()))
    answers = [(row, None if out is None else int(out["OUT"][0, 0])) for row, out in found]
    assert answers == [(0, 0), (1, 4), (0, 1), (0, 2), (0, 3), (0, None)]
    for _, outputs in found[:-1]:
        for spec in definition("repeat")["outputs"]:
            assert outputs[spec["name"]].shape == (1, 1)
