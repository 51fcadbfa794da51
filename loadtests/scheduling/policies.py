"""Every batching policy on the same workloads, in virtual time: capacity, and goodput in overload.

  python -m loadtests.scheduling.policies                     # all, on two processes: some twenty minutes
  python -m loadtests.scheduling.policies --rows A D --policies slo static --json policies.json
  python -m loadtests.scheduling.policies --mixes             # models of unlike SLOs: some by name, 20 drawn
  python -m loadtests.scheduling.policies --mixes tiers 7 8   # these

The live scheduler runs with exact latencies and no overhead. Capacity is the highest rate with at most 1 %
of requests not answered in time (as Nexus and Symphony count), found by bisection; goodput is what is
answered in time when more is offered. `slo` runs as it serves; `slo exact` without admission, as the papers'
policies run. `static` is the best of a small grid of sizes and delays, on each row anew.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from loadtests.virtual import mixes
from loadtests.virtual.virtual_time import capacity
from loadtests.virtual.virtual_world import VirtualModel, World, good_share
from serving.simulation.devices.device import Physics
from serving.values.specs import BatchingSpec

GRAIN = 0.005  # of a rate: how closely capacity is searched
BURSTS = 20  # times as long are runs of bursts
SETTLE_US = 1_000_000  # rates are known in the published simulations; here they are by then
GAMMA_CV = 0.3**-0.5  # gaps of gamma shape 0.3
DRAWN = 20  # mixes
PEERS_SHARE, OVERLOAD_SHARE = 0.97, 0.95


def _too_slow(rows: int) -> float:
    return 1 + min(rows, 16) / 26


EXACT = BatchingSpec("slo", guard_us=0, admission=False)
BASE = World(EXACT, settle_us=SETTLE_US)
ROWS: Mapping[str, tuple[str, World]] = {
    "A": ("1 model, 1 slice, SLO 25 ms", BASE),
    "B": ("1 model, 1 slice, SLO 100 ms", replace(BASE, slo_us=100_000)),
    "C": ("1 model, 1 slice, SLO 50 ms, gamma gaps (.3)", replace(BASE, slo_us=50_000, gap_cv=GAMMA_CV)),
    "D": ("1 model, 8 slices, SLO 25 ms", replace(BASE, slices=8)),
    "E": ("4 models, 1 slice, SLO 100 ms", replace(BASE, models=4, slo_us=100_000)),
    "F": ("10 models, 8 slices, SLO 50 ms", replace(BASE, models=10, slices=8, slo_us=50_000)),
    "G": ("as F, gamma gaps (.3)", replace(BASE, models=10, slices=8, slo_us=50_000, gap_cv=GAMMA_CV)),
    "H": ("as D, l(b) = .3 b + 8 ms", replace(BASE, slices=8, alpha_us=300, beta_us=8000)),
    "N": ("1 model, SLO 50 ms, noise of 20 %", replace(BASE, slo_us=50_000, physics=Physics(noise=0.2))),
    "P": ("1 model, SLO 50 ms, bursts of CV 4", replace(BASE, slo_us=50_000, gap_cv=4)),
    "R": ("1 model, SLO 100 ms, requests of 1 to 32 rows",
          replace(BASE, slo_us=100_000, row_mix=((1, 0.6), (2, 0.2), (4, 0.1), (8, 0.06), (32, 0.04)))),
    "W": ("1 model, SLO 50 ms, profile 60 % too high at 16 rows",
          replace(BASE, slo_us=50_000, profiled=_too_slow, learned=False)),
    "M": ("2 models, 1 slice, SLOs 25 and 300 ms",
          replace(BASE, unlike=(VirtualModel(25_000), VirtualModel(300_000)))),
    "S": ("1 model, SLO 50 ms, rows of 16, 64 and 256 tokens",
          replace(BASE, slo_us=50_000, size_mix=((16, 0.6), (64, 0.3), (256, 0.1)))),
}  # fmt: skip
OVERLOADS: Mapping[str, tuple[int, ...]] = {
    "A": (300, 400, 500, 700, 1000, 1500),
    "D": (3000, 4500, 5500, 7000, 10_000),
}


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy as it is entered: by `specs`; the best of them counts."""

    name: str
    specs: tuple[BatchingSpec, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """One contender on one row: capacity in requests/s, goodput by offered rate."""

    row: str
    policy: str
    capacity: float
    goodput: Mapping[int, float]


def contenders(row: str) -> list[Contender]:
    """Return all that are entered for a row."""
    world = ROWS[row][1]
    slo_us = world.each[0].slo_us
    half = max(1, int((slo_us / 2 - world.each[0].beta_us) / world.each[0].alpha_us))
    statics = tuple(
        BatchingSpec("static", size=size, delay_us=delay_us)
        for size in (None, half)
        for delay_us in (0, slo_us // 10)
    )
    alone = ("mark", "slab", "aimd", "clockwork", "window_drop", "shepherd", "dybatch")
    return [
        Contender("static", statics),
        *(Contender(name, (BatchingSpec(name, guard_us=0),)) for name in alone),
        *(
            Contender(f"{name} {mode}", (BatchingSpec(name, guard_us=0, mode=mode),))
            for name, mode in (
                ("nanily", "literal"), ("nanily", "shed"), ("nexus", "sliding"), ("nexus", "earliest_first"),
                ("symphony", "frontrun"), ("symphony", "latest"), ("symphony", "beta_lambda"),
            )
        ),
        Contender("slo exact", (EXACT,)),
        Contender("slo", (BatchingSpec("slo", guard_us=0),)),
    ]  # fmt: skip


def main() -> int:
    """Return 0 if our policy keeps its promises on every row that was run, else 1."""
    asked = _arguments()
    if asked.mixes is not None:
        return _play_mixes(asked)
    tasks = [
        (row, contender, _seconds(row, asked.scale), asked.seeds)
        for row in asked.rows
        for contender in contenders(row)
        if not asked.policies or contender.name.split()[0] in asked.policies
    ]
    found: list[Figures] = []
    with ProcessPoolExecutor(asked.processes) as pool:
        for figures in pool.map(measure, *zip(*tasks, strict=True)):
            found.append(figures)
            sys.stderr.write(f"{figures.row} {figures.policy}: {figures.capacity:.0f}/s\n")
    print("\n".join(table(found)))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(figures) for figures in found], indent=1) + "\n")
    missed = list(promises(found))
    print("\n".join(f"MISSED: {line}" for line in missed) or "met: every promise of ours on these rows")
    return 1 if missed else 0


