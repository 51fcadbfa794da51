"""What becomes due on slices with time: tries after a pause, orders that take too long, measurements."""

from collections.abc import Collection, Iterable

from serving.control.commands import Command, EndWorker
from serving.control.measuring import Measuring
from serving.control.reconciling import start
from serving.control.state.earliest import Earliest
from serving.control.state.observed import ObservedState
from serving.control.state.replicas import ReplicaStatus, SliceRecord, WorkerStatus
from serving.control.state.timeouts import overdue
from serving.values.specs import Limits
from serving.values.vocabulary import NEVER_US


class Upkeep:
    """The instants of all slices. A tick looks only at slices with something due, or to be measured."""

    def __init__(self, observed: ObservedState, measuring: Measuring, limits: Limits) -> None:
        self._observed = observed
        self._measuring = measuring
        self._limits = limits
        self._due = Earliest[str]()  # by slice
        self._restless = set[str]()  # the slices to be measured, now or later

    def tick(self, now_us: int, idle: Collection[str]) -> list[Command]:
        """Do what has become due; `idle`: slices that have had no work for a while."""
        self._measuring.count_idle(idle)
        commands: list[Command] = []
        names = self._restless.union(self._due.due(now_us))
        self._observed.touched |= names
        for record in self._observed.ordered(names):
            commands += self._advance(record, now_us)
        return commands

    def _advance(self, record: SliceRecord, now_us: int) -> list[Command]:
        """Return what has become due on a slice."""
        commands: list[Command] = []
        if record.retry_us <= now_us:
            commands.append(start(record, now_us))
        reason, due_us = overdue(record, self._limits)
        if due_us <= now_us:
            record.heard_us = record.loading_us = now_us  # this command comes again after as long a time
            commands.append(EndWorker(record.spec.name, reason))
        elif record.status is WorkerStatus.READY:
            for replica in record.replicas.values():
                if replica.retry_us <= now_us:
                    replica.status, replica.retry_us = ReplicaStatus.ABSENT, NEVER_US
            orders = self._measuring.next_coarse(record, now_us) or self._measuring.refine(record, now_us)
            if orders:
                record.heard_us = now_us
            commands += orders
        return commands

    def due_us(self, changed: Iterable[str], now_us: int) -> int:
        """Return when the next tick is due; `changed`: slices that may have changed since the last call."""
        for name in changed:
            record = self._observed.slices.get(name)
            self._due.set(name, NEVER_US if record is None else self._slice_due_us(record))
            restless = record is not None and self._measuring.is_restless(record, now_us)
            (self._restless.add if restless else self._restless.discard)(name)
        due_us = [self._due.least_us]
        for name in self._restless:
            due_us += self._measuring.due_us(self._observed.slices[name], now_us)
        return min(due_us)

    def _slice_due_us(self, record: SliceRecord) -> int:
        due_us = min(record.retry_us, overdue(record, self._limits)[1])
        if record.status is not WorkerStatus.READY:
            return due_us
        return min([due_us, *(replica.retry_us for replica in record.replicas.values())])
