"""A gateway over real worker processes for tests, and what happened in it."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np

from router.settings import load_model
from serving.cache.spec import CacheSpec
from serving.control.control import Control
from serving.ports import Call, Reply
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.runtime.caching.caching import CachedServing
from serving.runtime.calls.gateway import Gateway
from serving.runtime.fleet import Fleet
from serving.runtime.observer import RowAnswer
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Request
from serving.values.slice_specs import SliceSpec
from serving.values.specs import BatchingSpec, Limits, ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, Outcome

MODELS = Path(__file__).parents[2] / "models"
POISONABLE = Path(__file__).parents[1] / "models" / "poisonable"
SLICE = SliceSpec("s", ())
LIMITS = Limits(stall_us=60_000_000)
"""A machine that stands still for a while neither ends a sweep early nor has a worker replaced."""
WAIT_S = 60.0


class Tally:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.late = 0
        self.batches: list[int] = []
        self.suspicions: list[str] = []
        self.refused_outputs: list[tuple[str, str]] = []
        self.row_answers: list[RowAnswer] = []
        self.parse_us: list[int] = []
        self.latency_us: list[int] = []
        self.asked: list[str] = []
        self.looked: list[str] = []
        self.recorded: list[Call] = []

    def record(self, call: Call, arrived_us: int) -> None:
        self.recorded.append(call)

    def parsed(self, model: str, parse_us: int) -> None:
        self.parse_us.append(parse_us)

    def request_done(self, request: Request, reply: Reply, latency_us: int, within_slo: bool) -> None:
        self.outcomes.append(reply.outcome)
        self.late += reply.outcome is COMPLETED and not within_slo
        self.latency_us.append(latency_us)

    def refused(self, model: str, tenant: str, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        pass

    def batch_done(self, batch: RunBatch, compute_us: int, elapsed_us: int, output_us: int = 0) -> None:
        self.batches.append(batch.rows)

    def cache_asked(self, model: str, result: str, took_us: int) -> None:
        self.asked.append(result)

    def cache_looked(self, model: str, result: str, took_us: int) -> None:
        self.looked.append(result)

    def row_answered(self, model: str, answer: RowAnswer) -> None:
        self.row_answers.append(answer)

    def output_refused(self, model: str, output: str) -> None:
        self.refused_outputs.append((model, output))

    def worker_suspected(self, slice: str) -> None:  # noqa: A002
        self.suspicions.append(slice)


class House:
    """A gateway with its fleet, and what happened in it."""

    def __init__(self, gateway: Gateway, fleet: Fleet, tally: Tally, cache: CacheSpec) -> None:
        self.gateway = gateway
        self.fleet = fleet
        self.tally = tally
        self.cached = CachedServing(gateway, cache, tally, tally.record)
        self._changed = asyncio.Event()
        fleet.on_change = self._changed.set

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._changed.clear()
            await self._changed.wait()

    def dispatch(self) -> None:
        """What may run is sent now, not at the end of the tick, by which a short deadline may be over."""
        self.gateway._wake(self.gateway.now_us())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The worker takes batches and answers none, however long that is."""
        pid = self.fleet.pid("s")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def submit(self, call: Call) -> tuple[int, "asyncio.Future[Reply]"]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        return self.gateway.submit(call, future.set_result), future

    def ask(self, call: Call) -> tuple[int, "asyncio.Future[Reply]"]:
        """Submit by way of the cache."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        return self.cached.submit(call, future.set_result), future

    def add(self, rows: int, seed: int = 0) -> Call:
        """A call of the model `simple`."""
        call = Call(self.gateway.models["simple"], [], rows)
        numbers = np.arange(rows * 16, dtype=np.int32).reshape(rows, 16) + seed
        call.inputs = [Tensor(name, "INT32", (rows, 16), numbers.tobytes()) for name in ("INPUT0", "INPUT1")]
        return call

    def delay(self, delay_ms: int) -> Call:
        """A call of `identity` that takes `delay_ms`."""
        call = Call(self.gateway.models["identity"], [Tensor("INPUT0", "INT8", (1, 2), b"ab")], 1)
        call.parameters = (("execute_delay_ms", delay_ms),)
        return call

    def poison(self) -> Call:
        """A call of `poisonable` that the model raises on."""
        row = np.full((1, 4), -1, np.float32)
        return Call(self.gateway.models["poisonable"], [Tensor("INPUT", "FP32", (1, 4), row.tobytes())], 1)


def undeclared(folder: Path) -> Path:
    """The model `identity`, which does not declare that its parameter is a time: nothing foresees it."""
    shutil.copytree(MODELS / "identity", folder)
    declared = (folder / "model.yaml").read_text()
    (folder / "model.yaml").write_text(declared.replace(", time_unit: ms", ""))
    return folder


@asynccontextmanager
async def house(
    folder: Path,
    limits: Limits | None = None,
    batching: BatchingSpec | None = None,
    models: tuple[Path, ...] = (MODELS / "simple", MODELS / "identity"),
    cache: CacheSpec | None = None,
    slo_us: int | None = None,
) -> AsyncIterator[House]:
    """Ready; on one slice. Of its models answers are kept, where the cache is asked."""
    limits = limits or LIMITS
    served = [
        ServedModel(
            spec,
            slo_us or spec.slo_us,
            tuple(v.name for v in spec.variants),
            ("s",),
            batching or BatchingSpec(),
            cache=True,
        )
        for spec in map(load_model, models)
    ]
    tally = Tally()
    gateway = Gateway(served, limits, tally, record=tally.record)
    control = Control([SLICE], served, {}, limits, device_kind)
    fleet = Fleet(control, gateway, ProfileStore(folder))
    here = House(gateway, fleet, tally, cache or CacheSpec())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fleet.run())
        try:
            await here.until(lambda: all(map(gateway.model_ready, gateway.models)))
            yield here
        finally:
            fleet.stop()


async def until(true: Callable[[], bool]) -> None:
    """Something that another process brings about."""
    async with asyncio.timeout(WAIT_S):
        while not true():  # noqa: ASYNC110  there is no event of it
            await asyncio.sleep(0.002)


def sums(reply: Reply) -> np.ndarray:
    tensor = reply.outputs[0]
    return np.frombuffer(tensor.data, np.int32).reshape(tensor.shape)
