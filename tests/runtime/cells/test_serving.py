"""Promises of all cells as one serving: a call goes to a cell with its model, and has one reply."""

from collections import Counter
from collections.abc import Sequence

import pytest

from serving.ports import Call, Reply
from serving.runtime.cells import serving as cells_serving
from serving.runtime.cells.caller import Flight
from serving.runtime.cells.serving import CellsServing
from serving.values.sequences import SequenceStep
from serving.values.tensor import Tensor
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, NO_REPLICA, QUEUE_FULL, WORKER_LOST
from tests.builders import model_spec, served
from tests.runtime.cells.cores import Core

HERE, THERE = served(model_spec("here")), served(model_spec("there"))


class Cell:
    """A `CellCaller` by hand."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connected = True
        self.reason = "is away"
        self.fault = ""
        self.flights: dict[int, Flight] = {}
        self.cancelled: list[int] = []

    def send(self, number: int, flight: Flight) -> str:
        if not self.fault:
            self.flights[number] = flight
        return self.fault

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)

    def answer(self, reply: Reply | None = None, reason: str = "") -> None:
        """Answer all calls."""
        flights, self.flights = self.flights, {}
        for flight in flights.values():
            flight.answered(reply, reason)


class Fleet:
    """A serving with the model `here`; others have `there`."""

    def __init__(self, *cells: Cell, weights: Sequence[float] = ()) -> None:
        self.core = Core([HERE])
        self.serving = CellsServing(self.core, seed=1)
        self.serving.know({"here": HERE, "there": THERE})
        self.replies: list[Reply] = []
        self.cells = cells
        self.route(*cells, weights=weights)

    def route(self, *cells: Cell, weights: Sequence[float] = ()) -> None:
        way = list(zip(cells, weights or [1.0] * len(cells), strict=True))
        self.serving.route({"there": way} if way else {}, {"there"})

    def ask(self, step: SequenceStep | None = None, trace: str = "") -> int:
        call = Call(THERE, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
        call.sequence, call.trace = step, trace
        return self.serving.submit(call, self.replies.append)

    def outcomes(self) -> list[object]:
        return [each.outcome for each in self.replies]


async def test_models_of_all_cells_are_known_and_ready() -> None:
    fleet = Fleet(Cell("b"))
    assert {*fleet.serving.models} == {"here", "there"}
    assert fleet.serving.model_ready("here")
    assert fleet.serving.model_ready("there")
    fleet.route()
    assert not fleet.serving.model_ready("there")


async def test_own_models_are_answered_here() -> None:
    fleet = Fleet(Cell("b"))
    fleet.serving.submit(Call(HERE, [Tensor("X", "FP32", (1, 4), bytes(16))], 1), fleet.replies.append)
    assert fleet.outcomes() == [COMPLETED]


async def test_a_call_of_another_cells_model_goes_there() -> None:
    fleet = Fleet(cell := Cell("b"))
    number = fleet.ask()
    assert number in cell.flights
    assert fleet.serving.open_requests == 1
    assert fleet.serving.held_bytes() == 16
    cell.answer(Reply(COMPLETED))
    assert fleet.outcomes() == [COMPLETED]
    assert fleet.serving.open_requests == 0
    assert fleet.serving.held_bytes() == 0
    assert fleet.serving.passed == {("b", "completed"): 1}
    assert not fleet.core.calls


class Traces:
    """A tracer that makes spans of sampled calls alone, and keeps them."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, str, object]] = []

    def span(self, call: Call) -> str:
        return "span" if call.trace == "sampled" else ""

    def passed(self, call: Call, parent: str, cell: str, reply: Reply) -> None:
        self.spans.append((parent, call.trace, cell, reply.outcome))


async def test_a_traced_call_has_one_span_here_and_the_other_cell_gets_it() -> None:
    fleet = Fleet(cell := Cell("b"), other := Cell("c"))
    fleet.serving.tracer = traces = Traces()
    other.connected = False
    for trace in ("", "unsampled", "sampled"):
        fleet.ask(trace=trace)
    assert [each.call.trace for each in cell.flights.values()] == ["", "unsampled", "span"]
    cell.connected, other.connected = False, True
    cell.answer(reason="is gone")
    assert [each.call.trace for each in other.flights.values()] == ["", "unsampled", "span"]
    other.answer(Reply(COMPLETED))
    assert traces.spans == [("sampled", "span", "c", COMPLETED)]
    fleet.serving.cancel(fleet.ask(trace="sampled"))
    assert traces.spans[1:] == [("sampled", "span", "c", CLIENT_GONE)]


async def test_calls_are_dealt_by_the_work_in_each_cell() -> None:
    cells = Cell("b"), Cell("c")
    fleet = Fleet(*cells, weights=(3, 1))
    for _ in range(1000):
        fleet.ask()
    assert 650 < len(cells[0].flights) < 850


async def test_a_sequence_stays_in_one_cell() -> None:
    cells = Cell("b"), Cell("c")
    fleet = Fleet(*cells)
    for _ in range(5):
        for name in range(20):
            fleet.ask(SequenceStep(name))
    counted = [
        Counter(each.call.sequence.id for each in cell.flights.values() if each.call.sequence)
        for cell in cells
    ]
    assert not counted[0].keys() & counted[1].keys()
    assert all(counted)


async def test_a_call_whose_cell_is_lost_is_tried_in_another() -> None:
    cells = Cell("b"), Cell("c")
    fleet = Fleet(*cells)
    fleet.ask()
    first = next(each for each in cells if each.flights)
    first.connected = False
    first.answer(None, "has ended the connection")
    other = next(each for each in cells if each is not first)
    other.answer(Reply(COMPLETED))
    assert fleet.outcomes() == [COMPLETED]


