"""A model that three variants vote on, and calls of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from serving.ports import Call, Reply
from serving.values.objectives import SelectionSpec
from serving.values.specs import ModelSpec, ServedModel, TensorSpec, Validation, VariantSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED

NAMES = ("a", "b", "c")
ACCURACY = {"a": 0.9, "b": 0.8, "c": 0.7}
CLASSES = 4


def validation(rows: int = 240) -> Validation:
    """Members that err apart: `a` on every 10th row, `b` on every 5th, `c` on three of 10, never together,
    so that all three are always right, and two as often as the better one."""
    labels = tuple(row // 20 % CLASSES for row in range(rows))
    wrong = {"a": {0}, "b": {1, 2}, "c": {3, 4, 5}}
    told = tuple(
        (name, tuple((label + (row // 2 % 10 in at)) % CLASSES for row, label in enumerate(labels)))
        for name, at in wrong.items()
    )
    return Validation(labels, told)


def selecting_model(policy: str, slo_us: int = 1_000_000, members: tuple[str, ...] = NAMES) -> ServedModel:
    """`m`: FP32 X [-1, 1] to FP32 SCORES [-1, 4] and the variant's name as INT8 WHO [-1, 1]."""
    spec = ModelSpec(
        name="m",
        folder=Path("nowhere"),
        inputs=(TensorSpec("X", "FP32", (-1, 1)),),
        outputs=(TensorSpec("WHO", "INT8", (-1, 1)), TensorSpec("SCORES", "FP32", (-1, CLASSES))),
        variants=tuple(
            VariantSpec(name, None, accuracy=ACCURACY[name], deterministic=True) for name in NAMES
        ),
        default_variant="a",
        slo_us=slo_us,
        batch_max=8,
        validation=validation(),
    )
    selection = SelectionSpec(policy, members, "SCORES")
    return ServedModel(spec, slo_us, NAMES, ("s",), selection=selection)


def ask(model: ServedModel, rows: int = 1, floor: float = 0.0, timeout_us: int | None = None) -> Call:
    """A call of `m` by an edge."""
    call = Call(model, [Tensor("X", "FP32", (rows, 1), bytes(4 * rows))], rows)
    call.objective = replace(model.own, accuracy_min=floor)
    call.timeout_us = timeout_us
    return call


def answer(variant: str, named: list[int] | np.ndarray, rows: int = 1, compute_us: int = 0) -> Reply:
    """What a variant computes if it is told to name these classes, or to give these scores."""
    reply = Reply(COMPLETED)
    reply.variant = variant
    reply.compute_us, reply.batch_rows = compute_us, 1
    scores = np.eye(CLASSES, dtype=np.float32)[named] if isinstance(named, list) else named
    reply.outputs = [
        Tensor("WHO", "INT8", (rows, 1), np.full(rows, ord(variant), np.int8).tobytes()),
        Tensor("SCORES", "FP32", scores.shape, scores.tobytes()),
    ]
    return reply
