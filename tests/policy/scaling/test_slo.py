"""What `slo` promises: up at once, down slowly, no flapping, and what it was wrong about does not stay so."""

import re
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import LoadReport, PlannedBand, View, Wish
from serving.policy.scaling.load.busy_share import FULL
from serving.policy.scaling.load.hold import hold_us
from serving.policy.scaling.load.keepalive import UNKNOWN_S
from serving.policy.scaling.slo import SloReplicas
from tests.policy.scaling.closed_loop import EACH, SECOND_US, Loop, table
from tests.policy.scaling.load.test_burstiness import gamma
from tests.seeds import drawn


def looped(**how: object) -> Loop:
    return Loop(SloReplicas(), **how)  # type: ignore[arg-type]


def settled(rate: float, seconds: int = 200, **how: object) -> Loop:
    loop = looped(**how)
    loop.poisson(lambda _: rate, seconds)
    return loop


def seen_at(rate: int, ready: int, waiting: int = 0, oldest_us: int = 0, slo_us: int = 400_000) -> Wish:
    """What is wished after half a minute of exactly that rate."""
    policy, before = SloReplicas(), LoadReport("m")
    for second in range(1, 31):
        seen = LoadReport(
            "m",
            rate * second,
            rate * second,
            2.0 * second / max(rate, 1),
            waiting=waiting,
            oldest_us=oldest_us,
        )
        now_us = second * SECOND_US
        wish = policy.decide(
            View(
                now_us, SECOND_US, seen, before, ready, 0, 1, 64, slo_us, 10 * SECOND_US, "v", {"v": table()}
            )
        )
        before = seen
    return wish


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [20.0, 60.0, 118.0, 300.0, 900.0])
def test_a_constant_load_changes_the_count_at_most_once_in_ten_minutes(rate: float, seed: int) -> None:
    loop = settled(rate, 60)
    before = loop.changes
    loop.poisson(lambda _: rate, 600, seed + 1)
    assert loop.changes - before <= 1
    assert table().rate(loop.counts[-1]) > 0.97 * rate
    assert loop.counts[-1] <= table().needed(1.03 * rate) + 1


@pytest.mark.parametrize("factor", [1.5, 3.0, 10.0])
def test_it_goes_up_within_two_seconds_of_a_step(factor: float) -> None:
    loop = settled(60.0)
    loop.poisson(lambda _: 60.0 * factor, 2)
    assert loop.counts[-1] >= table().needed(0.8 * 60 * factor)


@pytest.mark.parametrize("rate", [300.0, 600.0])
def test_after_one_second_of_a_jump_there_are_mostly_enough_and_no_more_than_chance_makes_likely(
    rate: float,
) -> None:
    """By what was counted alone, 6 or 7 times of 10."""
    counts = []
    for seed in range(40):
        loop = settled(40.0, 60)
        loop.poisson(lambda _: rate, 1, seed + 1)
        counts.append(loop.counts[-1])
    needed = table().needed(rate)
    assert sum(count >= needed for count in counts) > 0.85 * len(counts)
    assert sum(counts) / len(counts) < 1.1 * needed + 1


@pytest.mark.slow
def test_while_replicas_are_to_come_each_second_may_ask_for_more_than_was_counted() -> None:
    """Of ten looks at a rate that is hardly known the most counts, and none once all are there."""
    first, tenth, settled_at = [], [], []
    for seed in range(20):
        loop = settled(40.0, 60)
        loop.poisson(lambda _: 600.0, 1, seed + 1)
        first.append(loop.counts[-1])
        loop.poisson(lambda _: 600.0, 9, seed + 100)
        tenth.append(loop.counts[-1])
        loop.poisson(lambda _: 600.0, 400, seed + 200)
        settled_at.append(loop.counts[-1])
    assert all(later >= sooner for sooner, later in zip(first, tenth, strict=True))
    assert min(tenth) >= table().needed(600.0)
    assert sum(settled_at) < sum(tenth)