async def test_a_cell_without_the_model_by_now_is_tried_no_more() -> None:
    cells = Cell("b"), Cell("c")
    fleet = Fleet(*cells)
    fleet.ask()
    first = next(each for each in cells if each.flights)
    first.answer(Reply(NO_REPLICA))
    other = next(each for each in cells if each is not first)
    other.answer(Reply(NO_REPLICA))
    assert fleet.outcomes() == [NO_REPLICA]


async def test_a_call_waits_for_a_cell_that_begins_again() -> None:
    fleet = Fleet(cell := Cell("b"))
    fleet.ask()
    cell.connected = False
    cell.answer(None, "has ended the connection")
    fleet.ask()
    assert not fleet.replies
    cell.connected = True
    fleet.serving.look_again()
    cell.answer(Reply(COMPLETED))
    assert fleet.outcomes() == [COMPLETED, COMPLETED]


async def test_the_wait_for_a_cell_counts_for_the_clients_deadline_and_not_for_the_slo() -> None:
    fleet = Fleet(cell := Cell("b"))
    fleet.ask()
    (first,) = cell.flights.values()
    assert first.waited_us == 0
    cell.connected = False
    cell.answer(None, "has ended the connection")
    (sent,) = fleet.serving._sent.values()
    sent.call.arrived_us -= 300_000
    sent.call.timeout_us = 1_000_000
    cell.connected = True
    fleet.serving.look_again()
    (again,) = cell.flights.values()
    assert 300_000 <= again.waited_us < 2_000_000
    cell.connected = False
    cell.answer(None, "has ended the connection")
    fleet.core.models = {"here": HERE, "there": THERE}
    fleet.core.held = True
    fleet.serving.route({}, frozenset())
    (call,) = fleet.core.calls
    assert fleet.core.now_us() - call.arrived_us < 200_000
    assert call.timeout_us is not None
    assert call.timeout_us <= 700_000


async def test_a_call_waits_for_a_home_that_still_loads() -> None:
    fleet = Fleet(cell := Cell("b"))
    fleet.serving.route({}, {"there"}, {"there"})
    number = fleet.ask()
    assert number
    assert not fleet.replies
    fleet.route(cell)
    cell.answer(Reply(COMPLETED))
    assert fleet.outcomes() == [COMPLETED]


async def test_a_call_waits_no_longer_than_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(cell := Cell("b"))
    cell.connected = False
    number = fleet.ask()
    fleet.serving._give_up(number)
    assert fleet.outcomes() == [NO_REPLICA]
    assert fleet.replies[0].detail == "there is elsewhere: cell b is away"
    assert fleet.core.turned_away == [("there", NO_REPLICA)]
    assert cells_serving.PATIENCE_S < 3


async def test_a_step_of_a_sequence_is_not_computed_twice() -> None:
    fleet = Fleet(cell := Cell("b"))
    fleet.ask(SequenceStep(1))
    cell.answer(None, "has ended the connection")
    assert fleet.outcomes() == [WORKER_LOST]
    assert fleet.replies[0].detail == "cell b has ended the connection"


async def test_a_call_that_has_given_answers_is_not_computed_again() -> None:
    fleet = Fleet(cell := Cell("b"))
    fleet.ask()
    next(iter(cell.flights.values())).started = True
    cell.answer(None, "does not answer")
    assert fleet.outcomes() == [WORKER_LOST]


async def test_a_call_is_not_tried_for_ever() -> None:
    fleet = Fleet(cell := Cell("b"))
    fleet.ask()
    for _ in range(3):
        assert not fleet.replies
        cell.answer(None, "has ended the connection")
    assert fleet.outcomes() == [WORKER_LOST]


async def test_a_model_that_came_here_meanwhile_answers_what_waits() -> None:
    fleet = Fleet(cell := Cell("b"))
    cell.connected = False
    fleet.ask()
    fleet.core.models = {"here": HERE, "there": THERE}
    fleet.serving.look()
    fleet.serving.route({}, frozenset())
    assert fleet.outcomes() == [COMPLETED]


async def test_a_client_that_leaves_is_forgotten_wherever_its_call_is() -> None:
    fleet = Fleet(cell := Cell("b"))
    number = fleet.ask()
    fleet.serving.cancel(number)
    assert cell.cancelled == [number]
    cell.answer(Reply(COMPLETED))
    cell.connected = False
    waiting = fleet.ask()
    fleet.serving.cancel(waiting)
    fleet.core.held = True
    fleet.core.models = {"here": HERE, "there": THERE}
    cell.connected = True
    own = fleet.ask()
    cell.connected = False
    cell.answer(None, "has ended the connection")
    fleet.serving.route({}, frozenset())
    fleet.serving.cancel(own)
    assert fleet.core.cancelled == [1]
    assert not fleet.replies
    assert fleet.serving.held_bytes() == 0
    assert fleet.serving.open_requests == 0


async def test_without_a_cell_the_reply_says_so() -> None:
    fleet = Fleet()
    assert fleet.ask() == 0
    assert fleet.outcomes() == [NO_REPLICA]
    assert fleet.replies[0].detail == "no cell has there ready"


async def test_a_cell_that_does_not_keep_up_gets_no_more() -> None:
    fleet = Fleet(cell := Cell("b"))
    cell.fault = "does not keep up with its calls"
    fleet.ask()
    assert fleet.outcomes() == [QUEUE_FULL]


async def test_a_gateway_without_models_of_its_own_is_ready_by_others() -> None:
    core = Core([])
    core.ready = False
    serving = CellsServing(core)
    assert not serving.ready
    serving.route({"there": [(Cell("b"), 1.0)]}, {"there"})
    assert serving.ready
