"""A sequence has one replica from START to END, and its requests run one at a time, in order, once."""

from collections.abc import Iterable
from dataclasses import replace

from serving.scheduler.commands import Answer, Command, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.sequences import SequenceSpec, SequenceStep, StateSpec
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import (
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_UNMET,
    MODEL_ERROR,
    NEVER_US,
    SEQUENCE_LOST,
    WORKER_LOST,
)
from tests.scheduler.values import only, outcomes, replica_of, rows_of, served_model, started

IDLE_US = 500
STATE = (StateSpec("I", "O", "INT32", (1,)),)


def stateful(*slices: str, slots: int = 4, state: tuple[StateSpec, ...] = STATE) -> Scheduler:
    """The model "m" with sequences on these slices; a row takes 10 us."""
    plain = served_model(slo_us=10_000, batching=BatchingSpec("slo"))
    spec = SequenceSpec("oldest", slots, IDLE_US, (), state)
    model = replace(plain, spec=replace(plain.spec, sequence=spec), replicas=None)
    scheduler = Scheduler([model], Limits(stall_us=1 << 40), ahead=False)
    for number, name in enumerate(slices, 1):
        scheduler.replica_up(name, "m", replica_of(model, "a", number, row_us=10.0), 0)
    return scheduler


def step(
    request_id: int,
    name: int | str,
    flags: str = "",
    now_us: int = 0,
    slack_us: int = 10_000,
    tenant: str = "x",
) -> Request:
    """A request of a sequence; `flags`: S for START, E for END."""
    request = Request(request_id, "m", 1, now_us, now_us + slack_us)
    request.variants, request.tenant = ("a",), tenant
    request.step = SequenceStep(name, "S" in flags, "E" in flags)
    return request


def ask(scheduler: Scheduler, *requests: Request, now_us: int = 0) -> None:
    for request in requests:
        assert scheduler.arrive(request, now_us) == ()


def started_in(commands: Iterable[Command]) -> list[RunBatch]:
    return only(commands, RunBatch)


def told(scheduler: Scheduler, request: Request, now_us: int) -> Answer:
    (answer,) = only(scheduler.arrive(request, now_us), Answer)
    return answer


def test_requests_of_one_sequence_run_one_after_the_other_and_those_of_others_beside_it() -> None:
    scheduler = stateful("s")
    ask(scheduler, step(1, 5, "S"), step(2, 5), step(3, 6, "S"), step(4, 5, "E"))
    (first,) = started(scheduler)
    assert rows_of(first) == [1, 3]
    assert [piece.request.slot for piece in first.pieces] == [0, 1]
    commands = scheduler.batch_done(first.id, 20, 20)
    (second,) = started_in(commands)
    assert rows_of(second) == [2]
    (third,) = started_in(scheduler.batch_done(second.id, 10, 30))
    assert rows_of(third) == [4]
    assert outcomes(scheduler.batch_done(third.id, 10, 40)) == {4: COMPLETED}
    assert told(scheduler, step(5, 5, now_us=50), 50).outcome is BAD_INPUT


def test_sequences_are_spread_over_replicas_and_stay_where_they_are() -> None:
    scheduler = stateful("s", "t")
    ask(scheduler, step(1, 1, "S"), step(2, 2, "S"), step(3, 3, "S"))
    batches = started(scheduler)
    homes = {piece.request.id: batch.slice for batch in batches for piece in batch.pieces}
    assert sorted(homes.values()) == ["s", "s", "t"]
    for batch in batches:
        scheduler.batch_done(batch.id, 10, 100)
    ask(scheduler, step(4, 1, now_us=200), step(5, 2, now_us=200), step(6, 3, now_us=200), now_us=200)
    again = {piece.request.id: batch.slice for batch in started(scheduler, 200) for piece in batch.pieces}
    assert again == {request_id + 3: home for request_id, home in homes.items()}


def test_the_words_for_an_unknown_sequence_are_tritons() -> None:
    answer = told(stateful("s"), step(1, "abc"), 0)
    assert answer.outcome is BAD_INPUT
    assert answer.detail == (
        "inference request for sequence abc to model 'm' must specify the START flag on the first request of"
        " the sequence"
    )