@pytest.mark.parametrize("start_s", [5, 30, 120])
def test_whatever_a_start_takes_what_is_missed_after_a_step_is_what_it_takes(start_s: int) -> None:
    loop = settled(60.0, start_s=start_s)
    missed = loop.missed
    loop.poisson(lambda _: 180.0, start_s + 120)
    assert loop.missed - missed <= (start_s + 4) * 180
    loop.poisson(lambda _: 180.0, 60, 1)
    assert loop.missed < (start_s + 4) * 180 + missed + 0.01 * 60 * 180


def test_a_ramp_is_nearly_all_answered() -> None:
    """Twice the load within a minute; a replica takes a third of it to start. Of what comes until the first
    could be there, a tenth is more than fits."""
    loop = settled(100.0, start_s=20)
    missed = loop.missed
    loop.poisson(lambda at: 100.0 + 100 * min(at, 60) / 60, 120)
    assert loop.missed - missed < 0.03 * 120 * 175


def test_it_goes_down_only_when_the_calm_has_lasted_and_not_one_by_one() -> None:
    loop = settled(300.0)
    high, changes = loop.counts[-1], loop.changes
    held_s = hold_us(loop.start_s * SECOND_US) // SECOND_US
    loop.poisson(lambda _: 60.0, held_s - 5)
    assert min(loop.counts[-held_s + 5 :]) == high
    loop.poisson(lambda _: 60.0, 60)
    assert loop.counts[-1] == table().needed(60.0)
    assert loop.changes - changes <= 3


def test_a_load_that_comes_back_before_the_calm_has_lasted_finds_all_replicas() -> None:
    loop = settled(200.0)
    missed = loop.missed
    loop.poisson(lambda at: 200.0 if at // 40 % 2 else 20.0, 400)
    assert loop.missed == missed


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(0, 3), st.integers(3, 9))
@settings(max_examples=drawn(40))
def test_it_is_never_fewer_than_the_least_nor_more_than_the_most(
    rows: list[int], least: int, most: int
) -> None:
    loop = looped(least=least, most=most, ready=least)
    for each in rows:
        wish = loop.second(each)
        assert least <= wish.count <= most
        assert wish.count + wish.standby <= most
        assert wish.pressure >= 0


@given(st.integers(1, 600), st.integers(1, 600), st.integers(1, 20))
@settings(max_examples=drawn(60))
def test_more_rows_never_need_fewer_replicas_nor_press_less(one: int, other: int, ready: int) -> None:
    few, many = (seen_at(rate, ready) for rate in sorted((one, other)))
    assert few.figures["needed"] <= many.figures["needed"]
    assert few.pressure <= many.pressure


def test_bursts_at_the_same_mean_need_more() -> None:
    loop = looped()
    for rows, gaps_s2 in gamma(1.0, 120.0, 300):
        loop.second(rows, gaps_s2)
    calm = loop.counts[-1]
    for rows, gaps_s2 in gamma(4.0, 120.0, 120):
        loop.second(rows, gaps_s2)
    assert loop.counts[-1] >= calm + 2
    assert "bursts" in loop.wishes[-1].why


@pytest.mark.parametrize("lie", [2.0, 8.0])
def test_a_table_that_promises_too_much_is_found_out(lie: float) -> None:
    loop = settled(120.0, 300, capacity=table(lie * EACH))
    missed = loop.missed
    loop.poisson(lambda _: 120.0, 600, 1)
    assert loop.missed - missed < 0.025 * 120 * 600
    assert loop.ready <= 2 * table().needed(120.0)
    assert "what was missed says" in loop.wishes[-1].why


