"""The report's arithmetic, on records made by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.harness import chart
from loadtests.harness.record import CLOSED, NO_CONNECTION, NO_STATUS, NO_TIME, ClientState, Record
from loadtests.harness.report import Promise, Report, outcome_name, percentiles, summarise

MS = 1_000_000
CALM = ClientState(0.2, 0.0, 16, 16, 64, 0.1)

# load, due ms, sent ms, done ms, status, reason
Row = tuple[int, int, float, float, int, str]
STATUSES = st.sampled_from([(200, ""), (503, "queue_full"), (NO_STATUS, CLOSED)])
ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 999), st.integers(0, 40), STATUSES).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1], drawn[1] + drawn[2] + 1, *drawn[3])
    ),
    min_size=1,
    max_size=30,
)


def report_of(rows: list[Row], promises: list[Promise] | None = None, client: ClientState = CALM) -> Report:
    start = 7_000 * MS
    record = Record([start + row[1] * MS for row in rows], [row[0] for row in rows], start)
    record.sent_ns = [start + int(row[2] * MS) for row in rows]
    record.done_ns = [start + int(row[3] * MS) for row in rows]
    record.statuses = [row[4] for row in rows]
    record.reasons = [row[5] for row in rows]
    return summarise(record, promises or [Promise("a", 10), Promise("b", 20)], 1.0, client)


def test_latency_counts_from_the_due_time_not_from_the_sending() -> None:
    report = report_of([(0, 100, 100.9, 111, 200, "")])
    assert report.loads[0].latency["max_ms"] == pytest.approx(11)
    assert (report.loads[0].ok, report.loads[0].good) == (1, 0)


def test_goodput_and_attainment_use_each_loads_own_slo_and_rows() -> None:
    rows: list[Row] = [(0, 0, 0, 15, 200, ""), (0, 1, 1, 5, 200, ""), (1, 2, 2, 17, 200, ""),
                       (1, 3, 3, 4, 503, "queue_full"), (1, 4, 4, 9, NO_STATUS, CLOSED)]  # fmt: skip
    a, b = (report := report_of(rows, [Promise("a", 10, rows=4), Promise("b", 20)])).loads
    assert (a.offered, a.answered, a.ok, a.good, a.attainment) == (2, 2, 2, 1, 0.5)
    assert (b.offered, b.answered, b.ok, b.good, b.attainment) == (3, 2, 1, 1, 1 / 3)
    assert (report.total.goodput, report.total.goodput_rows, report.total.slo_ms) == (2, 5, None)
    assert [(one.outcome, one.count) for one in report.total.outcomes] == [
        ("200 in time", 2), ("200 late", 1), ("503 queue_full", 1), (CLOSED, 1)
    ]  # fmt: skip


@given(ROWS)
def test_every_arrival_is_in_exactly_one_outcome_one_load_and_one_bin(rows: list[Row]) -> None:
    report = report_of(rows)
    for one in (*report.loads, report.total):
        assert sum(outcome.count for outcome in one.outcomes) == one.offered
        width_s = report.span_s / len(one.series.start_s)
        assert sum(one.series.offered) * width_s == pytest.approx(one.offered)
        assert sum(one.series.goodput) * width_s == pytest.approx(one.good)
        assert sum(map(sum, one.series.outcomes.values())) * width_s == pytest.approx(one.offered)
    assert sum(one.offered for one in report.loads) == report.total.offered == len(rows)
    assert sum(one.good for one in report.loads) == report.total.good


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_a_percentile_is_the_smallest_value_that_enough_of_them_do_not_exceed(values: list[int]) -> None:
    for share, found in zip(
        (50, 90, 99, 99.9, 100), percentiles(np.array(values, float)).values(), strict=True
    ):
        reached = [value for value in values if sum(v <= value for v in values) * 100 >= share * len(values)]
        assert found == min(reached)


def test_a_late_client_voids_the_run_and_says_so() -> None:
    rows: list[Row] = [(0, n, n, n + 5, 200, "") for n in range(98)]
    assert report_of([*rows, (0, 99, 100.5, 105, 200, "")]).voids  # p99 of 99 arrivals is the last
    assert not report_of([*rows, (0, 99, 100, 105, 200, "")]).voids  # 1 ms is still fair
    assert not report_of([*rows, *rows, (0, 99, 150, 155, 200, "")]).voids  # one of 197 is beyond p99


@pytest.mark.parametrize("fault", [NO_CONNECTION, NO_TIME])
def test_an_arrival_that_the_client_never_sent_voids_the_run(fault: str) -> None:
    report = report_of([(0, 0, 0, 5, 200, ""), (0, 1, 1, 1, NO_STATUS, fault)])
    assert report.voids == [f"1 arrivals were never sent ({fault}, of 64 connections)"]
    assert report.as_json()["void"] is True


def test_json_holds_everything_and_null_where_there_is_nothing() -> None:
    report = report_of([(0, 0, 0, 5, 503, "queue_full")])
    plain = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert plain["loads"][0]["latency"]["p99_ms"] is None
    assert plain["loads"][1]["attainment"] is None
    assert plain["loads"][0]["outcomes"] == [
        {"outcome": "503 queue_full", "count": 1, "p50_ms": 5, "p99_ms": 5, "max_ms": 5}
    ]
    assert (plain["void"], plain["client"]["cpu"]) == (False, 0.2)


@pytest.mark.parametrize(
    ("status", "reason", "good", "name"),
    [(200, "", True, "200 in time"), (200, "", False, "200 late"), (500, "", False, "500"),
     (503, "draining", False, "503 draining"), (NO_STATUS, CLOSED, False, CLOSED)],
)  # fmt: skip
def test_outcomes_have_one_name_each(status: int, reason: str, good: bool, name: str) -> None:
    assert outcome_name(status, reason, good) == name


@pytest.mark.slow
def test_a_picture_is_drawn_also_of_a_load_without_answers(tmp_path: Path) -> None:
    rows: list[Row] = [(0, n, n, n + 5, 200, "") for n in range(50)]
    path = tmp_path / "run.png"
    chart.draw(report_of([*rows, (1, 50, 60, 70, 503, "queue_full")]), path, "a run")
    assert path.read_bytes().startswith(b"\x89PNG")
