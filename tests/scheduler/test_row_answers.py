"""Promises of decoupled batches: one end for each request, and no second try after its first answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.scheduler.commands import ReplaceWorker, RunBatch
from serving.values.specs import Limits
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, MODEL_ERROR, WORKER_LOST, Outcome
from tests.scheduler.values import only, outcomes, request_of, rows_of, scheduler_on, send

STALL_US = 1_000


def test_a_request_ends_at_its_last_answer_and_the_others_with_their_batch() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send(scheduler, request_of(1), request_of(2))
    assert scheduler.row_answered(batch.id, 1, False, 1) == ()
    assert outcomes(scheduler.row_answered(batch.id, 1, True, 2)) == {1: COMPLETED}
    assert scheduler.open_requests == 1
    assert outcomes(scheduler.batch_done(batch.id, 5, 5)) == {2: COMPLETED}
    assert scheduler.open_requests == 0


@pytest.mark.parametrize("lost", [False, True])
def test_only_a_request_without_an_answer_is_tried_again(lost: bool) -> None:
    scheduler = scheduler_on("s", "t")
    (batch,) = send(scheduler, request_of(1), request_of(2), request_of(3))
    scheduler.row_answered(batch.id, 2, False, 1)
    scheduler.row_answered(batch.id, 3, True, 1)
    if lost:
        commands = scheduler.slice_down(batch.slice, "it was killed", 2)
    else:
        commands = scheduler.batch_failed(batch.id, "it raised", 2)
    assert outcomes(commands) == {2: WORKER_LOST if lost else MODEL_ERROR}
    (again,) = only(commands, RunBatch)
    assert rows_of(again) == [1]
    assert outcomes(scheduler.batch_done(again.id, 1, 3)) == {1: COMPLETED}


def test_a_batch_that_answers_is_not_given_up_and_one_that_is_silent_is() -> None:
    scheduler = scheduler_on("s", limits=Limits(stall_us=STALL_US))
    (batch,) = send(scheduler, request_of(1, slack_us=1_000_000))
    for now_us in range(100, 5_000, 100):
        scheduler.row_answered(batch.id, 1, False, now_us)
        assert only(scheduler.wake(now_us), ReplaceWorker) == []
    assert len(only(scheduler.wake(now_us + STALL_US), ReplaceWorker)) == 1


def test_answers_of_batches_and_requests_that_are_gone_change_nothing() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send(scheduler, request_of(1), request_of(2))
    assert outcomes(scheduler.cancel(1)) == {1: CLIENT_GONE}
    assert scheduler.row_answered(batch.id, 1, True, 1) == ()
    assert scheduler.row_answered(99, 2, True, 1) == ()
    assert outcomes(scheduler.batch_done(batch.id, 5, 5)) == {2: COMPLETED}
    assert scheduler.row_answered(batch.id, 2, True, 6) == ()


EVENTS = st.lists(
    st.tuples(st.sampled_from(("answer", "last", "cancel", "fail", "lose", "done")), st.integers(1, 6)),
    max_size=40,
)


@given(EVENTS)
def test_every_request_ends_once_whatever_happens(events: list[tuple[str, int]]) -> None:
    scheduler = scheduler_on("s", "t")
    running = send(scheduler, *(request_of(number, slack_us=10_000) for number in range(1, 7)))
    ended: dict[int, Outcome] = {}

    def take(commands: object) -> None:
        found = outcomes(commands)  # type: ignore[arg-type]  # of an event
        assert ended.keys().isdisjoint(found)
        ended.update(found)
        running.extend(only(commands, RunBatch))  # type: ignore[arg-type]  # likewise

    for now_us, (kind, number) in enumerate(events, start=1):
        batch = next((each for each in running if number in rows_of(each)), None)
        if kind == "cancel":
            take(scheduler.cancel(number))
        elif batch is None:
            continue
        elif kind in ("answer", "last"):
            take(scheduler.row_answered(batch.id, number, kind == "last", now_us))
        else:
            running.remove(batch)
            if kind == "fail":
                take(scheduler.batch_failed(batch.id, "why", now_us))
            elif kind == "done":
                take(scheduler.batch_done(batch.id, 1, now_us))
            else:
                running[:] = [each for each in running if each.slice != batch.slice]
                take(scheduler.slice_down(batch.slice, "lost", now_us))
    while running:
        take(scheduler.batch_done(running.pop().id, 1, 100))
        take(scheduler.wake(100))
    for name in ("s", "t"):
        take(scheduler.slice_down(name, "the end", 200))
    assert sorted(ended) == list(range(1, 7))
    assert scheduler.open_requests == 0
