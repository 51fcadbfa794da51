"""The figures of a point follow from its record, its verdicts from them; void points count for nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.harness.dispatch import Load
from loadtests.harness.record import CLOSED, NO_STATUS, ClientState, Record
from loadtests.harness.report import Promise, summarise
from loadtests.scheduling.slo_capacity import Point, aims, draw, ending, judge, line
from loadtests.stand.testbed import Played, drift

MS = 1_000_000
SLO_MS = 50.0
CALM = ClientState(0.2, 0.0, 16, 16, 64, 0.1)

Row = tuple[float, int, str]  # told after ms, status, reason
ROWS = st.lists(
    st.tuples(
        st.floats(0.1, 100), st.sampled_from([(200, ""), (503, "overload"), (504, "deadline_unmet"),
                                              (500, "model_error"), (NO_STATUS, CLOSED)])
    ).map(lambda drawn: (drawn[0], *drawn[1])),
    min_size=1,
    max_size=30,
)  # fmt: skip


def played(rows: list[Row], voids: tuple[str, ...] = ()) -> Played:
    """A run of a second, its requests one millisecond apart."""
    record = Record([number * MS for number in range(len(rows))], [0] * len(rows))
    record.sent_ns = list(record.due_ns)
    record.done_ns = [due + int(row[0] * MS) for due, row in zip(record.due_ns, rows, strict=True)]
    record.statuses, record.reasons = [row[1] for row in rows], [row[2] for row in rows]
    report = summarise(record, [Promise("m", SLO_MS)], 1.0, CALM)
    return Played(Load(np.arange(len(rows)) / 1e3, []), record, report, SLO_MS, voids)


def point(load: float, share: float, attainment: float = 1.0, soon: float = 1.0) -> Point:
    counts = {"in time": 1, "rejected": 1}
    times = {"p50": 1.0, "p99": 2.0, "max": 3.0}
    return Point(
        load, load * 1000, (1000, 1000), attainment, share * 1000, counts, times, times, soon, soon, 0.1, ()
    )


@given(ROWS)
def test_every_request_of_a_point_is_counted_once_and_told_within_5_ms_or_not(rows: list[Row]) -> None:
    found = judge(1.0, (100, 110), played(rows))
    good = [row for row in rows if row[1] == 200 and int(row[0] * MS) <= SLO_MS * MS]
    bad = [row for row in rows if row not in good]
    assert sum(found.counts.values()) == len(rows)
    assert found.counts.get("in time", 0) == len(good) == round(found.attainment * len(rows))
    assert (found.goodput, found.capacity, found.share) == (len(good), 105, len(good) / 105)
    if bad:
        assert found.soon == pytest.approx(sum(int(row[0] * MS) <= 5 * MS for row in bad) / len(bad))


def test_of_the_others_those_turned_away_are_told_apart() -> None:
    rows: list[Row] = [(49, 200, ""), (51, 200, ""), (1, 503, "overload"), (6, 503, "queue_full"),
                       (30, 504, "deadline_unmet"), (2, NO_STATUS, CLOSED)]  # fmt: skip
    found = judge(1.0, (100, 100), played(rows))
    assert found.counts == {"in time": 1, "late": 1, "rejected": 2, "shed": 1, "lost": 1}
    assert (found.rejected_soon, found.soon) == (0.5, 0.4)
    assert found.told_ms == pytest.approx({"p50": 6, "p99": 51, "max": 51})


@pytest.mark.parametrize(
    ("status", "reason", "in_time", "kind"),
    [(200, "", True, "in time"), (200, "", False, "late"), (503, "overload", True, "rejected"),
     (504, "deadline_unmet", True, "shed"), (503, "worker_lost", True, "failed"), (500, "", True, "failed"),
     (NO_STATUS, CLOSED, True, "lost")],
)  # fmt: skip
def test_an_ending_is_named_by_the_kind_of_its_outcome(
    status: int, reason: str, in_time: bool, kind: str
) -> None:
    assert ending(status, reason, in_time) == kind


def test_a_run_between_two_capacities_that_differ_by_over_a_tenth_is_void_as_one_that_others_disturbed() -> (
    None
):
    assert drift(100, 110) == drift(100, 90) == []
    assert judge(1, (100, 111), played([(1, 200, "")])).voids
    assert judge(1, (100, 89), played([(1, 200, "")])).voids
    found = judge(1, (100, 100), played([(1, 200, "")], ("others took 9% of core 0",)))
    assert found.voids == ["others took 9% of core 0"]
    assert "VOID: others took 9% of core 0" in line(found)


def test_promises_are_held_against_the_points_they_are_made_of() -> None:
    kept = [
        point(0.5, 0.5, 0.999),
        point(0.8, 0.8, 0.99),
        point(0.95, 0.1, 0.1),
        point(1.1, 0.95),
        point(3, 0.95),
    ]
    assert set(aims(kept).values()) == {True}
    assert len(aims(kept)) == 7
    for broken in (
        point(0.5, 0.5, 0.9989), point(0.8, 0.8, 0.9899), point(1.1, 0.949), point(2, 0.949),
        point(2, 1, soon=0.98),
    ):  # fmt: skip
        assert list(aims([broken]).values()).count(False) == 1, broken
    assert not aims([point(1.1, 1.05), point(3, 1.02)])["no fall-off of goodput from 1.1 to 3"]


def test_void_points_neither_keep_nor_break_a_promise() -> None:
    assert aims([replace(point(0.5, 0.1, 0.1), voids=["no"])]) == {}


@pytest.mark.slow
def test_a_picture_is_drawn_also_where_nobody_was_turned_away(tmp_path: Path) -> None:
    found = [judge(load, (100, 100), played([(1, 200, "")])) for load in (0.5, 0.8)]
    draw(found, tmp_path / "new" / "points.png", "points")
    assert (tmp_path / "new" / "points.png").read_bytes().startswith(b"\x89PNG")
