"""Hears what links report, so that a test can wait for it by name."""

import asyncio
from pathlib import Path

from serving.runtime.clocks.alarm import Alarm
from serving.runtime.workers.link import Link
from serving.values.specs import ModelSpec, TensorSpec, VariantSpec
from serving.worker.frames.batches import BatchResult
from serving.worker.frames.orders import Loaded, MeasuredBatches

PATIENCE_S = 30.0

Event = tuple[object, ...]


class Recorder:
    """A `LinkEvents` that keeps every event as (name, details...)."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.links: list[Link] = []

    def worker_ready(self, link: Link) -> None:
        self.links.append(link)
        self.events.put_nowait(("ready", link))

    def replica_loaded(self, link: Link, loaded: Loaded) -> None:
        self.events.put_nowait(("loaded", loaded.replica, loaded.load_us, loaded.memory_bytes))

    def replica_failed(self, link: Link, replica: int, message: str) -> None:
        self.events.put_nowait(("replica_failed", replica, message))

    def replica_unloaded(self, link: Link, replica: int) -> None:
        self.events.put_nowait(("unloaded", replica))

    def batch_done(self, link: Link, result: BatchResult) -> None:
        self.events.put_nowait(("done", result))

    def batch_failed(self, link: Link, batch_id: int, message: str, bad_input: bool = False) -> None:
        self.events.put_nowait(("failed", batch_id, message))

    def measured(self, link: Link, found: MeasuredBatches) -> None:
        self.events.put_nowait(("measured", found.replica, found.rows, found.size, found.latencies_us))

    def worker_lost(self, link: Link, reason: str) -> None:
        self.events.put_nowait(("lost", link, reason))

    async def hear(self, name: str) -> Event:
        """The details of the next event, which must be the one named."""
        async with asyncio.timeout(PATIENCE_S):
            event = await self.events.get()
        assert event[0] == name, event
        return event[1:]

    async def hear_result(self) -> BatchResult:
        (result,) = await self.hear("done")
        assert isinstance(result, BatchResult)
        return result

    async def hear_lost(self) -> str:
        """Why the worker was lost; nothing may come after it."""
        _, reason = await self.hear("lost")
        await asyncio.sleep(0)
        assert self.events.empty(), self.events.get_nowait()
        return str(reason)


def be_patient(link: Link) -> None:
    """Its process may take long to be gone: it has an alarm already, which never fires. EXIT_WAIT_S itself is
    part of what is compiled, out of a test's reach."""
    link._exit_alarm = Alarm(lambda _now_us: None)


def model_spec(folder: Path, inputs: dict[str, str], outputs: dict[str, str]) -> ModelSpec:
    """A model with vectors of free length by name and datatype, and the variant "only"."""
    return ModelSpec(
        name=folder.name,
        folder=folder,
        inputs=tuple(TensorSpec(name, datatype, (-1, -1)) for name, datatype in inputs.items()),
        outputs=tuple(TensorSpec(name, datatype, (-1, -1)) for name, datatype in outputs.items()),
        variants=(VariantSpec("only", None, (("factor", 3),)),),
        default_variant="only",
        slo_us=100_000,
        batch_max=64,
    )


def write_model(
    folder: Path, predict: str, sample: str = "return {'X': np.ones((rows, 4), np.float32)}"
) -> Path:
    """A model folder whose `predict` and `sample` have these bodies."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(
        "import os, time\n"
        "import numpy as np\n"
        "class Model:\n"
        "    padded_size = 7\n"
        "    def __init__(self, options): self.options = options\n"
        f"    def predict(self, inputs, parameters):\n        {predict}\n"
        f"    def sample(self, rows, size):\n        {sample}\n"
        "def load(artifact, options): return Model(options)\n"
    )
    return folder
