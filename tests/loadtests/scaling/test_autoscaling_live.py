"""The day that is played live, what is counted of it, faults in it; and a real gateway that scales."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.failures.changes import DONE, Move
from loadtests.failures.losses import DOWN, GOOD, LOST, REFUSAL
from loadtests.harness.dispatch import Load, Server, measure
from loadtests.harness.gateway import Gateway, started
from loadtests.harness.processes import tree_us
from loadtests.harness.record import CLOSED, NO_ANSWER, Record
from loadtests.harness.report import IN_TIME, LATE
from loadtests.scaling.autoscaling_faults import Fault, Finding, judge
from loadtests.scaling.autoscaling_live_shown import HEADINGS, cells, draw, write_csv, write_markdown
from loadtests.scaling.autoscaling_live_subjects import WAITING, Waiting, waiting
from loadtests.scaling.autoscaling_live_trace import (
    FLASH_AT,
    FLASH_S,
    Count,
    Round,
    Shape,
    arrivals,
    changes,
    day,
    held_seconds,
    worst,
)
from loadtests.scaling.autoscaling_live_watch import CHANGES, HELD, metrics, read, watching
from loadtests.selection.variants_scores import Figures, Told
from router.verbs.explain.main import explain
from serving.simulation.traffic.patterns import RateStep
from tests.loadtests.patience import patient

pytestmark = [pytest.mark.live, pytest.mark.in_turn(2)]

SHAPE = Shape(0.25, 1.4, 2.5)
DAY_S, FULL = 180.0, 40.0
PATIENCE_S = 60.0


# the day


def rate_at(steps: Sequence[RateStep], at_s: float) -> float:
    ends_s = np.cumsum([step.seconds for step in steps])
    return steps[int(np.searchsorted(ends_s, at_s, side="right"))].rate


def test_a_day_goes_from_night_to_noon_and_back_with_a_crowd_in_the_morning() -> None:
    steps = day(SHAPE, DAY_S, FULL)
    assert rate_at(steps, 0.1) == pytest.approx(0.25 * FULL, rel=0.01)
    assert rate_at(steps, DAY_S / 2) == pytest.approx(1.4 * FULL, rel=0.01)
    assert rate_at(steps, DAY_S - 0.1) == pytest.approx(0.25 * FULL, rel=0.01)
    crowd_s = FLASH_AT * DAY_S
    assert rate_at(steps, crowd_s - 0.1) < 0.5 * FULL
    assert rate_at(steps, crowd_s + 0.1) == rate_at(steps, crowd_s + FLASH_S - 0.1) == 2.5 * FULL
    assert rate_at(steps, crowd_s + FLASH_S + 0.1) < 0.6 * FULL
    assert sum(step.rate == 2.5 * FULL for step in steps) == 1


@given(st.floats(7, 5000), st.floats(0, 3), st.floats(0, 3), st.floats(0.1, 9))
def test_a_day_lasts_as_long_as_it_is_to_and_the_crowd_takes_nobody_elses_time(
    day_s: float, low: float, more: float, flash: float
) -> None:
    steps = day(Shape(low, low + more, flash), day_s, FULL)
    assert sum(step.seconds for step in steps) == pytest.approx(day_s)
    others = [step for step in steps if step.rate != flash * FULL]
    assert all(low * FULL <= step.rate * 1.000001 for step in others)
    assert all(step.rate <= (low + more) * FULL * 1.000001 for step in others)
    if others:
        assert sum(step.seconds for step in others) == pytest.approx(day_s - FLASH_S)


def test_a_day_that_has_no_room_for_its_crowd_is_refused() -> None:
    with pytest.raises(ValueError, match="no room for a crowd of 6 s"):
        day(SHAPE, 6.5, FULL)


def test_the_same_seed_has_the_same_arrivals_and_another_has_others() -> None:
    steps = day(SHAPE, DAY_S, FULL)
    first, again, other = arrivals(steps, 1), arrivals(steps, 1), arrivals(steps, 2)
    assert first.tolist() == again.tolist()
    assert first.tolist()[:50] != other.tolist()[:50]
    expected = sum(step.rate * step.seconds for step in steps)
    assert len(first) == pytest.approx(expected, abs=5 * expected**0.5)
    crowd_s = FLASH_AT * DAY_S
    crowd = ((first >= crowd_s) & (first < crowd_s + FLASH_S)).sum()
    assert crowd == pytest.approx(2.5 * FULL * FLASH_S, abs=5 * (2.5 * FULL * FLASH_S) ** 0.5)


# what is counted


def test_replica_seconds_are_the_integral_of_the_count() -> None:
    counts = [Count(0.0, 1), Count(10.0, 3), Count(12.5, 2), Count(20.0, 0)]
    assert held_seconds(counts, 0.0, 30.0) == 10 * 1 + 2.5 * 3 + 7.5 * 2
    assert held_seconds(counts, 9.0, 11.0) == 1 * 1 + 1 * 3
    assert held_seconds(counts, 13.0, 14.0) == 2
    assert held_seconds(counts, 25.0, 30.0) == 0
    assert held_seconds([Count(-5.0, 4)], 0.0, 2.5) == 10


def test_replica_seconds_are_not_made_up_where_nobody_counted() -> None:
    for counts in ([], [Count(1.0, 2)]):
        with pytest.raises(ValueError, match="nobody counted before 0 s"):
            held_seconds(counts, 0.0, 10.0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 29), st.integers(0, 40))
def test_replica_seconds_count_each_second_once_and_repeated_readings_change_nothing(
    each: list[int], from_s: int, until_s: int
) -> None:
    counts = [Count(float(at_s), count) for at_s, count in enumerate(each)]
    lasting = [*each, *[each[-1]] * 40]
    assert held_seconds(counts, from_s, until_s) == sum(lasting[from_s:until_s])
    assert held_seconds(changes(counts), from_s, until_s) == sum(lasting[from_s:until_s])
    assert all(
        one.count != other.count for one, other in zip(changes(counts), changes(counts)[1:], strict=False)
    )


def told(*endings: tuple[float, bool]) -> list[Told]:
    return [Told(due_s, 1.0, IN_TIME if good else LATE) for due_s, good in endings]


def test_the_worst_ten_seconds_are_found_wherever_they_begin() -> None:
    good = [(at_s / 2, True) for at_s in range(120)]
    assert worst(told(*good), 60.0) == 1.0
    bad_from = [(at_s, good and not 33 <= at_s < 38) for at_s, good in good]
    assert worst(told(*bad_from), 60.0) == pytest.approx(0.5)
    assert worst(told((55.0, False)), 60.0) == 0.0
    assert worst([], 60.0) == 1.0
    assert worst(told((1.0, True), (2.0, False)), 5.0) == 0.5  # a day that is shorter than the window


def test_a_metric_is_summed_over_its_samples_and_not_over_its_namesakes() -> None:
    text = f'# HELP {HELD} x\n{HELD}{{kind="a"}} 2\n{HELD}{{kind="b"}} 1\n{HELD}_total 9\ny 3.5\n'
    assert read(text, HELD) == 3
    assert read(text, "y") == 3.5
    assert read(text, "nothing") == 0


def test_the_cpu_time_of_a_tree_keeps_that_of_children_which_have_ended() -> None:
    before_us = tree_us(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-S", "-c", burn], check=True)
    assert tree_us(os.getpid()) - before_us >= 180_000  # ticks are of 10 ms


def played(provision: str, *voids: str) -> Round:
    figures = Figures(
        0.8, 0.0, 60.0, 30.0, 4, 0.75, 20.0, 0.9, 0.9, 0.95, {"fine": 2, "rough": 2}, {}, {"503 overload": 1}
    )
    counts = [Count(-1.0, 1), Count(20.0, 2), Count(50.0, 1)]
    due_s = [1.0, 2.0, 30.0, 31.0]
    return Round("toy", provision, figures, 0.5, 90.0, 0.001, 2, counts, due_s[:3], due_s, voids)


def test_a_day_is_written_as_a_row_of_each_table_and_drawn(tmp_path: Path) -> None:
    rounds = [played("slo"), played("hpa", "others took 9% of a core")]
    assert [len(cells(one)) for one in rounds] == [len(HEADINGS)] * 2
    write_csv(rounds, tmp_path / "day.csv")
    assert (tmp_path / "day.csv").read_text().splitlines()[1].startswith("toy,slo,75.00%,50.0%,0.9000,90,")
    write_markdown(rounds, tmp_path / "day.md")
    lines = (tmp_path / "day.md").read_text().splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 1}
    assert "| toy | hpa VOID |" in lines[3]
    assert "fine 50%, rough 50% | 1 overload |" in lines[2]
    draw(rounds, {"toy": [RateStep(1.0, 30.0), RateStep(2.0, 30.0)]}, tmp_path / "day.png")
    assert (tmp_path / "day.png").read_bytes().startswith(b"\x89PNG")


# faults


def ran(*others: tuple[float, int, str]) -> Record:
    """An answer every 100 ms for 20 s, and these: due (seconds), status, reason."""
    rows = sorted([*((number / 10, 200, "") for number in range(1, 200)), *others])
    record = Record([int(due_s * 1e9) for due_s, *_ in rows], [0] * len(rows))
    for number, (due_s, status, reason) in enumerate(rows):
        record.sent_ns[number] = int(due_s * 1e9)
        record.done_ns[number] = int(due_s * 1e9) + 20_000_000
        record.statuses[number], record.reasons[number] = status, reason
    return record


def judged(record: Record, *faults_s: float, down_s: tuple[float, float] = (0.0, 0.0)) -> Finding:
    move = Move(10.0, 13.0, DONE, (), list(faults_s), down_s)
    return judge("a fault", record, Fault(move, 2, 3, "what"), 50.0, [])


def test_what_was_in_the_killed_process_may_be_lost_and_nothing_else() -> None:
    near, far = (10.05, 503, "worker_lost"), (12.05, 503, "worker_lost")
    assert judged(ran(near), 10.0).broken == []
    assert judged(ran(near), 10.0).endings == {GOOD: 199, LOST: 1}
    assert judged(ran(near, far), 10.0).broken == ["1 requests that no killed process had were lost"]
    assert judged(ran((10.05, 0, NO_ANSWER))).broken == ["1 requests were lost, and who died had none"]


def test_refusals_are_not_lost_and_who_finds_a_dead_gateway_is_counted_apart() -> None:
    found = judged(ran((10.05, 503, "no_replica"), (10.15, 0, CLOSED)), 10.0, down_s=(10.0, 13.0))
    assert found.broken == []
    assert found.endings == {GOOD: 199, REFUSAL: 1, DOWN: 1}
    assert found.reasons == {"503 no_replica": 1, f"0 {CLOSED}": 1}
    assert (found.right_s, found.settled) == (3.0, 1.0)


def test_what_follows_once_the_count_is_right_is_judged_by_itself() -> None:
    assert judged(ran((10.05, 503, "overload")), 10.0).settled == 1.0
    late = ran(*((13.05 + number / 10, 503, "overload") for number in range(7)))
    assert judged(late, 10.0).settled == pytest.approx(70 / 77)


# a real gateway


def until(true: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > give_up_s:
            pytest.fail(f"it did not {what} within {PATIENCE_S:g} s")
        time.sleep(0.1)


@contextlib.contextmanager
def asking(gateway: Gateway, requests: Sequence[bytes], rate: float) -> Iterator[list[Record]]:
    """Open loop at this rate, until it is left; the records of all that was asked."""
    over, records = threading.Event(), list[Record]()
    server = Server(gateway.host, gateway.rest_port)

    def ask() -> None:
        while not over.is_set():
            load = Load(arrivals([RateStep(rate, 1.0)], len(records)), requests)
            records.append(measure([load], server)[0])

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield records
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_a_real_gateway_goes_from_one_replica_to_two_and_back_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By INFaaS's rule, which lets go after ten seconds in which one replica less would do; by default it is
    a minute."""
    monkeypatch.setattr(Waiting, "terms", patient(Waiting.terms))
    cast = replace(waiting(tmp_path, 0), most=2)
    requests = cast.subject.requests()

    def explained(gateway: Gateway) -> str:
        assert explain(WAITING, f"http://{gateway.host}:{gateway.rest_port}", "", False) == 0
        return capsys.readouterr().out

    with started(
        [cast.entry({"min": 1, "max": 2})], (), tmp_path / "profiles", slices=cast.slices(),
        scaling={"policy": "infaas"},
    ) as gateway, watching(gateway) as course:  # fmt: skip
        assert read(metrics(gateway), HELD) == 1
        assert "1 on replica-1 (at least 1, at most 2; policy infaas): 1 gets batches" in explained(gateway)
        with asking(gateway, requests, 110.0) as overloaded:
            until(lambda: "2 on replica-1 and replica-2" in explained(gateway), "wish for a second replica")
            until(lambda: "2 get batches" in explained(gateway), "start a second replica")
            assert read(metrics(gateway), "penstock_desired_replicas") == 2
            assert read(metrics(gateway), HELD) == 2
        with asking(gateway, requests, 5.0) as calm:
            until(lambda: read(metrics(gateway), HELD) == 1, "let go of the second replica")
            assert read(metrics(gateway), "penstock_desired_replicas") == 1
            assert "policy infaas): 1 gets batches" in explained(gateway)
        assert read(metrics(gateway), CHANGES) == 2
    assert [one.count for one in changes(course.counts)] == [1, 2, 1]
    assert course.changes == 2
    answered = [status for record in calm for status in record.statuses]
    assert set(answered) == {200}
    assert all(status in (200, 503, 504) for record in overloaded for status in record.statuses)
