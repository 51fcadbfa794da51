"""A gateway in this process, over a real worker, that tells what each of its batches was expected to take and
took: what no client can see."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadtests.harness.pace import FineAlarm
from serving.control.control import Control
from serving.ports import Call, Reply
from serving.profile.curve import Profile
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.runtime.calls.gateway import Gateway
from serving.runtime.fleet import Fleet
from serving.runtime.observer import RowAnswer
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Request
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import COMPLETED, Outcome

SLICE = "measured"
ANSWER_S = 30.0  # after the last arrival
_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that came back. `requests` are their numbers; the rest is in us. `predicted_us`: planned with
    from dispatch to result; `typical_us`: the compute time to expect. `compute_us`: its compute;
    `elapsed_us`: from dispatch to result."""

    bucket: int
    requests: tuple[int, ...]
    predicted_us: float
    typical_us: float
    compute_us: int
    elapsed_us: int


@dataclass(slots=True)
class Ending:
    """How a request ended; `latency_us` counts from the instant it was due."""

    due_ns: int
    outcome: Outcome | None = None
    latency_us: float = 0.0

    def in_time(self, slo_us: int) -> bool:
        return self.outcome is COMPLETED and self.latency_us <= slo_us


class Watch:
    """What happened. A `serving.runtime.calls.gateway.Observer`."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def parsed(self, model: str, parse_us: int) -> None:
        """Do nothing: it concerns the edge."""

    def request_done(self, request: Request, reply: Reply, latency_us: int, within_slo: bool) -> None:
        """Do nothing: the client counts it."""

    def refused(self, model: str, tenant: str, outcome: Outcome) -> None:
        """Do nothing: without an edge there are no refusals."""

    def row_answered(self, model: str, answer: RowAnswer) -> None:
        """Do nothing: no model here is decoupled."""

    def output_refused(self, model: str, output: str) -> None:
        pass

    def worker_suspected(self, slice: str) -> None:  # noqa: A002  the domain's word
        """Do nothing: the worker's batch shows it."""

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Do nothing: no edge is there."""

    def batch_done(self, batch: RunBatch, compute_us: int, elapsed_us: int, output_us: int = 0) -> None:  # noqa: ARG002  # the seam's
        """Keep it."""
        requests = tuple(piece.request.id for piece in batch.pieces)
        foretold = (batch.predicted_us, batch.typical_us)
        self.batches.append(Batch(batch.bucket, requests, *foretold, compute_us, elapsed_us))


class Bench:
    """The gateway, to be asked with `play`."""

    def __init__(self, gateway: Gateway, fleet: Fleet, watch: Watch) -> None:
        self._gateway = gateway
        self._fleet = fleet
        self.watch = watch

    @property
    def model(self) -> ServedModel:
        """The one that is served."""
        (model,) = self._gateway.models.values()
        return model

    @property
    def profile(self) -> Profile:
        """What was measured of the answering variant."""
        for replica in self._fleet.control.slices[SLICE].replicas.values():
            if replica.variant == self.model.answering_variant and replica.profile is not None:
                return replica.profile
        raise RuntimeError("nothing was measured of the answering variant")

    async def play(self, calls: Sequence[Call], due_s: Sequence[float]) -> list[Ending]:
        """Submit each call when it is due, whatever became of those before, and wait for all replies.

        Requests are numbered from 1 in the order of the calls, so it can be played only once. TimeoutError
        where replies do not come.
        """
        start_ns = time.monotonic_ns() + 50_000_000
        endings = [Ending(start_ns + int(at_s * 1e9)) for at_s in due_s]
        done = asyncio.Event()
        sent = answered = 0

        def deliver(ending: Ending, reply: Reply) -> None:
            nonlocal answered
            ending.outcome = reply.outcome
            ending.latency_us = (time.monotonic_ns() - ending.due_ns) / 1e3
            answered += 1
            if answered == len(endings):
                done.set()

        def send_due() -> None:
            nonlocal sent
            while sent < len(calls) and endings[sent].due_ns <= time.monotonic_ns():
                call, ending = calls[sent], endings[sent]
                sent += 1
                self._gateway.submit(call, partial(deliver, ending))
            if sent < len(calls):
                alarm.set(endings[sent].due_ns)

        alarm = FineAlarm(send_due)
        alarm.set(endings[0].due_ns)
        try:
            async with asyncio.timeout(due_s[-1] + ANSWER_S):
                await done.wait()
        finally:
            alarm.close()
        return endings


@asynccontextmanager
async def opened(
    model: ServedModel, cores: Sequence[int], profiles: Path, limits: Limits = _LIMITS
) -> AsyncIterator[Bench]:
    """Yield the gateway with the model on one slice on those cores, once its latency is known."""
    place, store = SliceSpec(SLICE, tuple(cores)), ProfileStore(profiles)
    known = {}
    for variant in model.variants:
        profile = store.read(device_kind(place), model.name, variant, place.share)
        if profile is not None:
            known[SLICE, model.name, variant] = profile
    watch = Watch()
    gateway = Gateway([model], limits, watch)
    fleet = Fleet(Control([place], [model], known, limits, device_kind), gateway, store)
    ready = asyncio.Event()
    fleet.on_change = lambda: ready.set() if gateway.ready else None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fleet.run())
        try:
            await ready.wait()
            yield Bench(gateway, fleet, watch)
        finally:
            fleet.stop()
