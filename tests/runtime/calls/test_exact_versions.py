"""Versions change names while requests wait: what names a version is computed by it, and each answer states
the version that computed all of it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from serving.ports import Call, Reply
from serving.runtime.calls.exact_versions import TRIES, ExactVersions
from serving.runtime.calls.payloads import SEVERAL
from serving.runtime.calls.selecting import SelectingServing
from serving.values.specs import BatchingSpec, ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, DEADLINE_UNMET, MODEL_ERROR, NO_REPLICA, Outcome
from serving.worker.frames.batches import BatchOutput, BatchResult
from tests.builders import model_spec, served
from tests.router.rpc_edge import Core
from tests.runtime.ground import Ground, turn


def version(number: int, name: str = "m", decoupled: bool = False) -> ServedModel:
    spec = replace(model_spec(name, batch_max=2, slo_ms=60_000), version=number, decoupled=decoupled)
    return served(spec, batching=BatchingSpec("static"))


TWO, THREE, ASIDE = version(2), version(3), version(2, "m@2")


class House(Ground):
    """Version 2 has the model's name and replica 1, until `switch`."""

    def __init__(self, decoupled: bool = False) -> None:
        super().__init__(version(2, decoupled=decoupled))
        self.serving = SelectingServing(self.gateway)
        self.route()

    def ask(self, model: ServedModel = TWO, rows: int = 1) -> None:
        call = Call(model, [Tensor("X", "FP32", (rows, 4), bytes(16 * rows))], rows)
        self.serving.submit(call, self.replies.append)

    def switch(self, *others: ServedModel, new: ServedModel = THREE) -> None:
        """Let another version have the name, and replica 3; the `others` come first, with replica 2."""
        for each in others:
            self.gateway.serve(each)
            self.route(each.name, 2)
        self.gateway.serve(new)
        self.route("m", 3)

    async def next(self) -> None:
        """Let the batch that has run the longest be done."""
        self.finish()
        await turn()

    @property
    def running(self) -> list[int]:
        return [replica for _, replica, _ in self.bench.running]

    @property
    def answers(self) -> list[tuple[Outcome, int]]:
        return [(reply.outcome, reply.version) for reply in self.replies]


@pytest.fixture
async def house() -> House:
    return House()


async def test_a_request_that_waits_as_the_name_goes_is_computed_by_the_version_it_names(
    house: House,
) -> None:
    house.ask()
    await turn()
    house.ask(TWO.pinned)
    house.switch(ASIDE)
    assert house.running == [1]
    await house.next()
    assert house.answers == [(COMPLETED, 0)]
    assert house.running == [3], "what waited goes to what has the name"
    await house.next()
    assert house.running == [2], "and what that says is no answer"
    await house.next()
    assert house.answers == [(COMPLETED, 0)] * 2


async def test_a_request_that_is_asked_again_is_cancelled_by_the_id_that_its_edge_has(house: House) -> None:
    house.ask()
    await turn()
    call = Call(TWO.pinned, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
    request_id = house.serving.submit(call, house.replies.append)
    house.switch(ASIDE)
    await house.next()
    await house.next()
    assert house.running == [2]
    house.serving.cancel(request_id)
    assert house.answers == [(COMPLETED, 0), (CLIENT_GONE, 0)]


async def test_an_error_of_another_version_is_none_of_the_one_it_names(house: House) -> None:
    house.ask()
    await turn()
    house.ask(TWO.pinned)
    house.switch(ASIDE)
    await house.next()
    house.gateway.batch_failed(house.bench.running.pop(0)[0], "it raised")
    await turn()
    assert house.running == [2]
    house.gateway.batch_failed(house.bench.running.pop(0)[0], "it raised, too")
    assert house.answers[1:] == [(MODEL_ERROR, 0)]


async def test_a_request_that_was_read_before_the_name_went_is_given_the_new_one(house: House) -> None:
    house.switch(ASIDE)
    house.ask(TWO.pinned)
    await turn()
    house.ask(THREE.pinned)
    await turn()
    assert house.running[:1] == [2]
    await house.next()
    await house.next()
    assert house.answers == [(COMPLETED, 0)] * 2


async def test_a_request_that_names_none_says_what_computed_it(house: House) -> None:
    house.ask()
    await turn()
    house.ask()
    house.switch()
    await house.next()
    await house.next()
    assert house.answers == [(COMPLETED, 0), (COMPLETED, 3)]


async def test_the_batches_of_a_large_request_are_all_of_one_version(house: House) -> None:
    house.ask(rows=4)
    await turn()
    house.switch()
    await house.next()
    assert house.running == [3]
    await house.next()
    assert house.answers == []
    await house.next()
    await house.next()
    assert house.answers == [(COMPLETED, 3)]


async def test_what_names_a_version_that_is_gone_is_refused(house: House) -> None:
    house.ask()
    await turn()
    house.ask(TWO.pinned)
    house.switch()
    await house.next()
    await house.next()
    house.ask(TWO.pinned)
    house.switch(new=replace(version(4), spec=replace(version(4).spec, batch_max=1)))
    assert house.answers == [(COMPLETED, 0), (NO_REPLICA, 0), (NO_REPLICA, 0)]
    assert house.replies[-1].detail == "m did not answer: version 2 is served no more"


async def test_a_version_that_other_tensors_go_into_does_not_get_what_was_read_for_it(house: House) -> None:
    other = replace(ASIDE, spec=replace(ASIDE.spec, outputs=()))
    house.switch(other)
    house.ask(TWO.pinned)
    assert house.answers == [(NO_REPLICA, 0)]


async def test_answers_to_a_request_that_names_a_version_are_given_only_by_it() -> None:
    house, rows = House(decoupled=True), list[tuple[int, int]]()  # which replica, and the version stated

    def ask(model: ServedModel) -> None:
        call = Call(model, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
        call.on_answer = lambda outputs, version: rows.append((bytes(outputs[0].data)[0], version))
        house.serving.submit(call, house.replies.append)

    async def answer() -> None:
        """Answer each row of a batch with the number of its replica."""
        batch, replica, count = house.bench.running.pop(0)
        for row in range(count):
            part = [BatchOutput("FP32", (4,), bytes([replica]) * 16, 1)]
            found = BatchResult(batch, 50, row, 1, part)
            found.is_last = True
            house.gateway.row_answered(found)
        house.gateway.batch_done(BatchResult(batch, 50, 0, count, []))
        await turn()

    two = version(2, decoupled=True)
    ask(two)
    await turn()
    ask(two.pinned)
    ask(two)
    house.switch(version(2, "m@2", True), new=version(3, decoupled=True))
    while house.running:
        await answer()
    assert sorted(rows) == [(1, 0), (2, 0), (3, 3)]
    assert sorted(version for _, version in house.answers) == [0, 0, 3]


@pytest.mark.parametrize("outcome", [COMPLETED, DEADLINE_UNMET])
def test_versions_that_change_all_the_time_end_in_an_error(outcome: Outcome) -> None:
    def answer(_call: Call) -> Reply:
        reply = Reply(outcome)
        reply.version = SEVERAL
        return reply

    core = Core(answer)
    core.models = {"m": TWO}
    replies: list[Reply] = []
    deliver: Callable[[Reply], None] = replies.append
    ExactVersions(core).submit(Call(TWO, (), 2), deliver)
    asked = 1 + TRIES if outcome is COMPLETED else 1
    assert len(core.calls) == asked
    assert [reply.outcome for reply in replies] == [NO_REPLICA if outcome is COMPLETED else outcome]
