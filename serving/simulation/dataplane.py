"""The live scheduler beside control in virtual time: requests come, batches take what is true of them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import NamedTuple

from serving.control.commands import (
    Cold,
    Command,
    Expect,
    ForgetModel,
    Look,
    Measure,
    RetireModel,
    Route,
    ServeModel,
    Unroute,
    Withdraw,
)
from serving.profile.latency import Latency
from serving.scheduler.commands import Answer, Miss, ReplaceWorker, RunBatch
from serving.scheduler.commands import Command as Order
from serving.scheduler.replicas import Replica
from serving.scheduler.requests import Request
from serving.scheduler.scheduler import Scheduler
from serving.simulation.site import chooses
from serving.simulation.virtual_workers import Happening
from serving.specs import Limits, ServedModel
from serving.vocabulary import UNKNOWN_MODEL, Outcome

Truth = Callable[[str, str, str, int], int]
"""(slice, model, variant, rows of a batch) -> microseconds of compute"""

FREE: Mapping[str, float] = MappingProxyType({})


class VirtualRequest(NamedTuple):
    """A request for `rows` of a model, by any variant that may answer, due after its SLO; of a `tier`, after
    that tier's."""

    at_us: int
    model: str
    rows: int = 1
    tier: str = ""


class Ended(NamedTuple):
    """How a request ended. `late_us`: after its deadline, at most 0 in time."""

    arrived_us: int
    model: str
    outcome: Outcome
    late_us: int
    detail: str


def routed(
    scheduler: Scheduler,
    command: Command,
    models: Mapping[str, ServedModel],
    prices: Mapping[str, float],
    now_us: int,
) -> Iterable[Order]:
    """Return what a command says of where variants are, or will be, told to the scheduler. `prices` of the
    slices, for an hour."""
    match command:
        case Route(slice=name, model=model, variant=variant):
            replica = Replica(command.replica, variant, Latency(command.profile), models[model])
            replica.price = prices.get(name, 0.0)
            return scheduler.replica_up(name, model, replica, now_us)
        case Unroute(slice=name, model=model, variant=variant, reason=reason):
            return scheduler.replica_down(name, model, variant, reason, now_us)
        case Withdraw(slice=name, reason=reason, blamed=blamed):
            return scheduler.slice_down(name, reason, now_us, blamed)
        case Cold(model=model, variant=variant, load_us=load_us, reason=reason):
            return scheduler.cold(model, variant, load_us, now_us, reason)
        case Expect(model=model, variant=variant, ready_us=ready_us):
            return scheduler.expect(model, variant, ready_us, now_us)
    return ()