def test_ids_of_two_tenants_and_a_number_and_its_text_are_different_sequences() -> None:
    scheduler = stateful("s")
    ask(scheduler, step(1, 5, "S"))
    assert told(scheduler, step(2, 5, tenant="y"), 0).outcome is BAD_INPUT
    assert told(scheduler, step(3, "5"), 0).outcome is BAD_INPUT
    ask(scheduler, step(4, 5))


def test_a_start_waits_for_a_slot_until_one_is_free() -> None:
    scheduler = stateful("s", slots=1)
    ask(scheduler, step(1, 1, "S"), step(2, 2, "S"), step(3, 2))
    (first,) = started(scheduler)
    assert rows_of(first) == [1]
    assert started_in(scheduler.batch_done(first.id, 10, 20)) == []
    ask(scheduler, step(4, 1, "E", now_us=30), now_us=30)
    (last,) = started(scheduler, 30)
    (other,) = started_in(scheduler.batch_done(last.id, 10, 40))
    assert rows_of(other) == [2]


def test_a_start_that_waits_for_a_slot_in_vain_ends_with_what_follows_it() -> None:
    scheduler = stateful("s", slots=1)
    ask(scheduler, step(1, 1, "S"), step(2, 2, "S", slack_us=300), step(3, 2))
    (first,) = started(scheduler)
    scheduler.batch_done(first.id, 10, 20)
    assert scheduler.wake_us <= 301
    assert outcomes(scheduler.wake(301)) == {2: DEADLINE_UNMET, 3: SEQUENCE_LOST}
    assert told(scheduler, step(4, 2, now_us=310), 310).outcome is SEQUENCE_LOST


def test_an_idle_sequence_ends_and_its_slot_is_free() -> None:
    scheduler = stateful("s", slots=1)
    ask(scheduler, step(1, 1, "S"), step(2, 2, "S"))
    (first,) = started(scheduler)
    scheduler.batch_done(first.id, 10, 20)
    (other,) = started(scheduler, 20 + IDLE_US)
    assert rows_of(other) == [2]
    answer = told(scheduler, step(3, 1, now_us=600), 600)
    assert answer.outcome is BAD_INPUT
    assert answer.detail.endswith("; the gateway ended it after 0.0005 s without a request")


def test_a_lost_worker_ends_its_sequences_once_each_and_the_next_request_hears_why() -> None:
    scheduler = stateful("s", "t")
    ask(scheduler, step(1, 1, "S"), step(2, 2, "S"), step(3, 1))
    batches = {batch.slice: batch for batch in started(scheduler)}
    (lost,) = rows_of(batches["s"])
    kept = 3 - lost
    waiting = {3: SEQUENCE_LOST} if lost == 1 else {}
    assert outcomes(scheduler.slice_down("s", "the worker died", 10)) == {lost: WORKER_LOST} | waiting
    answer = told(scheduler, step(4, lost, now_us=20), 20)
    assert answer.outcome is SEQUENCE_LOST
    assert "is lost: the worker died; start it again with the START flag" in answer.detail
    scheduler.batch_done(batches["t"].id, 10, 30)
    ask(scheduler, step(5, kept, now_us=40), step(6, lost, "S", now_us=40), now_us=40)


def test_a_sequence_that_has_not_run_is_placed_again_when_its_worker_dies() -> None:
    scheduler = stateful("s", "t")
    ask(scheduler, step(1, 1, "S"), step(2, 1, "E"))
    commands = scheduler.slice_down("s", "died", 0)
    assert outcomes(commands) == {}
    (batch,) = started_in(commands)
    assert (batch.slice, rows_of(batch)) == ("t", [1])


