"""In overload, requests of a higher rank go before others of their tenant; else a rank changes nothing."""

from collections import Counter
from collections.abc import Sequence

import pytest

from serving.scheduler.commands import Answer, Command, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.specs import BatchingSpec, Priorities
from serving.values.vocabulary import COMPLETED, NEVER_US
from tests.scheduler.values import request_of, scheduler_on, served_model

ROW_US, SLO_US, FRESH_US, END_US = 1000, 100_000, 1_500_000, 4_000_000


class Play:
    """One slice that computes 1,000 rows a second, and one request each `gap_us`, of these ranks in turn."""

    def __init__(self, gap_us: int, ranks: tuple[int, ...]) -> None:
        model = served_model(batch_max=8, slo_us=SLO_US, batching=BatchingSpec("slo", guard_us=0))
        self.scheduler: Scheduler = scheduler_on("s", model=model, row_us=ROW_US)
        self.ended: dict[int, Counter[bool]] = {rank: Counter() for rank in ranks}
        self._ends: list[tuple[int, RunBatch]] = []
        for number in range(END_US // gap_us):
            self._until(number * gap_us)
            request = request_of(number + 1, arrived_us=number * gap_us, slack_us=SLO_US)
            request.rank = ranks[number % len(ranks)]
            self._take(self.scheduler.arrive(request, number * gap_us), number * gap_us)

    def _until(self, end_us: int) -> None:
        while True:
            done_us = min([at_us for at_us, _ in self._ends], default=NEVER_US)
            now_us = min(done_us, self.scheduler.wake_us)
            if now_us >= end_us:
                return
            if now_us == done_us:
                batch = next(each for at_us, each in self._ends if at_us == now_us)
                self._ends.remove((now_us, batch))
                self._take(self.scheduler.batch_done(batch.id, batch.rows * ROW_US, now_us), now_us)
            else:
                self._take(self.scheduler.wake(now_us), now_us)

    def _take(self, commands: Sequence[Command], now_us: int) -> None:
        for each in commands:
            if isinstance(each, RunBatch):
                begin_us = max([now_us, *(at_us for at_us, _ in self._ends)])
                self._ends.append((begin_us + each.rows * ROW_US, each))
            elif isinstance(each, Answer) and each.request.arrived_us >= FRESH_US:
                in_time = each.outcome is COMPLETED and now_us <= each.request.deadline_us
                self.ended[each.request.rank][in_time] += 1

    def share(self, rank: int) -> float:
        """Of the requests of a rank, those that were answered in time."""
        ended = self.ended[rank]
        return ended[True] / ended.total()


def test_in_overload_the_higher_rank_is_answered_and_the_lower_takes_what_is_left() -> None:
    play = Play(500, (1, 0, 0, 0))  # 500 and 1,500 a second
    assert play.share(1) > 0.97
    assert 0.2 < play.share(0) < 0.45


def test_a_rank_alone_is_no_advantage() -> None:
    assert Play(500, (3,)).share(3) == pytest.approx(Play(500, (0,)).share(0), abs=0.02)


def test_below_capacity_every_rank_is_answered() -> None:
    play = Play(2000, (1, -1))
    assert play.share(1) == play.share(-1) == 1.0


def test_levels_count_from_the_default_and_others_are_the_default() -> None:
    levels = Priorities(levels=4, default=3)
    assert [levels.rank(stated) for stated in (1, 2, 3, 4)] == [2, 1, 0, -1]
    assert [levels.rank(stated) for stated in (0, 5, 1 << 40)] == [0, 0, 0]


def test_a_request_has_no_rank_unless_it_is_given_one() -> None:
    assert Request(1, "m", 1, 0, 1).rank == 0
