"""An answer from elsewhere is taken only where the model could have given it to the question."""

from pathlib import Path

import pytest

from serving.cache.entries import KeptAnswer, entry_of
from serving.cache.soundness import fault_of
from serving.values.specs import ModelSpec, TensorSpec, VariantSpec
from serving.values.tensor import ANY, Tensor

SPEC = ModelSpec(
    "m", Path(), (TensorSpec("x", "FP32", (-1, 4)),),
    (TensorSpec("y", "FP32", (-1, 2)), TensorSpec("texts", "BYTES", (-1, -1)), TensorSpec("z", ANY, (-1,))),
    (VariantSpec("int8", None),), "int8", 1000, 8,
)  # fmt: skip
Y = Tensor("y", "FP32", (2, 2), bytes(16))
TEXTS = Tensor("texts", "BYTES", (2, 1), b"\x01\0\0\0a\0\0\0\0")
Z = Tensor("z", "INT8", (2,), bytes(2))


def entry(*outputs: Tensor, variant: str = "int8") -> KeptAnswer:
    return entry_of("m", variant, outputs, 0)


@pytest.mark.parametrize(
    "texts",
    [TEXTS, Tensor("texts", "BYTES", (2, 0), b""), Tensor("texts", "BYTES", (2, 3), bytes(24))],
)
def test_what_the_model_could_have_answered_is_sound(texts: Tensor) -> None:
    assert fault_of(entry(Y, texts, Z), SPEC, 2) == ""


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (entry(), "its outputs are [], expected ['y', 'texts', 'z']"),
        (entry(Y, TEXTS), "its outputs are ['y', 'texts']"),
        (entry(TEXTS, Y, Z), "its outputs are ['texts', 'y', 'z']"),
        (entry(Y, TEXTS, Z, Z), "'z', 'z']"),
        (entry(Y, TEXTS, Z, variant="fp64"), "the model has no variant 'fp64'"),
        (entry(Tensor("y", "INT32", (2, 2), bytes(16)), TEXTS, Z), "'y' is INT32, expected FP32"),
        (entry(Tensor("y", "FP32", (1000, 2), bytes(8000)), TEXTS, Z), "[1000, 2], expected [2, 2]"),
        (entry(Tensor("y", "FP32", (2, 3), bytes(24)), TEXTS, Z), "[2, 3], expected [2, 2]"),
        (entry(Tensor("y", "FP32", (4,), bytes(16)), TEXTS, Z), "[4], expected [2, 2]"),
        (entry(Y, Tensor("texts", "BYTES", (2, 1), TEXTS.data[:5]), Z), "elements of its output 'texts'"),
        (entry(Y, Tensor("texts", "BYTES", (2, 1), bytes(12)), Z), "elements of its output 'texts'"),
        (entry(Y, Tensor("texts", "BYTES", (2, 1 << 60), bytes(8)), Z), "elements of its output 'texts'"),
        (entry(Y, Tensor("texts", "BYTES", (2, 1), b"\xff" * 8), Z), "elements of its output 'texts'"),
        (entry(Y, TEXTS, Tensor("z", "INT8", (1,), bytes(1))), "[1], expected [2]"),
    ],
)
def test_what_it_could_not_have_answered_is_named(bad: KeptAnswer, said: str) -> None:
    assert said in fault_of(bad, SPEC, 2)
