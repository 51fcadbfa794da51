"""Which rung runs a batch: as accurate a one as its deadlines and what waits behind it leave time for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.variants.selection import (
    RISK,
    LaneBacklog,
    Rung,
    VariantCost,
    carrying,
    choose,
    frontier,
    preferred,
)
from serving.values.objectives import BALANCED, CHEAPEST, MOST_ACCURATE, OPTIMIZE
from serving.values.vocabulary import NEVER_US
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, ReplicaSeen

steps = st.lists(
    st.builds(VariantCost, st.integers(1, 6).map(float), st.integers(1, 6).map(float)), min_size=1, max_size=7
)
ROWS_MAX = 4
NEAR = 1e-6


@dataclass(frozen=True)
class Seen(ReplicaSeen):
    """It has run of late, or not."""

    stale: bool = False

    def untried(self, now_us: int) -> bool:
        return self.stale


def rung(row_us: float, merit: float, base_us: float = 0.0, stale: bool = False) -> Rung:
    """Named after its merit. A row takes as long in any batch, but for what each batch takes besides."""
    replica = Seen({0: ROWS_MAX}, row_us, base_us, stale=stale)
    return Rung(f"v{merit:g}", replica, row_us + base_us / ROWS_MAX, merit)


ladders = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=4).map(
    lambda sorts: frontier(
        [rung(row_us, float(place), base_us) for place, (row_us, base_us) in enumerate(sorts)]
    )
)
waiting = st.lists(
    st.builds(
        PieceSeen,
        rows=st.integers(1, 3),
        deadline_us=st.integers(NOW_US - 5, NOW_US + 150),
        arrived_us=st.integers(0, NOW_US),
    ),
    min_size=1,
    max_size=9,
).map(lambda found: tuple(sorted(found, key=lambda piece: piece.deadline_us)))


@dataclass(frozen=True)
class Around:
    """What is so besides the lane: its slices, who waits in others, and who may come."""

    slices: int = 1
    others_rows: int = 0
    others: tuple[tuple[float, int], ...] = ()
    comers: tuple[tuple[tuple[float, ...], int], ...] = ()
    requests: float = 0.0
    guard_us: float = 0.0


later = st.integers(NOW_US, NOW_US + 80)
elsewhere = st.just(NEVER_US) | later
arounds = st.builds(
    Around,
    slices=st.integers(1, 3),
    others_rows=st.integers(0, 9),
    others=st.lists(st.tuples(later.map(float), elsewhere), max_size=2).map(tuple),
    comers=st.lists(
        st.tuples(st.lists(st.integers(-5, 60).map(float), max_size=3).map(tuple), elsewhere), max_size=2
    ).map(tuple),
    requests=st.sampled_from([0.0, 0.0001, 0.01]),
    guard_us=st.sampled_from([0.0, 3.0]),
)
ALONE = Around()


def backlog(pieces: Sequence[PieceSeen], around: Around = ALONE, late_us: int = 0) -> LaneBacklog:
    found = LaneBacklog(LaneSeen(tuple(pieces)), around.slices, around.guard_us, NOW_US + late_us)
    found.others_rows, found.others = around.others_rows, around.others
    found.comers, found.requests = around.comers, around.requests
    return found


# the frontier


@given(steps)
def test_the_frontier_is_what_nothing_quicker_or_as_quick_equals(found: list[VariantCost]) -> None:
    """Said by pairs: each that stays out is beaten, none that stays in is."""
    kept = frontier(found)
    points = {(one.row_us, one.merit) for one in found}
    best = {
        one
        for one in points
        if not any(o != one and o[0] <= one[0] and o[1] >= one[1] for o in points)
    }  # fmt: skip
    assert [(one.row_us, one.merit) for one in kept] == sorted(best, reverse=True)
    assert all(one in found for one in kept)


def test_there_is_no_frontier_of_nothing() -> None:
    assert frontier([]) == []


# without pressure


@given(steps, st.sampled_from(OPTIMIZE))
def test_what_is_preferred_is_on_the_ladder_and_balanced_lies_between_the_ends(
    found: list[VariantCost], optimize: str
) -> None:
    ladder = frontier(found)
    assert preferred(ladder, MOST_ACCURATE) == 0
    assert preferred(ladder, CHEAPEST) == len(ladder) - 1
    assert 0 <= preferred(ladder, optimize) < len(ladder)


@pytest.mark.parametrize(
    ("sorts", "knee"),
    [
        ([(9.0, 0.9), (2.0, 0.8), (1.0, 0.5)], 1),  # three quarters of the gain for an eighth of the time
        ([(9.0, 0.9), (8.0, 0.6), (1.0, 0.5)], 0),  # hardly anything for nearly all of it: the ends are level
        ([(9.0, 0.9), (1.0, 0.5)], 0),
        ([(4.0, 0.9)], 0),
    ],
)
def test_balanced_is_the_knee(sorts: list[tuple[float, float]], knee: int) -> None:
    assert preferred([VariantCost(row_us, merit) for row_us, merit in sorts], BALANCED) == knee


@given(ladders, st.integers(0, 9).map(float), st.data())
def test_the_carrying_rung_is_the_best_that_may_be_afforded(
    ladder: list[Rung], afford_us: float, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(ladder) - 1))
    index = carrying(ladder, first, afford_us)
    assert index >= first
    assert ladder[index].row_us <= afford_us or index == len(ladder) - 1
    assert all(better.row_us > afford_us for better in ladder[first:index])


# under pressure


@given(ladders, waiting, st.lists(st.integers(0, 60), min_size=9, max_size=9), arounds, st.data())
def test_more_slack_never_chooses_a_less_accurate_rung(
    ladder: list[Rung],
    pieces: tuple[PieceSeen, ...],
    more: list[int],
    around: Around,
    data: st.DataObject,
) -> None:
    first = data.draw(st.integers(0, len(ladder) - 1))
    afford_us = data.draw(st.sampled_from([0.0, inf, *[each.row_us for each in ladder]]))
    later = [
        replace(piece, deadline_us=piece.deadline_us + max(more[: place + 1]))
        for place, piece in enumerate(pieces)
    ]
    before, _ = choose(backlog(pieces, around), ladder, first, afford_us)
    after, _ = choose(backlog(later, around), ladder, first, afford_us)
    assert after <= before


@given(ladders, waiting, arounds, st.integers(0, 20))
def test_more_that_waits_elsewhere_more_that_comes_or_later_wake_ups_never_choose_a_more_accurate_rung(
    ladder: list[Rung], pieces: tuple[PieceSeen, ...], around: Around, more: int
) -> None:
    calm, _ = choose(backlog(pieces, around), ladder, 0, inf)
    for worse in (
        replace(around, others_rows=around.others_rows + more),
        replace(around, guard_us=around.guard_us + more),
        replace(around, others=(*around.others, (NOW_US + float(more), NEVER_US))),
        replace(around, comers=(*around.comers, ((float(more),), NEVER_US))),
        replace(around, requests=2 * around.requests),
    ):
        assert choose(backlog(pieces, worse), ladder, 0, inf)[0] >= calm


@given(ladders, waiting, st.integers(0, 5), arounds)
def test_without_slack_the_quickest_runs(
    ladder: list[Rung], pieces: tuple[PieceSeen, ...], overdue_us: int, around: Around
) -> None:
    due = [replace(piece, deadline_us=NOW_US - overdue_us) for piece in pieces]
    assert choose(backlog(due, around), ladder, 0, inf) == (len(ladder) - 1, inf)


@given(ladders, waiting, arounds, st.data())
def test_it_is_never_better_than_what_is_preferred_nor_than_the_rung_above_what_carries(
    ladder: list[Rung], pieces: tuple[PieceSeen, ...], around: Around, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(ladder) - 1))
    carries = data.draw(st.integers(first, len(ladder) - 1))
    index, _ = choose(backlog(pieces, around), ladder, first, ladder[carries].row_us)
    assert max(first, carries - 1) <= index < len(ladder)


@given(ladders, waiting, st.integers(0, 9).map(lambda tenths: tenths / 10))
def test_where_even_the_quickest_cannot_carry_the_load_nothing_above_it_runs(
    ladder: list[Rung], pieces: tuple[PieceSeen, ...], share: float
) -> None:
    afford_us = share * ladder[-1].row_us
    assert choose(backlog(pieces), ladder, 0, afford_us) == (len(ladder) - 1, inf)


@given(ladders, waiting, arounds, st.data())
def test_while_nobody_comes_or_goes_it_stays_so_for_as_long_as_is_said(
    ladder: list[Rung], pieces: tuple[PieceSeen, ...], around: Around, data: st.DataObject
) -> None:
    index, spare_us = choose(backlog(pieces, around), ladder, 0, inf)
    late_us = data.draw(st.integers(0, int(min(spare_us, 200.0))))
    later, _ = choose(backlog(pieces, around, late_us), ladder, 0, inf)
    assert later == index or (later < index and around.comers), "another slice is nearer its end"


@given(ladders, waiting, arounds)
def test_a_rung_above_the_last_answers_its_first_piece_in_time_and_who_waits_in_other_lanes(
    ladder: list[Rung], pieces: tuple[PieceSeen, ...], around: Around
) -> None:
    """Or another slice is free for these."""
    index, spare_us = choose(backlog(pieces, around), ladder, 0, inf)
    if index < len(ladder) - 1:
        alone_us = ladder[index].replica.predict_us(pieces[0].rows, 0)
        back_us = NOW_US + around.guard_us + spare_us + alone_us
        assert back_us <= pieces[0].deadline_us + NEAR
        for latest_us, elsewhere_us in around.others:
            assert min(back_us, elsewhere_us) <= latest_us + NEAR


@given(ladders, waiting)
def test_a_rung_above_the_last_leaves_time_for_all_that_waits_behind(
    ladder: list[Rung], pieces: tuple[PieceSeen, ...]
) -> None:
    """Told by running it: its batch, then all others row by row at the pace of the rung below."""
    index, _ = choose(backlog(pieces), ladder, 0, inf)
    if index == len(ladder) - 1:
        return
    replica, pace = ladder[index].replica, ladder[index + 1]
    rows = taken = 0
    limit = max(pieces[0].rows, ROWS_MAX)
    while taken < len(pieces) and rows + pieces[taken].rows <= limit:
        rows += pieces[taken].rows
        taken += 1
    end_us = NOW_US + replica.predict_us(rows, 0)
    for piece in pieces[taken:]:
        end_us += piece.rows * pace.row_us
        assert end_us <= piece.deadline_us


def test_a_short_queue_is_run_by_the_best_and_a_long_one_by_what_clears_it_in_time() -> None:
    ladder = [rung(10.0, 3.0), rung(4.0, 2.0), rung(1.0, 1.0)]
    one = PieceSeen(1, NOW_US + 70, NOW_US)
    answering = [choose(backlog([one] * count), ladder, 0, inf)[0] for count in (1, 5, 15, 50)]
    assert answering == [0, 0, 1, 2]


def test_under_load_the_rung_above_what_carries_is_used_while_the_queue_is_short() -> None:
    ladder = [rung(10.0, 3.0), rung(4.0, 2.0), rung(1.0, 1.0)]
    one = PieceSeen(1, NOW_US + 100, NOW_US)
    assert choose(backlog([one]), ladder, 0, 1.0)[0] == 1
    assert choose(backlog([one] * 90), ladder, 0, 1.0)[0] == 2


def test_a_queue_whose_head_has_waited_long_is_not_run_by_a_better_one_to_the_last_moment() -> None:
    """The reserve is of the whole slack: what is left of it, late in the day, would be none."""
    ladder = [rung(8.0, 2.0), rung(1.0, 1.0)]
    fresh, old = PieceSeen(1, NOW_US + 20, NOW_US), PieceSeen(1, NOW_US + 20, NOW_US - 80)
    assert choose(backlog([fresh, fresh]), ladder, 0, inf)[0] == 0
    assert choose(backlog([old, old]), ladder, 0, inf)[0] == 1


def test_a_batch_leaves_in_time_who_waits_in_another_lane_unless_another_slice_does() -> None:
    ladder = [rung(30.0, 2.0), rung(1.0, 1.0)]
    one = PieceSeen(1, NOW_US + 100, NOW_US)

    def found(latest_us: float, elsewhere_us: int) -> int:
        return choose(backlog([one], Around(others=((latest_us, elsewhere_us),))), ladder, 0, inf)[0]

    assert found(NOW_US + 30, NEVER_US) == 0
    assert found(NOW_US + 29, NEVER_US) == 1
    assert found(NOW_US + 29, NOW_US + 29) == 0
    assert found(NOW_US + 28, NOW_US + 29) == 1


def test_a_batch_so_long_that_who_comes_meanwhile_is_late_runs_only_where_hardly_anybody_comes() -> None:
    """One of two could have waited for 80 us, the other for longer than the batch takes: of who comes in 10
    of its 90 us every other one is late."""
    ladder = [rung(90.0, 2.0), rung(1.0, 1.0)]
    one = PieceSeen(1, NOW_US + 100, NOW_US)

    def found(requests: float, elsewhere_us: int = NEVER_US) -> int:
        around = Around(comers=(((80.0, 95.0), elsewhere_us),), requests=requests)
        return choose(backlog([one], around), ladder, 0, inf)[0]

    assert found(0.9 * 2 * RISK / 10) == 0
    assert found(1.1 * 2 * RISK / 10) == 1
    assert found(1.1 * 2 * RISK / 10, NOW_US + 80) == 0


def test_a_better_one_that_has_not_run_for_long_is_tried_where_nothing_else_waits() -> None:
    """It is believed to be too slow for the load; but that may be long ago."""
    believed = [rung(10.0, 3.0, stale=True), rung(4.0, 2.0), rung(1.0, 1.0)]
    known = [rung(10.0, 3.0), *believed[1:]]
    one = PieceSeen(1, NOW_US + 100, NOW_US)
    assert choose(backlog([one]), believed, 0, 1.0)[0] == 0
    assert choose(backlog([one]), known, 0, 1.0)[0] == 1
    assert choose(backlog([one, one]), believed, 0, 1.0)[0] == 1
    assert choose(backlog([one], Around(others_rows=1)), believed, 0, 1.0)[0] == 1
    assert choose(backlog([one]), believed, 0, 0.5)[0] == 2
    assert choose(backlog([one]), believed, 1, 1.0)[0] == 1
