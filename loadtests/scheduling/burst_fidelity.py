"""How near the gateway comes to its own scheduler without a world around it, under bursts.

  python -m loadtests.scheduling.burst_fidelity
  python -m loadtests.scheduling.burst_fidelity --cv 4 --load 0.7 --seconds 10 --seeds 3

Each run sends arrivals with gamma gaps to the gateway, then the very same arrivals through the scheduler in
virtual time (`loadtests.virtual.virtual_time`): batches take exactly l(b), the medians of the bare model
before and after the run, and nothing else takes any time. What is between the two attainments is what
processes, sockets and varying latencies cost. Cores, capacity and void runs as in
`loadtests.scheduling.slo_capacity`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from loadtests.harness.payloads import Contents
from loadtests.openloop import Course
from loadtests.stand.testbed import Testbed, add_arguments, drift, laid_out, read_setting
from loadtests.virtual.virtual_world import Run, VirtualModel, World
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import Seconds
from serving.values.specs import BatchingSpec

APART_MAX = 1.0  # points of attainment between the gateway and its scheduler in virtual time
REPEATS = 20  # of each batch size, before and after
_MEDIANS = ("real", "virtual", "apart")


@dataclass(frozen=True)
class MeasuredModel(VirtualModel):
    """A batch of b rows takes `measured_us[b - 1]`."""

    measured_us: tuple[float, ...] = ()

    def latency_us(self, rows: int, size: int = 0) -> int:  # noqa: ARG002  rows have none
        """Return the measured latency, to the nearest microsecond."""
        return round(self.measured_us[rows - 1])


@dataclass(frozen=True, slots=True)
class Twin:
    """The same arrivals twice: the share answered in time by the gateway, and in virtual time."""

    seed: int
    capacity: float
    offered: float
    real: float
    virtual: float
    voids: Sequence[str]

    @property
    def apart(self) -> float:
        """Points by which the gateway is behind."""
        return (self.virtual - self.real) * 100


def main() -> int:
    """Return 0 if every seed has a valid run, 1 if not, 2 if nothing could be run."""
    asked = _arguments()
    twins: list[Twin] = []
    try:
        with laid_out(read_setting(asked)) as bed:
            print(" seed  capacity/s  offered/s  in time: gateway  virtual time  points apart")
            for seed in range(asked.seed, asked.seed + asked.seeds):
                for twin in _tries(bed, seed, asked):
                    twins.append(twin)
                    print(line(twin), flush=True)
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"burst_fidelity: {error}\n")
        return 2
    valid = [twin for twin in twins if not twin.voids]
    if valid:
        real, virtual, apart = (median(getattr(one, name) for one in valid) for name in _MEDIANS)
        print(f"medians of {len(valid)}: gateway {real:.2%}, virtual time {virtual:.2%}, {apart:.2f} apart")
        print(f"{'met' if apart <= APART_MAX else 'MISSED'}: within {APART_MAX:g} point of virtual time")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        found = [asdict(twin) | {"apart": twin.apart} for twin in twins]
        asked.json.write_text(json.dumps({"arguments": sys.argv[1:], "runs": found}) + "\n")
    return 0 if len(valid) == asked.seeds else 1


def _tries(bed: Testbed, seed: int, asked: argparse.Namespace) -> Iterator[Twin]:
    """Yield runs of one seed until one is valid, or there were enough."""
    for _ in range(asked.tries):
        twin = run_twin(bed, asked.load, Course(asked.seconds, cv=asked.cv, contents=Contents(seed=seed)))
        yield twin
        if not twin.voids:
            return


def run_twin(bed: Testbed, load: float, course: Course) -> Twin:
    """Play one run at `load` times the capacity, and its twin in virtual time."""
    bed.warm_up()
    curve_before, before = bed.bare.curve(REPEATS), bed.capacity()
    played = bed.play(load * before.rate, course)
    after, curve_after = bed.capacity(), bed.bare.curve(REPEATS)
    curve_us = [sum(pair) / 2 for pair in zip(curve_before, curve_after, strict=True)]
    total = played.report.total
    return Twin(
        seed=course.contents.seed, capacity=(before.rate + after.rate) / 2,
        offered=total.offered_rate, real=total.attainment,
        virtual=in_virtual_time(played.load.due_s, curve_us, played.slo_ms, bed.setting.policy),
        voids=[*played.voids, *drift(before.rate, after.rate)],
    )  # fmt: skip


def in_virtual_time(due_s: Seconds, curve_us: Sequence[float], slo_ms: float, policy: str) -> float:
    """Return the share of these arrivals that the scheduler answers in time where b rows take `curve_us[b -
    1]`."""
    model = MeasuredModel(slo_us=int(slo_ms * 1000), measured_us=tuple(curve_us))
    world = World(BatchingSpec(policy, guard_us=0), unlike=(model,), batch_max=len(curve_us))
    tally = Run(world).play(Arrival(int(at_s * 1e6) + 1, 0) for at_s in due_s.tolist())
    return tally.good / tally.offered


def line(twin: Twin) -> str:
    """Return a row below the heading, and why it is void where it is."""
    text = (
        f"{twin.seed:5} {twin.capacity:11.1f} {twin.offered:10.1f} {twin.real:17.2%} {twin.virtual:13.2%}"
        f" {twin.apart:13.2f}"
    )
    return "\n".join((text, *(f"  VOID: {void}" for void in twin.voids)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    add = parser.add_argument
    add("--cv", type=float, default=4, help="coefficient of variation of the gaps between arrivals")
    add("--load", type=float, default=0.7, help="in capacities of the bare model")
    add("--seconds", type=float, default=30, help="of each run")
    add("--seeds", type=int, default=5, help="runs with other arrivals")
    add("--seed", type=int, default=0, help="the first")
    add("--tries", type=int, default=3, help="runs of a seed that is void")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