def test_a_cancelled_request_that_waits_ends_what_is_behind_it_but_not_what_is_before() -> None:
    scheduler = stateful("s")
    ask(scheduler, step(1, 1, "S"), step(2, 1), step(3, 1), step(4, 1))
    (first,) = started(scheduler)
    assert outcomes(scheduler.cancel(3)) == {3: CLIENT_GONE}
    assert outcomes(scheduler.wake(1)) == {4: SEQUENCE_LOST}
    commands = scheduler.batch_done(first.id, 10, 20)
    assert outcomes(commands) == {1: COMPLETED}
    (second,) = started_in(commands)
    assert outcomes(scheduler.batch_done(second.id, 10, 30)) == {2: COMPLETED}
    assert told(scheduler, step(5, 1, now_us=40), 40).outcome is SEQUENCE_LOST


def test_a_cancelled_request_that_runs_counts_and_the_next_waits_for_it() -> None:
    scheduler = stateful("s", "t")
    ask(scheduler, step(1, 1, "S"), step(2, 1))
    (first,) = started(scheduler)
    assert outcomes(scheduler.cancel(1)) == {1: CLIENT_GONE}
    assert started(scheduler, 5) == []
    (second,) = started_in(scheduler.batch_done(first.id, 10, 20))
    assert rows_of(second) == [2]


def test_a_batch_that_raises_runs_again_in_halves_only_if_the_model_keeps_nothing_itself() -> None:
    for state, expected in ((STATE, {}), ((), {1: MODEL_ERROR, 2: MODEL_ERROR})):
        scheduler = stateful("s", state=state)
        ask(scheduler, step(1, 1, "S"), step(2, 2, "S"))
        (batch,) = started(scheduler)
        commands = scheduler.batch_failed(batch.id, "raised", 20)
        assert outcomes(commands) == expected
        assert [rows_of(each) for each in started_in(commands)] == ([[1]] if state else [])
        if not state:
            ask(scheduler, step(3, 1, now_us=30), now_us=30)  # the model has answered: the sequence goes on


def test_a_replica_that_is_to_go_takes_no_new_sequence_and_keeps_its_own() -> None:
    scheduler = stateful("s", "t")
    ask(scheduler, step(1, 1, "S"))
    (first,) = started(scheduler)
    scheduler.batch_done(first.id, 10, 20)
    assert scheduler.close_place(first.slice, "m", "a") == 1
    ask(
        scheduler,
        step(2, 2, "S", now_us=30),
        step(3, 3, "S", now_us=30),
        step(4, 1, "E", now_us=30),
        now_us=30,
    )
    homes = {piece.request.id: each.slice for each in started(scheduler, 30) for piece in each.pieces}
    assert homes[4] == first.slice
    assert first.slice not in (homes[2], homes[3])


def test_a_slice_with_a_live_sequence_is_busy_and_not_quiet() -> None:
    scheduler = stateful("s")
    ask(scheduler, step(1, 1, "S"))
    (first,) = started(scheduler)
    scheduler.batch_done(first.id, 10, 20)
    scheduler.models["m"].book.spec = SequenceSpec("oldest", 4, NEVER_US >> 8)  # type: ignore[union-attr]
    scheduler.wake(IDLE_US)
    assert scheduler.busy("s") == {"m"}
    assert not scheduler.is_quiet("s", 100_000_000)


def test_a_sequence_stays_on_one_variant_and_a_request_that_allows_only_others_is_refused() -> None:
    scheduler = stateful("s")
    model = scheduler.models["m"].served
    scheduler.replica_up("s", "m", replica_of(model, "b", 9, row_us=10.0), 0)
    first = step(1, 1, "S")
    first.variants = ("a", "b")
    ask(scheduler, first)
    (batch,) = started(scheduler)
    scheduler.batch_done(batch.id, 10, 20)
    other, same = (step(number, 1, now_us=30) for number in (2, 3))
    other.variants, same.variants = ("b",), ("b", "a")
    refused = told(scheduler, other, 30)
    assert refused.outcome is BAD_INPUT
    assert refused.detail == "sequence 1 of model 'm' runs on variant 'a' until it ends; got a request for b"
    ask(scheduler, same, now_us=30)
    (batch,) = started(scheduler, 30)
    assert (batch.variant, rows_of(batch)) == ("a", [3])
