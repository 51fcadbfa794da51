"""All models of all cells as one `Serving`: a call of a model that is not here goes to a cell that has it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from random import Random
from typing import Final, Protocol

from serving.ports import Call, Reply, Serving
from serving.runtime.calls.pending_calls import Deliver, hand_over
from serving.runtime.cells.caller import Flight
from serving.values.specs import DEFAULT_TENANT, ServedModel, TenantSpec
from serving.values.vocabulary import CLIENT_GONE, NO_REPLICA, QUEUE_FULL, WORKER_LOST, Outcome

FIRST_ID: Final = 1 << 61
"""Ids of calls that go to other cells begin after it; the ids of all others are below."""


class OtherCell(Protocol):
    """The way to a cell: `serving.runtime.cells.caller.CellCaller`."""

    name: str
    reason: str

    @property
    def connected(self) -> bool:
        """Whether calls can be sent."""
        ...

    def send(self, number: int, flight: Flight) -> str:
        """Send a call; return why that cannot be, "" if it is sent."""
        ...

    def cancel(self, number: int) -> None:
        """Forget a call, as its client is gone."""
        ...


class Tracer(Protocol):
    """Makes spans of calls that other cells answer: `router.observing.tracing.tracing.Tracing`."""

    def span(self, call: Call) -> str:
        """Return the traceparent of a new span for a call, "" if there is to be none."""
        ...

    def passed(self, call: Call, parent: str, cell: str, reply: Reply) -> None:
        """Make the span: the call has ended. `parent`: the traceparent that it came with; `cell`: the last
        that had it, "" for none."""
        ...


Route = Sequence[tuple[OtherCell, float]]
"""The cells that have a model ready, and the slices' worth of its work in each."""

PATIENCE_S: Final = 2.0
"""How long a call waits for a cell that has just gone: an upgrade takes 0.1 s, a start after a crash 1.2 s
(`python -m loadtests.failures.gateway_faults`)."""
WAITING_MAX: Final = 10_000
TRIES_MAX: Final = 3


class _Sent:
    """A call for another cell. `tried`: the cells that it was sent to, the last of them now. `here`: its id
    in this cell, if that has the model by now. `parent`: the traceparent that it came with, if this gateway
    makes a span of it; then its own is of that span."""

    __slots__ = ("call", "deliver", "flight", "here", "parent", "size", "tried", "waited")

    def __init__(self, call: Call, deliver: Deliver) -> None:
        self.call = call
        self.parent = ""
        self.deliver = deliver
        self.tried: list[OtherCell] = []
        self.flight: Flight | None = None
        self.here = 0
        self.size = sum([len(each.data) for each in call.inputs])
        self.waited = False  # for a cell: the SLO counts from when it is sent, as in a queue before a port