def test_what_is_missed_in_a_jump_is_no_fault_of_the_table() -> None:
    loop = looped()
    loop.poisson(lambda at: 60.0 if at // 150 % 2 else 240.0, 900)
    assert loop.missed > 100
    assert loop.wishes[-1].figures["trusted"] == 1


@pytest.mark.parametrize("error", [0.5, 2.0])
def test_a_forecast_that_is_half_or_twice_of_what_comes_costs_little(error: float) -> None:
    """Half: the fast loop sees to it. Twice: no more than the plan asked for."""
    low = table().needed(error * 150.0)

    def band(now_us: int) -> PlannedBand:
        return PlannedBand(low, low + 1, "v", now_us + 60 * SECOND_US)

    right, wrong = settled(150.0, 600), settled(150.0, 600, band=band)
    assert wrong.missed <= right.missed + 0.01 * wrong.offered
    assert wrong.counts[-1] <= max(low, right.counts[-1])


def test_a_plan_raises_the_count_before_the_load_comes_and_counts_no_more_when_it_is_stale() -> None:
    def band(now_us: int) -> PlannedBand:
        return PlannedBand(9, 12, "v", 120 * SECOND_US)

    loop = settled(60.0, 100, band=band)
    assert loop.counts[-1] == 9
    assert "the plan" in loop.wishes[-1].why
    loop.poisson(lambda _: 60.0, 220)
    assert loop.counts[-1] == table().needed(60.0)


def test_a_plan_holds_down_a_trend_and_no_load_that_is_there() -> None:
    def band(now_us: int) -> PlannedBand:
        return PlannedBand(1, 5, "v", now_us + SECOND_US)

    loop = settled(100.0, 100, band=band, truth=3 * EACH)  # nothing is missed, that would end its say
    surely = 5
    for step in range(12):
        wish = loop.second(100 + 6 * step)
        surely = max(surely, table().needed(wish.figures["rate_low"]))
        assert wish.count <= surely
    loop.poisson(lambda _: 400.0, 20)
    assert loop.counts[-1] >= table().needed(380.0)


def test_an_idle_model_goes_to_zero_when_it_is_unlikely_to_be_asked_for_and_stands_by() -> None:
    loop = settled(5.0, 30, least=0)
    for _ in range(int(UNKNOWN_S)):
        assert loop.second(0).count == 1
    for _ in range(5):
        wish = loop.second(0)
    assert (wish.count, wish.standby, wish.pressure) == (0, 1, 0)
    assert loop.second(1).count == 1


def test_a_model_that_is_let_go_stays_away_though_its_rate_is_not_forgotten() -> None:
    """The window of its rate is minutes long; its gaps were so short that it is let go after seconds."""
    loop = looped(least=0, start_s=1, slo_us=10 * SECOND_US)
    for _ in range(20):
        for rows in (3, 3, 3, 0, 0):
            loop.second(rows)
    gone = [loop.second(0) for _ in range(60)]
    assert gone[5].figures["rate_ahead"] > 0
    assert [wish.count for wish in gone[5:]] == [0] * 55


def test_it_stands_by_where_a_start_takes_longer_than_the_slo() -> None:
    assert settled(60.0, 30, start_s=10).wishes[-1].standby == 1
    assert settled(60.0, 30, start_s=10, most=3).wishes[-1].standby == 0
    assert settled(60.0, 30, start_s=10, slo_us=20 * SECOND_US).wishes[-1].standby == 0


def test_rows_that_wait_ask_for_more_where_more_can_come_in_time() -> None:
    """1,500 rows wait, for another minute; three compute 30 a second each, 60 a second come."""
    patient = seen_at(60, 3, waiting=6000, slo_us=60 * SECOND_US)
    assert patient.count > table().needed(60.0)
    assert "wait" in patient.why
    hurried = seen_at(60, 3, waiting=6000)
    assert hurried.count == table().needed(60.0)


@pytest.mark.parametrize(
    ("rate", "ready"), [(60, 3), (60, 1), (60, 9), (200, 4), (10, 2), (777, 30), (60, 0)]
)
def test_the_horizontal_pod_autoscaler_makes_of_its_pressure_what_is_needed(rate: int, ready: int) -> None:
    """Kubernetes: desired = ceil(current * metric / target), the target being 1."""
    wish = seen_at(rate, ready)
    assert ceil(max(ready, 1) * wish.pressure) == wish.figures["needed"] == table().needed(rate)


@pytest.mark.parametrize(
    ("waiting", "oldest_us", "pressure"),
    [(0, 400_000, 0.5), (9, 400_000, 1.0), (9, 600_000, 1.5), (9, 100, 0.5)],
)
def test_a_queue_that_is_older_than_the_slo_presses(waiting: int, oldest_us: int, pressure: float) -> None:
    """51 rows a second are what two just carry."""
    assert table().rate(2) == 51
    assert seen_at(51, 4, waiting, oldest_us).pressure == pytest.approx(pressure, abs=0.002)


def test_pressure_is_the_same_from_second_to_second_while_load_is_constant() -> None:
    loop = settled(120.0, 300)
    pressures = [wish.pressure for wish in loop.wishes[-200:]]
    assert max(pressures) - min(pressures) < 0.1


def test_it_says_why_and_what_would_change_it() -> None:
    wish = seen_at(100, 4)
    carried = [table().rate(count) for count in (3, 4)]
    assert wish.why == f"100 rows/s over 30 s need 4 (3 carry {carried[0]:.0f}, 4 carry {carried[1]:.0f})"
    assert wish.up == f"above {carried[1]:.0f} rows/s"
    assert wish.down == f"surely below {carried[0]:.0f} rows/s for 100 s"


@pytest.mark.parametrize("after_s", range(1, 9))
def test_the_rate_that_it_tells_is_that_of_the_seconds_that_it_tells(after_s: int) -> None:
    """Also soon after a jump, when it goes by a shorter window than that in which nothing surely changed; of
    a short one not all is believed."""
    came = [100] * 60 + [140] * after_s
    loop = looped()
    for rows in came:
        wish = loop.second(rows)
    rate, seconds = re.findall(r"\d+", wish.why)[:2]
    counted = sum(came[-int(seconds) :]) / int(seconds)
    assert 0.95 * counted <= int(rate) <= ceil(counted)


@pytest.mark.parametrize("capacity", [None, Capacity((1,), (1.0,), ((0.0,),))])
def test_where_nobody_knows_what_a_replica_carries_it_goes_by_their_load(capacity: Capacity | None) -> None:
    """130 a second are what 4.3 compute without a pause."""
    loop = settled(130.0, 300, capacities={} if capacity is None else {"v": capacity})
    assert loop.counts[-1] == ceil(130 / EACH / FULL)
    assert "busy" in loop.wishes[-1].why
    assert loop.wishes[-1].pressure == pytest.approx(130 / EACH / FULL / loop.counts[-1], rel=0.1)
    changes = loop.changes
    loop.poisson(lambda _: 130.0, 600, 1)
    assert loop.changes - changes <= 1


@pytest.mark.parametrize(("busy", "doubted"), [(0.9, True), (0.1, False)])
def test_what_is_missed_while_replicas_idle_is_no_fault_of_the_table(busy: float, doubted: bool) -> None:
    policy, before = SloReplicas(), LoadReport("m")
    for second in range(1, 200):
        seen = LoadReport(
            "m",
            offered=100 * second,
            requests=100 * second,
            gaps_s2=0.02 * second,
            completed=60 * second,
            missed=40 * second,
            busy_us=round(busy * 8 * second * 1_000_000),
        )
        view = View(
            second * 1_000_000, 1_000_000, seen, before, 8, 0, 1, 64, 400_000, 10_000_000, "v", {"v": table()}
        )
        wish, before = policy.decide(view), seen
    assert (wish.figures["trusted"] < 0.9) is doubted


def test_what_is_missed_where_a_table_promises_nothing_is_no_evidence() -> None:
    policy, before = SloReplicas(), LoadReport("m")
    table = Capacity((1, 2), (1.0,), ((0.0, 10.0),))
    for second in range(1, 91):
        seen = LoadReport("m", missed=max(second - 60, 0), busy_us=second * 900_000, waiting=1)
        at = (second * 1_000_000, 1_000_000)
        wish = policy.decide(View(*at, seen, before, 1, 0, 1, 2, 1_000_000, 1, "a", {"a": table}))
        before = seen
    assert wish.figures["trusted"] == 1.0


def test_replicas_that_were_there_before_it_are_held_as_if_they_had_been_needed() -> None:
    loop = looped(ready=5)
    loop.poisson(lambda _: 20.0, 50)
    assert loop.counts == [5] * 50
    loop.poisson(lambda _: 20.0, 400)
    assert loop.counts[-1] <= 2