class Requests:
    """A `serving.simulation.controlled.DataPlane`. `ended`: in the order of their ends."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        truth: Truth,
        asked: Iterable[VirtualRequest],
        devices: Mapping[str, str],
        prices: Mapping[str, float] = FREE,
    ) -> None:
        """`asked` in ascending order; `devices` of the slices, and `prices` of an hour of each."""
        self.ended: list[Ended] = []
        self.open = 0
        self._models = {model.name: model for model in models}
        self._truth = truth
        self._prices = prices
        self._asked: Iterator[VirtualRequest] = iter(asked)
        self._next = next(self._asked, None)
        self.scheduler = Scheduler(self._models.values(), Limits(), devices=devices)
        self._finishes: list[tuple[int, int, int]] = []  # heap of (instant, batch id, compute_us)
        self._running: dict[str, dict[int, int]] = {}  # slice -> batch id -> its end
        self._places: dict[int, str] = {}  # batch id -> slice
        self._retiring: set[str] = set()
        self._count = 0

    @property
    def wake_us(self) -> int:
        """See `DataPlane`."""
        due_us = self.scheduler.wake_us
        if self._finishes and self._finishes[0][0] < due_us:
            due_us = self._finishes[0][0]
        if self._next is not None and self._next.at_us < due_us:
            due_us = self._next.at_us
        return due_us

    def wake(self, now_us: int) -> Iterable[Happening]:
        """One arrival, batch that is back, or plan."""
        if self._next is not None and self._next.at_us <= now_us:
            asked, self._next = self._next, next(self._asked, None)
            return self._do(self._arrive(asked, now_us), now_us)
        if self._finishes and self._finishes[0][0] <= now_us:
            _, batch_id, compute_us = heappop(self._finishes)
            self._running[self._places.pop(batch_id)].pop(batch_id)
            return self._do(self.scheduler.batch_done(batch_id, compute_us, now_us), now_us)
        return self._do(self.scheduler.wake(now_us), now_us)

    def carry_out(self, command: Command, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`."""
        scheduler = self.scheduler
        orders: Iterable[Order] = ()
        match command:
            case ServeModel(model=served):
                self._models[served.name] = served
                self._retiring.discard(served.name)
                orders = scheduler.serve(served, now_us)
            case RetireModel(model=model):
                self._retiring.add(model)
                scheduler.retire(model)
            case ForgetModel(model=model):
                del self._models[model]
                scheduler.forget(model)
            case Measure(slice=name):
                scheduler.hold(name)
            case Look():
                return (("seen", scheduler.seen(now_us)),)
            case _:
                orders = routed(scheduler, command, self._models, self._prices, now_us)
        return self._do(orders, now_us)

    def settled(self, slice_name: str, happening: Happening, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`."""
        if happening[0] == "worker_lost":
            gone = self._running.pop(slice_name, {})
            self._finishes = [each for each in self._finishes if each[1] not in gone]
            heapify(self._finishes)
            for batch_id in gone:
                del self._places[batch_id]
        elif happening[0] == "measured":
            return self._do(self.scheduler.release(slice_name, now_us), now_us)
        return ()

    def rest_us(self, slice_name: str, now_us: int) -> int:
        """See `DataPlane`."""
        return max(0, max(self._running.get(slice_name, {}).values(), default=0) - now_us)

    def quiet(self, slices: Iterable[str], now_us: int) -> Collection[str]:
        """See `DataPlane`."""
        return [name for name in slices if self.scheduler.is_quiet(name, now_us)]

    def answered(self, answer: Answer, now_us: int) -> None:
        """A request ended; may be overridden."""
        request = answer.request
        self.open -= 1
        late_us = now_us - request.deadline_us
        self.ended.append(Ended(request.arrived_us, request.model, answer.outcome, late_us, answer.detail))

    # steps

    def _arrive(self, asked: VirtualRequest, now_us: int) -> Iterable[Order]:
        served = self._models.get(asked.model)
        self._count += 1
        if served is None:
            gone = f"{asked.model} is not served any more"
            self.ended.append(Ended(now_us, asked.model, UNKNOWN_MODEL, 0, gone))
            return ()
        objective = served.objective(asked.tier)
        due_us = now_us + objective.due_us(asked.rows)
        request = Request(self._count, asked.model, asked.rows, now_us, due_us)
        request.parts = objective.parts(asked.rows)
        request.variants, request.optimize, request.cost_max = objective.wants
        request.tier = objective.tier
        if chooses(served):
            request.kin = (request.bucket,)
            request.lane_key = (objective.wants, request.bucket)
        self.open += 1
        return self.scheduler.arrive(request, now_us)

    def _do(self, orders: Iterable[Order], now_us: int) -> list[Happening]:
        found: list[Happening] = []
        for order in orders:
            if isinstance(order, RunBatch):
                self._run(order, now_us)
            elif isinstance(order, Answer):
                self.answered(order, now_us)
            elif isinstance(order, Miss):
                busy = {name: self.scheduler.busy(name) for name in self._running}
                found.append(("missed", order.model, order.variant, self.scheduler.rates(now_us), busy))
            elif isinstance(order, ReplaceWorker):
                found.append(("worker_stuck", order.slice, order.reason))
        for model in sorted(self._retiring) if self._retiring else ():
            if not self.scheduler.models[model].open:
                self._retiring.discard(model)
                found.append(("model_retired", model))
        return found

    def _run(self, batch: RunBatch, now_us: int) -> None:
        here = self._running.setdefault(batch.slice, {})
        self._places[batch.id] = batch.slice
        compute_us = self._truth(batch.slice, batch.model, batch.variant, batch.rows)
        start_us = max([now_us, *here.values()])  # after the one before which it was sent
        here[batch.id] = start_us + compute_us
        heappush(self._finishes, (start_us + compute_us, batch.id, compute_us))