class CellsServing:
    """`serving.ports.Serving` around this cell's own. Made on the running event loop.

    `models`: of all cells, as far as this gateway's settings name them. `seed`: for what is drawn at random.
    """

    def __init__(self, behind: Serving, seed: int | None = None) -> None:
        self._behind = behind
        self._known: dict[str, ServedModel] = dict(behind.models)
        self.models: Mapping[str, ServedModel] = self._known  # one object, whatever comes and goes
        self.tenants: Mapping[str, TenantSpec] = behind.tenants
        self.passed: dict[tuple[str, str], int] = {}  # calls that others answered, by cell and outcome
        self._filed: Mapping[str, ServedModel] = {}
        self._away: Set[str] = frozenset()
        self._homed: Set[str] = frozenset()
        self._routes: Mapping[str, Route] = {}
        self._sent: dict[int, _Sent] = {}
        self._held = 0  # bytes of their inputs
        self._waiting: set[int] = set()  # of these, those that no cell has
        self._loop = asyncio.get_running_loop()
        self._count = FIRST_ID
        self._draw = Random(seed).random  # noqa: S311  # which cell is asked is no secret
        self.on_models: Callable[[], None] = lambda: None
        self.on_routes: Callable[[], None] = lambda: None  # other cells have other models ready than before
        self.tracer: Tracer | None = None

    # what is where

    def know(self, filed: Mapping[str, ServedModel]) -> None:
        """Know these models of the settings, whichever cell has them."""
        self._filed = filed
        self.look()

    def look(self) -> None:
        """Take over what this cell serves from now on."""
        models = {**self._filed, **self._behind.models}
        if models != self._known:
            self._known.clear()
            self._known.update(models)
            self.on_models()

    def route(self, routes: Mapping[str, Route], away: Set[str], homed: Set[str] = frozenset()) -> None:
        """Follow the map. `routes`: the other cells that have a model; `away`: models that they answer;
        `homed`: models with a home, which will answer if none does now."""
        others = self._routes.keys() != routes.keys()
        self._routes = routes
        self._away = away
        self._homed = homed
        self.look_again()
        if others:
            self.on_routes()

    def look_again(self) -> None:
        """Send what waits for a cell that can be called again."""
        for number in [*self._waiting]:
            sent = self._sent.get(number)
            if sent is None or not self._is_away(sent) or self._choose(sent) is not None:
                self._waiting.discard(number)
                if sent is not None:
                    self._send(number, sent)

    # what edges see

    @property
    def ready(self) -> bool:
        """Whether this cell is ready, or has nothing of its own and passes on what comes."""
        return self._behind.ready or (not self._behind.models and bool(self._routes))

    @property
    def open_requests(self) -> int:
        """Accepted calls without a reply, here and in other cells."""
        return self._behind.open_requests + len(self._sent)

    def held_bytes(self) -> int:
        """Return the bytes of the tensors of calls that other cells answer."""
        return self._held

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """Pass a refused request on to the serving behind."""
        self._behind.refused(model, outcome, tenant)

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Pass on the time that an edge spent on a call, if this cell answered it."""
        if model in self._behind.models:
            self._behind.answered(model, reply, read_us, made_us)

    def model_ready(self, name: str) -> bool:
        """Return whether this cell or another one has the model ready."""
        return bool(self._routes.get(name)) or (
            name in self._behind.models and self._behind.model_ready(name)
        )

    def now_us(self) -> int:
        """Return the time of the serving behind."""
        return self._behind.now_us()

    def invalidate(self, model: str = "") -> int:
        """Invalidate what the serving behind keeps, and return its count."""
        return self._behind.invalidate(model)

    def submit(self, call: Call, deliver: Deliver) -> int:
        """See `serving.ports.Serving.submit`."""
        name = call.model.name
        if name not in self._away:
            return self._behind.submit(call, deliver)
        call.arrived_us = call.arrived_us or self.now_us()
        self._count += 1
        number, sent = self._count, _Sent(call, deliver)
        self._sent[number] = sent
        self._held += sent.size
        if call.trace and self.tracer is not None and (span := self.tracer.span(call)):
            sent.parent, call.trace = call.trace, span
        self._send(number, sent)
        return number if number in self._sent else 0

    def cancel(self, request_id: int) -> None:
        """See `serving.ports.Serving.cancel`."""
        if request_id <= FIRST_ID:
            self._behind.cancel(request_id)
            return
        sent = self._take(request_id)
        self._waiting.discard(request_id)
        if sent is not None:
            self._trace(sent, Reply(CLIENT_GONE))
        if sent is not None and sent.here:
            self._behind.cancel(sent.here)
        elif sent is not None and sent.tried:
            sent.tried[-1].cancel(request_id)

    # steps

    def _send(self, number: int, sent: _Sent) -> None:
        """Send a call to a cell, or let it wait for one that has just gone; answer it if there is none."""
        call = sent.call
        name, cell = call.model.name, self._choose(sent)
        waited_us = self.now_us() - call.arrived_us if sent.waited else 0
        if not self._is_away(sent):
            call.arrived_us += waited_us
            if call.timeout_us is not None:
                call.timeout_us = max(call.timeout_us - waited_us, 1)
            sent.here = self._behind.submit(call, partial(self._reply, number))
        elif cell is not None:
            sent.tried.append(cell)
            flight = sent.flight = Flight(call, partial(self._answered, number, cell), waited_us)
            if fault := cell.send(number, flight):
                self._reply(number, Reply(QUEUE_FULL, f"{name} is in cell {cell.name}, which {fault}"))
        elif (self._routes.get(name) or name in self._homed) and len(self._waiting) < WAITING_MAX:
            sent.waited = True
            self._waiting.add(number)
            self._loop.call_later(PATIENCE_S, self._give_up, number)
        else:
            self._reply(number, Reply(NO_REPLICA, f"no cell has {name} ready"))

    def _give_up(self, number: int) -> None:
        """Answer a call that still waits for a cell."""
        if number in self._waiting:
            self._waiting.discard(number)
            sent = self._sent[number]
            name = sent.call.model.name
            said = [f"cell {cell.name} {cell.reason}" for cell, _ in self._routes.get(name, ())]
            why = ", ".join(said) or "no cell has it ready"
            self._reply(
                number, Reply(WORKER_LOST if sent.tried else NO_REPLICA, f"{name} is elsewhere: {why}")
            )

    def _choose(self, sent: _Sent) -> OtherCell | None:
        """Return a cell for a call, in proportion to the work that each has of the model; one that was tried
        only if there is no other."""
        there = [each for each in self._routes.get(sent.call.model.name, ()) if each[0].connected]
        free = [each for each in there if each[0] not in sent.tried] or there
        if not free:
            return None
        if len(free) == 1:
            return free[0][0]
        step = sent.call.sequence
        drawn = Random(str(step.id)).random() if step is not None else self._draw()  # noqa: S311
        left = drawn * sum(weight for _, weight in free)
        for cell, weight in free:
            left -= weight
            if left < 0:
                return cell
        return free[-1][0]

    def _answered(self, number: int, cell: OtherCell, reply: Reply | None, reason: str) -> None:
        """Take the reply of a cell, or its loss: a call that may have another try gets it."""
        sent = self._sent.get(number)
        if sent is None:
            return
        started = sent.flight is not None and sent.flight.started
        again = len(sent.tried) < TRIES_MAX and not started and sent.call.sequence is None
        if again and (reply is None or (reply.outcome is NO_REPLICA and self._has_other(sent))):
            sent.waited = sent.waited or reply is None
            self._send(number, sent)
            return
        if reply is None:
            reply = Reply(WORKER_LOST, f"cell {cell.name} {reason}")
        self._count_passed(cell.name, reply.outcome)
        self._reply(number, reply)

    def _has_other(self, sent: _Sent) -> bool:
        cell = self._choose(sent)
        return cell is not None and cell not in sent.tried

    def _count_passed(self, cell: str, outcome: Outcome) -> None:
        key = (cell, outcome.kind.value)
        self.passed[key] = self.passed.get(key, 0) + 1

    def _take(self, number: int) -> _Sent | None:
        """Forget a call, and return it; None if it is forgotten already."""
        sent = self._sent.pop(number, None)
        if sent is not None:
            self._held -= sent.size
        return sent

    def _is_away(self, sent: _Sent) -> bool:
        return sent.call.model.name in self._away

    def _reply(self, number: int, reply: Reply) -> None:
        sent = self._take(number)
        if sent is None:
            return  # its client has left
        call = sent.call
        if not (sent.tried or sent.here):
            self._behind.refused(call.model.name, reply.outcome, call.tenant)
        self._trace(sent, reply)
        hand_over(sent.deliver, reply, call.model.name)

    def _trace(self, sent: _Sent, reply: Reply) -> None:
        if sent.parent and self.tracer is not None:
            self.tracer.passed(sent.call, sent.parent, sent.tried[-1].name if sent.tried else "", reply)