def _play_mixes(asked: argparse.Namespace) -> int:
    """Return 0 if our policy is near the best on every mix, else 1."""
    names = [name for name in mixes.CONTENDERS if not asked.policies or name.split()[0] in asked.policies]
    chosen = [mixes.find_mix(name) for name in asked.mixes or [*mixes.NAMED, *map(str, range(DRAWN))]]
    found: list[mixes.Outcome] = []
    with ProcessPoolExecutor(asked.processes) as pool:
        for outcome in pool.map(partial(mixes.measure_mix, names=names, scale=asked.scale), chosen):
            found.append(outcome)
            sys.stderr.write(f"{outcome.mix.name}: {max(outcome.capacity.values()):.0f}/s\n")
    print("\n".join(mixes.table(found, names)))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(outcome) for outcome in found], indent=1) + "\n")
    missed = list(mixes.missed(found))
    print("\n".join(f"MISSED: {line}" for line in missed) or "met: ours is near the best of every mix")
    return 1 if missed else 0


def measure(row: str, contender: Contender, seconds: float, seeds: int) -> Figures:
    """Measure the capacity and the overload goodput of the best of a contender's specs."""
    worlds = [replace(ROWS[row][1], policy=spec) for spec in contender.specs]
    best = max(capacity(world, seconds, seeds, GRAIN) for world in worlds)
    goodput = {
        rate: max(rate * good_share(world, rate, seconds, seeds) for world in worlds)
        for rate in OVERLOADS.get(row, ())
    }
    for times in (1, 2, 4):  # of its own capacity
        rate = round(best * times)
        goodput[rate] = max(rate * good_share(world, rate, seconds, seeds) for world in worlds)
    return Figures(row, contender.name, best, goodput)


def table(found: Sequence[Figures]) -> Iterator[str]:
    """Yield Markdown: capacities by policy and row, then what is left of each peak in overload."""
    rows = list(dict.fromkeys(figures.row for figures in found))
    by = {(figures.policy, figures.row): figures for figures in found}
    policies = list(dict.fromkeys(figures.policy for figures in found))
    yield "| policy | " + " | ".join(rows) + " |"
    yield "|---" * (len(rows) + 1) + "|"
    for policy in policies:
        yield f"| {policy} | " + " | ".join(f"{by[policy, row].capacity:.0f}" for row in rows) + " |"
    for row in rows:
        if row in OVERLOADS:
            yield f"\n{row}, requests/s answered in time of those offered:\n"
            yield "| policy | " + " | ".join(map(str, OVERLOADS[row])) + " |"
            yield "|---" * (len(OVERLOADS[row]) + 1) + "|"
            for policy in policies:
                goodput = by[policy, row].goodput
                yield f"| {policy} | " + " | ".join(f"{goodput[rate]:.0f}" for rate in OVERLOADS[row]) + " |"


def promises(found: Sequence[Figures]) -> Iterator[str]:
    """Yield the promises that our policy does not keep: near the best capacity, and no fall-off at two and
    four times its own."""
    for ours in found:
        if not ours.policy.startswith("slo"):
            continue
        best = max(figures.capacity for figures in found if figures.row == ours.row)
        if ours.capacity < PEERS_SHARE * best:
            yield f"{ours.row} {ours.policy}: a capacity of {ours.capacity:.0f}, the best is {best:.0f}"
        for times in (2, 4):
            rate = round(ours.capacity * times)
            peak = max(goodput for offered, goodput in ours.goodput.items() if offered <= rate)
            if ours.goodput[rate] < OVERLOAD_SHARE * peak:
                yield f"{ours.row} {ours.policy}: {ours.goodput[rate]:.0f} of {rate}, peak {peak:.0f}"


def _seconds(row: str, scale: float) -> float:
    world = ROWS[row][1]
    rare = BURSTS if world.gap_cv > 2 else 1  # in a minute, one burst more or less is 1 % of all requests
    return scale * rare * (60 if world.slices == 1 else 10)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    add(
        "--mixes",
        nargs="*",
        metavar="MIX",
        help=f"mixes of SLOs in place of rows, by number or of {', '.join(mixes.NAMED)}",
    )
    add("--policies", nargs="*", default=[], help="by their names in `batching:`; all where none is named")
    add(
        "--scale",
        type=float,
        default=1,
        help="of the length: 60 s on one slice (bursts: 20 minutes), 10 s on eight",
    )
    add("--seeds", type=int, default=2)
    add("--processes", type=int, default=2)
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
