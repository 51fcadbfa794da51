"""Carries a sweep out: what `serving.profile.sweeping.exploration` asks for, on workers, beside the
yardstick."""

from collections.abc import Callable, Sequence

from serving.profile.sweeping.exploration import Exploration
from serving.profile.sweeping.noise import Evidence, Steadiness
from serving.runtime.clocks.core_time import core_time, own_seconds, process_seconds
from serving.runtime.workers.bench import Bench
from serving.worker.frames.orders import MeasureOrder

YARDSTICKS = 6  # with each trial: half before, half after; some 3 ms
LOOK_RUNS = 2000  # of the yardstick, a second of it


async def look(bench: Bench, slices: Sequence[str], cores: Sequence[int]) -> Evidence:
    """Return the yardstick's times over about a second, and the share of the cores that other processes used
    meanwhile (() if no CPU is measured). The variants have to be loaded."""
    before, own = core_time(cores), _own(bench)
    found = await bench.measure(slices, MeasureOrder(0, 1, bench.size, 1, 1, LOOK_RUNS))
    yardsticks = tuple(each for one in found for each in one.yardsticks_us)
    if not cores:
        return Evidence(yardsticks)
    others, stolen = core_time(cores).since(before, _own(bench) - own)
    return Evidence(yardsticks, others, stolen)


async def sweep(
    bench: Bench,
    slices: Sequence[str],
    exploration: Exploration,
    steadiness: Steadiness,
    after_trial: Callable[[], None],
    watts: Callable[[], float] = lambda: 0.0,
) -> None:
    """Measure until nothing is in doubt, on all `slices` at once. A disturbed trial is measured again.
    `watts`: the power that the device draws, 0 if unknown."""
    while (trial := exploration.next()) is not None:
        order = MeasureOrder(0, trial.rows, trial.size, trial.repeats, trial.budget_us, YARDSTICKS)
        found = await bench.measure(slices, order)
        yardsticks = [each for one in found for each in one.yardsticks_us]
        if steadiness.accepts(yardsticks):
            latencies = [each for one in found for each in one.latencies_us]
            seen = exploration.take(trial, latencies, yardsticks)
            taken = max(one.activation_bytes for one in found)
            seen.activation_bytes = max(seen.activation_bytes, taken)
            seen.power_w = max(seen.power_w, watts())
        after_trial()


def _own(bench: Bench) -> float:
    return own_seconds() + sum(process_seconds(pid) for pid in bench.pids)
