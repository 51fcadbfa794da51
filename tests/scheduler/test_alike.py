"""A batch that waits on one of many slices that are alike waits on all of them: one is asked."""

import pytest

from serving.policy.batching.interface import BatchingPolicy, Choice, QueueView
from serving.scheduler.scheduler import Scheduler
from serving.specs import BatchingSpec, Limits
from tests.scheduler.values import replica_of, request_of, rows_of, send, served_model, started

WAITING = BatchingSpec("static", delay_us=20_000)
"""Its batches wait so long for more rows."""


class Asked:
    """A policy that notes which slices it is asked for."""

    def __init__(self, policy: BatchingPolicy) -> None:
        self.policy = policy
        self.slices: list[str] = []

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """See `BatchingPolicy`."""
        self.slices.append(view.slice)
        return self.policy.choose(view, now_us)

    def __getattr__(self, name: str) -> object:
        return getattr(self.policy, name)


def asked_of(row_us: dict[str, float]) -> tuple[Scheduler, Asked]:
    """The model "m" on slices, where a row takes so long."""
    model = served_model(slo_us=100_000, batching=WAITING, batch_max=8)
    scheduler = Scheduler([model], Limits())
    for name, each_us in row_us.items():
        scheduler.replica_up(name, "m", replica_of(model, row_us=each_us), 0)
    asked = Asked(scheduler.models["m"].policy)
    for live in scheduler.models["m"].slices:
        live.queues["m"].policy = asked  # type: ignore[assignment]
    return scheduler, asked


@pytest.mark.parametrize("slices", [1, 2, 64])
def test_a_row_that_waits_asks_one_of_the_slices_that_are_alike(slices: int) -> None:
    scheduler, asked = asked_of({f"s{number}": 1000.0 for number in range(slices)})
    assert not send(scheduler, request_of(1, slack_us=90_000))
    assert asked.slices == ["s0"]
    (batch,) = started(scheduler, scheduler.wake_us)
    assert (batch.slice, rows_of(batch)) == ("s0", [1])


def test_of_each_kind_of_slice_one_is_asked() -> None:
    scheduler, asked = asked_of({"s0": 1000.0, "s1": 1000.0, "t0": 3000.0, "t1": 3000.0})
    assert not send(scheduler, request_of(1, slack_us=90_000))
    assert asked.slices == ["s0", "t0"]


def test_after_one_took_a_batch_the_next_of_its_kind_is_asked_for_what_is_left() -> None:
    scheduler, _ = asked_of({f"s{number}": 1000.0 for number in range(3)})
    requests = [request_of(number, slack_us=90_000) for number in range(1, 20)]
    batches = send(scheduler, *requests)
    assert [batch.slice for batch in batches] == ["s0", "s1"]
    assert [len(rows_of(batch)) for batch in batches] == [8, 8]
