"""Promises of real workers: loading holds nobody up and ends with the process; unloading frees the memory."""

import asyncio
import os
from pathlib import Path
from typing import TextIO

import pytest

from router.settings import load_model
from serving.values.specs import ModelSpec
from serving.worker.frames.batches import BatchInput
from tests.models.samples import built
from tests.runtime.recorder import be_patient, model_spec, write_model
from tests.worker.processes import Process, processes

pytestmark = [pytest.mark.live, pytest.mark.slow]

ECHO = "return {'Y': inputs['X']}"
ROW = [BatchInput("FP32", (1,), [bytes(4)])]
GROWTH_BYTES = 6 << 20
CYCLE = """
import numpy as np
class Part: pass
class Model:
    def __init__(self):
        self.part, other = Part(), Part()
        self.part.ring, other.ring = other, {ring}
        other.weights = [np.ones(1 << 15, np.float32) for _ in range(160)]
    def predict(self, inputs, parameters): return {{"Y": inputs["X"]}}
    def sample(self, rows, size): return {{"X": np.ones((rows, 4), np.float32)}}
def load(artifact, options): return Model()
"""
"""A model of 20 MB that a cycle holds: of its parts alone, or with the model itself."""


def echo(folder: Path) -> ModelSpec:
    return model_spec(write_model(folder, ECHO), {"X": "FP32"}, {"Y": "FP32"})


def held(folder: Path) -> tuple[ModelSpec, Path]:
    """A model whose load goes on until its pipe is opened and closed."""
    pipe = folder.with_suffix(".pipe")
    os.mkfifo(pipe)
    model = echo(folder)
    with (folder / "model.py").open("a") as code:
        code.write(
            f"\ndef load(artifact, options):\n    open({str(pipe)!r}).read()\n    return Model(options)\n"
        )
    return model, pipe


async def begun(pipe: Path) -> TextIO:
    """Waits for the load to open the pipe; it goes on when this is closed."""
    return await asyncio.to_thread(pipe.open, "w")


async def test_batches_are_answered_while_another_model_loads_and_after_it_both_are(tmp_path: Path) -> None:
    slow, pipe = held(tmp_path / "slow")
    async with processes() as (worker,):
        await worker.load(1, echo(tmp_path / "quick"), "only")
        worker.link.load(2, slow, "only")
        gate = await begun(pipe)
        for batch in range(20):
            worker.link.run(batch, 1, 1, ROW, ())
            assert (await worker.heard.hear_result()).batch_id == batch
        worker.link.run(90, 2, 1, ROW, ())
        assert await worker.heard.hear("failed") == (90, "LookupError: replica 2 is not loaded here")
        gate.close()
        assert (await worker.heard.hear("loaded"))[0] == 2
        worker.link.run(91, 2, 1, ROW, ())
        assert (await worker.heard.hear_result()).batch_id == 91


async def test_what_is_unloaded_while_it_loads_is_never_loaded(tmp_path: Path) -> None:
    slow, pipe = held(tmp_path / "slow")
    async with processes() as (worker,):
        worker.link.load(1, slow, "only")
        worker.link.load(2, echo(tmp_path / "quick"), "only")
        gate = await begun(pipe)
        worker.link.unload(1)
        gate.close()
        assert (await worker.heard.hear("loaded"))[0] == 2
        assert await worker.heard.hear("unloaded") == (1,)


async def test_a_batch_sent_before_the_unload_runs_and_one_sent_after_it_fails(tmp_path: Path) -> None:
    async with processes() as (worker,):
        model = echo(tmp_path / "m")
        await worker.load(1, model, "only")
        worker.link.run(5, 1, 1, ROW, ())
        worker.link.unload(1)
        assert (await worker.heard.hear_result()).batch_id == 5
        assert await worker.heard.hear("unloaded") == (1,)
        with pytest.raises(KeyError):
            worker.link.run(6, 1, 1, ROW, ())


@pytest.mark.parametrize("end", ["close", "kill"])
async def test_a_worker_that_loads_ends_as_promptly_as_any(tmp_path: Path, end: str) -> None:
    slow, pipe = held(tmp_path / "slow")
    async with processes() as (worker,):
        await worker.load(1, echo(tmp_path / "quick"), "only")
        worker.link.load(2, slow, "only")
        gate = await begun(pipe)
        be_patient(worker.link)
        getattr(worker.link, end)()
        assert (
            await worker.heard.hear_lost() == {"close": "exited with 0", "kill": "was killed by SIGKILL"}[end]
        )
        gate.close()  # not before: whoever waits for a load waits for ever


async def test_code_that_ends_its_thread_ends_the_worker(tmp_path: Path) -> None:
    """Who loads nothing any more is no worker: the gateway starts another."""
    model = echo(tmp_path / "m")
    with (model.folder / "model.py").open("a") as code:
        code.write("\ndef load(artifact, options): raise KeyboardInterrupt\n")
    async with processes() as (worker,):
        be_patient(worker.link)
        worker.link.load(1, model, "only")
        assert await worker.heard.hear_lost() == "exited with 1"


async def grow(worker: Process, model: ModelSpec, variant: str, beside: int) -> int:
    """By how much the process grew from the third of 30 loads and unloads to the last."""
    sizes: list[int] = []
    for number in range(30):
        await worker.load(beside + number, model, variant)
        await worker.unload(beside + number)
        sizes.append(worker.resident_bytes())
    return max(sizes[-3:]) - sizes[2]


@pytest.mark.parametrize("variant", ["cnn", "ensemble"])
async def test_thirty_loads_and_unloads_leave_a_process_as_large_as_three(
    tmp_path: Path, variant: str
) -> None:
    built("digits", f"build/{variant}.safetensors")
    async with processes() as (worker,):
        await worker.load(1, echo(tmp_path / "m"), "only")
        assert await grow(worker, load_model(Path("models/digits")), variant, 2) < GROWTH_BYTES


@pytest.mark.parametrize("ring", ["self", "self.part"])
async def test_a_model_of_20_mb_in_a_cycle_is_given_back_each_time(tmp_path: Path, ring: str) -> None:
    model = echo(tmp_path / "m")
    (model.folder / "model.py").write_text(CYCLE.format(ring=ring))
    async with processes() as (worker,):
        before = worker.resident_bytes()
        await worker.load(1, model, "only")
        assert worker.resident_bytes() > before + (18 << 20)
        await worker.unload(1)
        assert worker.resident_bytes() < before + GROWTH_BYTES
        assert await grow(worker, model, "only", 2) < GROWTH_BYTES


async def test_a_cycle_that_was_there_before_torch_was_is_given_back(tmp_path: Path) -> None:
    """Torch's import is frozen, and with it all that was loaded before it."""
    model = echo(tmp_path / "m")
    (model.folder / "model.py").write_text(CYCLE.format(ring="self"))
    built("digits", "build/linear.safetensors")
    async with processes() as (worker,):
        await worker.load(1, model, "only")
        await worker.load(2, load_model(Path("models/digits")), "linear")
        before = worker.resident_bytes()
        await worker.unload(1)
        assert worker.resident_bytes() < before - (18 << 20)
