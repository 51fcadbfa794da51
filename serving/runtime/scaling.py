"""What scaling asks for and takes longer than an event loop may wait: slow plans, and tables of what replicas
carry. Both are jobs (`serving/runtime/job.py`), one of each kind at a time."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.slow.planning import plan_scaling
from serving.policy.scaling.slow.task import ScalingPlan, ScalingTask
from serving.runtime.files.capacity_file import CapacityFile
from serving.runtime.job import LEAST_URGENT, NICENESS, JobError, Work, run

logger = logging.getLogger(__name__)

PLAN_S: Final = 20.0
"""For a plan, the child's start included. One for 3,000 models is there within 2 s; the next is due after a
minute."""
TABLE_S: Final = 120.0
"""For a table, beside a gateway and workers that go first. What is simulated by then stands."""

A = TypeVar("A")
R = TypeVar("R")


class ScalingJobs:
    """The jobs that plan scaling. `find` fills tables; with None they stay guesses. `kept` holds the tables
    from before. `on_planned` is called with each plan, None if none was found; `on_found` with each table and
    its question. Made on the running event loop; after `close` it calls neither."""

    def __init__(self, find: Work[FindCapacity, Capacity] | None, kept: CapacityFile) -> None:
        self.on_planned: Callable[[ScalingPlan | None], None] = lambda _plan: None
        self.on_found: Callable[[FindCapacity, Capacity], None] = lambda _asked, _table: None
        self._find = find
        self._kept = kept
        self._task: ScalingTask | None = None  # the next plan is to be of
        self._asked: dict[tuple[str, str, str], FindCapacity] = {}  # tables to be filled, in turn
        self._planning: asyncio.Task[None] | None = None
        self._filling: asyncio.Task[None] | None = None
        self._said: dict[str, str] = {}  # why jobs of a kind failed last
        self._closed = False

    def plan(self, task: ScalingTask) -> None:
        """Make a plan; of several that are asked for while one is made, the latest."""
        self._task = task
        if self._planning is None and not self._closed:
            self._planning = asyncio.create_task(self._plan())

    def fill(self, asked: FindCapacity) -> None:
        """Fill a table, after those that were asked for before."""
        if self._find is None or self._closed:
            return
        self._asked[asked.model.name, asked.variant, asked.kind] = asked
        if self._filling is None:
            self._filling = asyncio.create_task(self._fill(self._find))

    async def close(self) -> None:
        """End what runs."""
        self._closed = True
        for task in (self._planning, self._filling):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _plan(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (task := self._task) is not None:
                self._task = None
                loop.call_soon(self.on_planned, await self._result(plan_scaling, task, PLAN_S, NICENESS))
        finally:
            self._planning = None

    async def _fill(self, find: Work[FindCapacity, Capacity]) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._asked:
                asked = self._asked.pop(next(iter(self._asked)))
                table = await self._table(find, asked)
                if table is not None:
                    loop.call_soon(self.on_found, asked, table)
        finally:
            self._filling = None

    async def _table(self, find: Work[FindCapacity, Capacity], asked: FindCapacity) -> Capacity | None:
        table = await asyncio.to_thread(self._kept.read, asked)
        if table is None:
            table = await self._result(find, asked, TABLE_S, LEAST_URGENT)
            if table is not None and not table.guessed:
                await self._keep(asked, table)
        return table

    async def _keep(self, asked: FindCapacity, table: Capacity) -> None:
        try:
            await asyncio.to_thread(self._kept.write, asked, table)
        except OSError as error:  # it costs a simulation at the next start, nothing now
            self._say("capacities", f"what replicas carry could not be stored: {error}")

    async def _result(self, work: Work[A, R], argument: A, limit_s: float, niceness: int) -> R | None:
        try:
            return await run(work, argument, limit_s, niceness)
        except JobError as error:
            self._say(getattr(work, "__qualname__", ""), str(error))
            return None

    def _say(self, what: str, why: str) -> None:
        """Warn once about a failure of `what`, and again only if the reason changes."""
        if self._said.get(what) != why:
            self._said[what] = why
            logger.warning("%s; the number of replicas follows their load without it", why)
