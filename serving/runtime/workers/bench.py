"""Workers to be measured, without a gateway: start, load, measure, each a call that is awaited."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from serving.runtime.slicing.contract import Setting
from serving.runtime.slicing.cores import core_set
from serving.runtime.slicing.opening import PreparedShares
from serving.runtime.workers.link import Link
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.values.specs import ModelSpec
from serving.worker.frames.batches import BatchResult
from serving.worker.frames.orders import Loaded, MeasuredBatches, MeasureOrder

_T = TypeVar("_T")
Found = Link | Loaded | MeasuredBatches


class BenchError(Exception):
    """A worker or model that was to be measured cannot be; the text says why."""


class Bench:
    """Workers that compute at the same time, each with one replica. A
    `serving.runtime.workers.link.LinkEvents`."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._waiting: dict[str, asyncio.Future[Found]] = {}
        self._replicas: dict[str, int] = {}
        self._failure = ""
        self.size = 0
        """The smallest size bucket of what was loaded last."""

    @property
    def versions(self) -> dict[str, str]:
        """What the workers compute with."""
        return next(iter(self._links.values())).versions

    @property
    def pids(self) -> list[int]:
        """Of the workers."""
        return [link.pid for link in self._links.values()]

    async def start(self, supervisor: Supervisor, spec: SliceSpec) -> None:
        """Start a worker on a slice; BenchError where it does not come up."""
        answer = self._expect(spec.name)
        await supervisor.start(spec)
        await answer

    async def load(self, slice_name: str, model: ModelSpec, variant: str) -> Loaded:
        """Load a variant in the place of the one before; BenchError where the model's code fails."""
        link, before = self._links[slice_name], self._replicas.get(slice_name, 0)
        if before:
            link.unload(before)
        self._replicas[slice_name] = before + 1
        self.size = model.sizes[0]
        answer = self._expect(slice_name)
        link.load(before + 1, model, variant)
        return _only(Loaded, await answer)

    async def measure(self, slice_names: Sequence[str], order: MeasureOrder) -> list[MeasuredBatches]:
        """Run the order on all of these slices at once; BenchError where a model fails on its sample."""
        answers = [self._expect(name) for name in slice_names]
        for name in slice_names:
            self._links[name].measure(replace(order, replica=self._replicas[name]))
        return [_only(MeasuredBatches, found) for found in await asyncio.gather(*answers)]

    # events of links

    def worker_ready(self, link: Link) -> None:
        """Note that a worker process answers."""
        self._links[link.slice] = link
        self._answer(link, link)

    def replica_loaded(self, link: Link, loaded: Loaded) -> None:
        """Note that a variant is loaded and warm."""
        self._answer(link, loaded)

    def measured(self, link: Link, found: MeasuredBatches) -> None:
        """Hand the result of a measurement to its waiting caller."""
        self._answer(link, found)

    def replica_failed(self, link: Link, replica: int, message: str) -> None:  # noqa: ARG002  one at a time
        """Report that a variant cannot be loaded or measured."""
        self._fail(link.slice, message)

    def replica_unloaded(self, link: Link, replica: int) -> None:
        """Ignore that the previous variant was unloaded: the next variant is loaded after that anyway."""

    def worker_lost(self, link: Link, reason: str) -> None:
        """Forget a worker that is gone: the bench cannot ask it anything any more."""
        self._links.pop(link.slice, None)
        self._fail(link.slice, f"the worker of slice {link.slice} {reason}")

    def batch_done(self, link: Link, result: BatchResult) -> None:
        """Do nothing: the bench never sends a batch."""

    def batch_failed(self, link: Link, batch_id: int, message: str, bad_input: bool = False) -> None:
        """Do nothing: the bench never sends a batch."""

    # steps

    def _expect(self, name: str) -> asyncio.Future[Found]:
        if self._failure:
            raise BenchError(self._failure)
        answer = self._waiting[name] = asyncio.get_running_loop().create_future()
        return answer

    def _answer(self, link: Link, found: Found) -> None:
        waiting = self._waiting.pop(link.slice, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(found)

    def _fail(self, name: str, reason: str) -> None:
        waiting = self._waiting.pop(name, None)
        if name not in self._links:
            self._failure = reason
        if waiting is not None and not waiting.done():
            waiting.set_exception(BenchError(reason))


@asynccontextmanager
async def bench_of(
    specs: Sequence[SliceSpec], prepare: Callable[[SliceSpec], Setting] = core_set
) -> AsyncIterator[Bench]:
    """Start a worker on each of these slices; the workers end with the block. Raises BenchError if a worker
    does not come up. The workers have all of this process's environment: a command measures no model in the
    name of others."""
    bench = Bench()
    supervisor = Supervisor(bench, PreparedShares(prepare), workers=WorkersSpec(inherit=tuple(os.environ)))
    try:
        for spec in specs:
            await bench.start(supervisor, spec)
        yield bench
    finally:
        await supervisor.stop()


def _only(kind: type[_T], found: object) -> _T:
    if not isinstance(found, kind):
        raise BenchError(f"a worker answered with {found!r:.100} where {kind.__name__} was due")
    return found
