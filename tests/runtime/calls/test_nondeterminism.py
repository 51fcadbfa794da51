"""A variant that says that it is deterministic and is not: no answer of it is kept, and it is said."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.ports import Call
from serving.runtime.calls.nondeterminism import Doubts
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED
from tests.builders import model_spec, served
from tests.runtime.house import House, house
from tests.runtime.recorder import write_model

pytestmark = pytest.mark.live

MODEL = """\
name: {name}
inputs: [{{name: X, datatype: FP32, shape: [-1, 4]}}]
outputs: [{{name: Y, datatype: FP32, shape: [-1, 4]}}]
batch_max: 4
slo_ms: 5000
deterministic: true
default_variant: a
variants: [{{name: a}}]
"""


def written(folder: Path, predict: str) -> Path:
    write_model(folder, predict)
    (folder / "model.yaml").write_text(MODEL.format(name=folder.name))
    return folder


async def asked_twice(here: House, name: str) -> list[str]:
    """What the cache did each time."""
    told = []
    for _ in range(2):
        row = np.ones((1, 4), np.float32)
        call = Call(here.gateway.models[name], [Tensor("X", "FP32", (1, 4), row.tobytes())], 1)
        reply = await here.ask(call)[1]
        assert reply.outcome is COMPLETED
        told.append(reply.cache)
    return told


async def test_answers_that_differ_are_computed_each_time_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draws = written(tmp_path / "draws", "return {'Y': np.random.default_rng().random((len(inputs['X']), 4))}")
    adds = written(tmp_path / "adds", "return {'Y': inputs['X'] + 1}")
    with caplog.at_level(logging.WARNING):
        async with house(tmp_path, models=(draws, adds)) as here:
            assert await asked_twice(here, "draws") == ["", ""]
            assert await asked_twice(here, "adds") == ["miss", "hit"]
            assert [*here.gateway.doubts.of(here.gateway.models["draws"])] == ["a"]
            assert not here.gateway.doubts.of(here.gateway.models["adds"])
    (said,) = [each for each in caplog.messages if "deterministic" in each]
    assert said.startswith(
        "no answer of draws a is kept: it says that it is deterministic, "
        "but for one sample its output 'Y' was 0."
    )


def test_what_was_found_holds_for_the_files_that_were_loaded() -> None:
    doubts = Doubts()
    model = replace(served(model_spec(variants=("a", "b"))), revision="1")
    assert doubts.add(("m", "a", "1"), "output 'Y' differed")
    assert not doubts.add(("m", "a", "1"), "it is known")
    assert doubts.of(model) == {"a": "output 'Y' differed"}
    assert not doubts.of(replace(model, revision="2"))
    assert doubts.changes == 1
    doubts.forget("m")
    assert not doubts.of(model)
