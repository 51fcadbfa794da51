"""What a sweep promises: it ends, keeps to its budget, never harms the SLO, and is complete when idle."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.curve import Point, Profile
from serving.profile.sweeping.sweep import (
    COARSE_REPEATS,
    FINE_ROWS,
    REFINED_COUNT,
    RENEWED_COUNT,
    Measurement,
    Sweep,
)


@dataclass(frozen=True)
class Device:
    """Batches take `fixed_us` and `row_us` a row, and `size` more a row; every run as long as the last."""

    fixed_us: int
    row_us: int

    def latency_us(self, rows: int, size: int) -> int:
        return self.fixed_us + rows * (self.row_us + size)

    def run(self, measurement: Measurement) -> list[int]:
        """As a worker does: `repeats` runs, none begun when the budget is spent."""
        spent: list[int] = []
        while len(spent) < measurement.repeats and (not spent or sum(spent) < measurement.budget_us):
            spent.append(self.latency_us(measurement.rows, measurement.size))
        return spent


devices = st.builds(Device, fixed_us=st.integers(0, 30), row_us=st.integers(1, 10))
batches_max = st.integers(1, 20)
slos_us = st.integers(1, 200)
size_sets = st.sampled_from([(0,), (1, 4), (2, 5, 9)])
budgets_us = st.integers(0, 1500)


def grid(batch_max: int) -> list[int]:
    rows = [1]
    while rows[-1] * 2 < batch_max:
        rows.append(rows[-1] * 2)
    return [*rows, batch_max] if batch_max > 1 else rows


def run_coarse(sweep: Sweep, device: Device) -> list[Measurement]:
    done: list[Measurement] = []
    while (measurement := sweep.next_coarse()) is not None:
        assert sweep.next_coarse() == measurement, "asking changes nothing"
        assert len(done) <= len(sweep.sizes) * len(grid(sweep.batch_max)), "it must end"
        done.append(measurement)
        sweep.take(measurement.rows, measurement.size, device.run(measurement))
    return done


@given(batches_max, slos_us, size_sets, budgets_us, devices)
def test_a_coarse_sweep_measures_each_batch_once_one_row_of_every_size_first(
    batch_max: int, slo_us: int, sizes: tuple[int, ...], budget_us: int, device: Device
) -> None:
    done = run_coarse(Sweep(batch_max, slo_us, sizes, budget_us), device)
    batches = [(m.rows, m.size) for m in done]
    assert len(set(batches)) == len(batches)
    assert batches[: len(sizes)] == [(1, size) for size in reversed(sizes)]
    assert all(rows in grid(batch_max) for rows, _ in batches)
    assert batches == sorted(batches, key=lambda batch: (batch[0], -batch[1]))
    assert {m.repeats for m in done} == {COARSE_REPEATS}


@given(batches_max, slos_us, size_sets, budgets_us, devices)
def test_no_batch_is_proposed_that_is_expected_above_the_slo_or_the_budget(
    batch_max: int, slo_us: int, sizes: tuple[int, ...], budget_us: int, device: Device
) -> None:
    left_us = budget_us
    done = run_coarse(Sweep(batch_max, slo_us, sizes, budget_us), device)
    for index, measurement in enumerate(done):
        rows, size = measurement.rows, measurement.size
        assert measurement.budget_us == max(left_us, 1)
        if rows > 1:
            below = max(m.rows for m in done[:index] if m.size == size and m.rows < rows)
            expected_us = device.latency_us(below, size) * rows / below
            assert expected_us <= slo_us
            assert expected_us <= left_us
        left_us -= sum(device.run(measurement))


@given(batches_max, slos_us, size_sets, devices)
def test_with_time_enough_all_batches_within_the_slo_are_known(
    batch_max: int, slo_us: int, sizes: tuple[int, ...], device: Device
) -> None:
    sweep = Sweep(batch_max, slo_us, sizes, 1e9)
    run_coarse(sweep, device)
    known = {(point.rows, point.size): point for point in sweep.points()}
    for size in sizes:
        for below, rows in zip(grid(batch_max), grid(batch_max)[1:], strict=False):
            reachable = (below, size) in known and device.latency_us(below, size) * rows / below <= slo_us
            assert ((rows, size) in known) == reachable
    for (rows, size), point in known.items():
        assert (point.p50_us, point.p95_us) == (device.latency_us(rows, size),) * 2
        assert point.count == COARSE_REPEATS


@given(batches_max, slos_us, size_sets, budgets_us, devices, st.integers(1, 300))
def test_refinement_fills_the_least_known_first_and_stops_when_all_are_known_well(
    batch_max: int, slo_us: int, sizes: tuple[int, ...], budget_us: int, device: Device, idle_us: int
) -> None:
    sweep = Sweep(batch_max, slo_us, sizes, budget_us)
    run_coarse(sweep, device)
    limit_us = min(slo_us, idle_us)
    steps_max = len(sizes) * batch_max * REFINED_COUNT
    for _ in range(steps_max):
        counts = {(point.rows, point.size): point.count for point in sweep.points()}
        measurement = sweep.next_refinement(idle_us)
        if measurement is None:
            break
        batch = (measurement.rows, measurement.size)
        assert measurement.budget_us == idle_us
        assert batch[0] in grid(batch_max) or batch[0] <= FINE_ROWS or batch[0] % 2 == 0
        safe = [count for known, count in counts.items() if device.latency_us(*known) <= limit_us]
        assert counts.get(batch, 0) <= min(safe)
        assert batch not in counts or device.latency_us(*batch) <= limit_us
        sweep.take(*batch, device.run(measurement))
    assert sweep.next_refinement(idle_us) is None
    for rows, size in {(rows, size) for rows in range(1, min(batch_max, FINE_ROWS)) for size in sizes}:
        below = [point.rows for point in sweep.points() if point.size == size and point.rows <= rows]
        known = below and device.latency_us(max(below), size) * rows / max(below) > limit_us
        assert rows in below or not below or known
    for point in sweep.points():
        assert point.count >= REFINED_COUNT or device.latency_us(point.rows, point.size) > limit_us


@given(batches_max, st.integers(1, 60), devices, st.integers(1, 60))
def test_refinement_never_proposes_what_is_expected_above_the_slo_or_the_idle_time(
    batch_max: int, slo_us: int, device: Device, idle_us: int
) -> None:
    sweep = Sweep(batch_max, slo_us, (0,), 0)
    sweep.take(1, 0, [device.latency_us(1, 0)])
    measurement = sweep.next_refinement(idle_us)
    one_us = device.latency_us(1, 0)
    if measurement is not None:
        assert one_us * measurement.rows <= min(slo_us, idle_us)
    else:
        assert one_us > min(slo_us, idle_us)


def test_nothing_is_refined_before_one_row_was_measured() -> None:
    assert Sweep(8, 1000, (0,), 1000).next_refinement(1000) is None


def quantile(share: float) -> Callable[[list[int]], int]:
    return lambda seen: sorted(seen)[min(int(share * len(seen)), len(seen) - 1)]


@given(st.integers(1, 45).flatmap(lambda count: st.lists(st.integers(1, 50), min_size=count, max_size=count)))
def test_points_are_the_median_and_the_p95_of_what_was_seen_and_survive_a_restart(seen: list[int]) -> None:
    sweep = Sweep(8, 1000, (0,), 1000)
    sweep.take(1, 0, seen[:1])
    sweep.take(1, 0, seen[1:])
    assert sweep.budget_us == 1000 - sum(seen)
    p50_us, p95_us = quantile(0.5)(seen), quantile(0.95)(seen)
    assert sweep.points() == (Point(0, 1, p50_us, p95_us, len(seen)),)
    again = Sweep(8, 1000, (0,), 1000)
    again.resume(Profile("m", "a", "kind", sweep.points()))
    assert again.points() == sweep.points()


@pytest.mark.parametrize("batch_max", [1, 2, 3, 8, 12])
def test_the_largest_batch_is_always_in_the_grid(batch_max: int) -> None:
    done = run_coarse(Sweep(batch_max, 10_000, (0,), 1e9), Device(1, 1))
    assert [m.rows for m in done] == grid(batch_max)


def renewed_steps(sweep: Sweep, device: Device, budget_us: int) -> Iterator[Measurement]:
    """Measure everything anew, one step a time."""
    sweep.renew()
    for _ in range(len(sweep.points()) * RENEWED_COUNT):
        measurement = sweep.next_renewal(budget_us)
        if measurement is None:
            break
        sweep.take(measurement.rows, measurement.size, device.run(measurement))
        yield measurement
    assert sweep.next_renewal(budget_us) is None


slower = st.sampled_from([0.5, 0.8, 1.3, 2.0, 3.0])


@given(batches_max, size_sets, devices, slower, st.integers(1, 2000))
def test_a_profile_half_measured_anew_is_of_one_level(
    batch_max: int, sizes: tuple[int, ...], device: Device, factor: float, budget_us: int
) -> None:
    """Never the old latency at one batch and the new one at the next."""
    sweep = Sweep(batch_max, 10**9, sizes, 1e12)
    then = Device(1000 * device.fixed_us, 1000 * device.row_us)
    now = Device(round(then.fixed_us * factor), round(then.row_us * factor))
    run_coarse(sweep, then)
    before = [(point.size, point.rows) for point in sweep.points()]
    for _ in renewed_steps(sweep, now, 1000 * budget_us):
        ratios = [point.p50_us / then.latency_us(point.rows, point.size) for point in sweep.points()]
        assert max(ratios) <= 1.01 * min(ratios)
        assert [(point.size, point.rows) for point in sweep.points()] == before


@given(batches_max, size_sets, devices, slower, st.integers(1, 300))
def test_what_is_measured_anew_takes_the_place_of_what_was_known_and_no_more_than_it_may(
    batch_max: int, sizes: tuple[int, ...], device: Device, factor: float, budget_us: int
) -> None:
    sweep = Sweep(batch_max, 200, sizes, 1e9)
    run_coarse(sweep, device)
    now = Device(round(device.fixed_us * factor), max(round(device.row_us * factor), 1))
    measured = set()
    for measurement in renewed_steps(sweep, now, budget_us):
        assert measurement.budget_us == budget_us
        assert measurement.repeats <= RENEWED_COUNT
        measured.add((measurement.rows, measurement.size))
    sweep.finish_renewal()
    assert not sweep.renewing
    for point in sweep.points():
        truth_us = now.latency_us(point.rows, point.size)
        if (point.rows, point.size) in measured and truth_us <= min(budget_us, 200):
            assert (point.p50_us, point.count) == (truth_us, RENEWED_COUNT)


def test_until_the_first_point_is_known_anew_the_old_ones_stand() -> None:
    sweep, device = Sweep(8, 10_000, (0,), 1e9), Device(100, 10)
    run_coarse(sweep, device)
    before = sweep.points()
    sweep.renew()
    sweep.take(1, 0, [220] * (RENEWED_COUNT - 1))
    assert sweep.points() == before
    sweep.take(1, 0, [220])
    assert [point.p50_us / old.p50_us for point, old in zip(sweep.points(), before, strict=True)] == (
        pytest.approx([2.0] * len(before), rel=0.01)
    )


def test_what_takes_too_long_to_be_measured_anew_is_as_much_slower_as_the_rest() -> None:
    sweep, device = Sweep(8, 10_000, (0,), 1e9), Device(100, 100)
    run_coarse(sweep, device)
    for measurement in renewed_steps(sweep, Device(150, 150), 500):
        assert measurement.rows <= 2
    sweep.finish_renewal()
    assert [(point.rows, point.p50_us, point.count) for point in sweep.points()] == [
        (1, 300, RENEWED_COUNT), (2, 450, RENEWED_COUNT), (4, 750, 1), (8, 1350, 1),
    ]  # fmt: skip


runs = st.tuples(
    st.sampled_from([1, 2, 4]), st.lists(st.integers(1, 99), min_size=1, max_size=4), st.booleans()
)


@given(st.lists(runs, max_size=12))
def test_what_is_kept_was_measured_undisturbed_and_more_than_once(
    found: list[tuple[int, list[int], bool]],
) -> None:
    sweep = Sweep(4, 1000, (0,), 1e9)
    quiet: dict[int, list[int]] = {}
    for rows, latencies_us, disturbed in found:
        sweep.take(rows, 0, latencies_us, disturbed)
        if not disturbed:
            quiet.setdefault(rows, []).extend(latencies_us)
    kept = {point.rows: point for point in sweep.trusted()}
    assert kept.keys() == {rows for rows, seen in quiet.items() if len(seen) >= COARSE_REPEATS}
    for rows, point in kept.items():
        assert point.count == len(quiet[rows])
        assert min(quiet[rows]) <= point.p50_us <= max(quiet[rows])
    assert {point.rows for point in sweep.points()} == {rows for rows, *_ in found}, "the rest stands in"
