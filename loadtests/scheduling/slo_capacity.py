"""Does the gateway keep its promise? Open loop, at shares and multiples of what the bare model can do.

  python -m loadtests.scheduling.slo_capacity
  python -m loadtests.scheduling.slo_capacity --points 0.5 2 --seconds 5 --policy static --json slo.json --png
  slo.png

The worker is alone on one core, gateway and client share another. The capacity is the bare model's rows a
second at the largest batch b with 2 l(b) <= SLO, measured before and after each point while the gateway is
idle; a few seconds of half that load come before each point. A point is void, and run again, where the
capacity moved by over 10 %, the client was late, or others used the cores.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadtests.harness.payloads import Contents
from loadtests.harness.pictures import drawn, png
from loadtests.harness.record import NO_STATUS
from loadtests.harness.report import OK, percentiles, without_nan
from loadtests.openloop import Course
from loadtests.stand.testbed import (
    Played,
    Testbed,
    add_arguments,
    drift,
    laid_out,
    read_setting,
)
from serving.values.vocabulary import ALL_OUTCOMES, Kind

POINTS = (0.5, 0.8, 0.95, 1.1, 1.5, 2.0, 3.0)
ATTAINED = {0.5: 0.999, 0.8: 0.99}  # the share answered in time that is promised at these loads
OVERLOAD = 1.1  # from which on the goodput is promised:
GOODPUT = 0.95  # of the capacity
FALL_OFF = 0.02  # what two runs of one point differ by
SOON_MS, SOON_SHARE = 5.0, 0.99  # so many of those turned away learn it so soon
GOOD, LATE, LOST = "in time", "late", "lost"
_KINDS = {outcome.reason.value: outcome.kind.value for outcome in ALL_OUTCOMES}
_WANTED = {"p50": 50.0, "p99": 99.0, "max": 100.0}
_COLUMNS = (
    "  load  offered/s  capacity/s before, after    in time  goodput/s  of capacity   late  shed rejected"
    "   in time: p50    p99 ms   others told: p50    p99 ms  in 5 ms  rejected in 5 ms  client late ms"
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """One run at `load` times the capacity; rates are a second, requests have one row.

    `counts`: requests by how they ended: in time, late, lost (no HTTP answer), or a kind of outcome.
    `good_ms`: latency of the answers in time; `told_ms`: when the others learned how they ended, from due;
    `soon` is the share of them that did within SOON_MS, `rejected_soon` of those turned away at arrival.
    """

    load: float
    offered: float
    capacities: tuple[float, float]
    attainment: float
    goodput: float
    counts: Mapping[str, int]
    good_ms: Mapping[str, float]
    told_ms: Mapping[str, float]
    soon: float
    rejected_soon: float
    client_late_ms: float
    voids: Sequence[str]

    @property
    def capacity(self) -> float:
        """The mean of before and after."""
        return sum(self.capacities) / 2

    @property
    def share(self) -> float:
        """Goodput over capacity."""
        return self.goodput / self.capacity


def main() -> int:
    """Return 0 if every point is valid, 1 if one stayed void, 2 if nothing could be run.

    Whether the promises were kept is reported, not enforced.
    """
    asked = _arguments()
    points: list[Point] = []
    try:
        with laid_out(read_setting(asked)) as bed:
            print(_COLUMNS)
            for load in asked.points:
                for point in _tries(bed, load, asked):
                    points.append(point)
                    print(line(point), flush=True)
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"slo_capacity: {error}\n")
        return 2
    kept = aims(points)
    for aim, met in kept.items():
        print(f"{'met' if met else 'MISSED'}: {aim}")
    if asked.json:
        found = [asdict(point) | {"share": point.share} for point in points]
        report = {"arguments": sys.argv[1:], "points": found, "aims": kept}
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(without_nan(report), allow_nan=False) + "\n")
    if asked.png:
        title = f"{asked.model}, SLO {asked.slo_ms:g} ms, policy {asked.policy}, {asked.seconds:g} s a point"
        draw(points, asked.png, title)
    return 0 if {point.load for point in points if not point.voids} == set(asked.points) else 1


def _tries(bed: Testbed, load: float, asked: argparse.Namespace) -> Iterator[Point]:
    """Yield runs of one point until one is valid, or there were enough."""
    for _ in range(asked.tries):
        point = run_point(bed, load, Course(asked.seconds, contents=Contents(seed=asked.seed)))
        yield point
        if not point.voids:
            return


def run_point(bed: Testbed, load: float, course: Course) -> Point:
    """Play one run at `load` times the capacity, which is measured before and after it."""
    bed.warm_up()
    before = bed.capacity()
    played = bed.play(load * before.rate, course)
    return judge(load, (before.rate, bed.capacity().rate), played)


def judge(load: float, capacities: tuple[float, float], played: Played) -> Point:
    """Return the figures of a run between two measurements of the capacity."""
    report, record, latency_ms = played.report, played.record, played.latency_ms
    in_time = latency_ms <= played.slo_ms
    endings = np.asarray(list(map(ending, record.statuses, record.reasons, in_time.tolist())))
    good = endings == GOOD
    return Point(
        load=load, offered=report.total.offered_rate, capacities=capacities,
        attainment=report.total.attainment, goodput=report.total.goodput,
        counts=dict(Counter(endings.tolist())),
        good_ms=percentiles(latency_ms[good], _WANTED), told_ms=percentiles(latency_ms[~good], _WANTED),
        soon=_soon(latency_ms[~good]), rejected_soon=_soon(latency_ms[endings == Kind.REJECTED.value]),
        client_late_ms=report.lateness["p99_ms"], voids=[*played.voids, *drift(*capacities)],
    )  # fmt: skip


def ending(status: int, reason: str, in_time: bool) -> str:
    """Return in time, late, lost, or the kind of outcome that the reason belongs to."""
    if status == OK:
        return GOOD if in_time else LATE
    return LOST if status == NO_STATUS else _KINDS.get(reason, Kind.FAILED.value)


def aims(points: Sequence[Point]) -> dict[str, bool]:
    """Return the promises about the valid points, and whether each was kept."""
    found = {}
    valid = [point for point in points if not point.voids]
    over = [point for point in valid if point.load >= OVERLOAD]
    for point in valid:
        least = ATTAINED.get(point.load)
        if least is not None:
            found[f"at {point.load:g} at least {least:.1%} in time"] = point.attainment >= least
    for point in over:
        found[f"at {point.load:g} a goodput of {GOODPUT:.0%} of the capacity"] = point.share >= GOODPUT
        told = f"at {point.load:g} {SOON_SHARE:.0%} of the rejected told within {SOON_MS:g} ms"
        found[told] = point.rejected_soon >= SOON_SHARE
    if len(over) > 1:
        lowest = min(point.share for point in over[1:])
        aim = f"no fall-off of goodput from {over[0].load:g} to {over[-1].load:g}"
        found[aim] = lowest >= (1 - FALL_OFF) * over[0].share
    return found


def line(point: Point) -> str:
    """Return a row below _COLUMNS, and why it is void where it is."""
    before, after = point.capacities
    late, shed, rejected = (point.counts.get(name, 0) for name in (LATE, Kind.SHED, Kind.REJECTED))
    text = (
        f"{point.load:6g} {point.offered:10.1f} {before:16.1f} {after:9.1f} {point.attainment:10.3%}"
        f" {point.goodput:10.1f} {point.share:12.1%} {late:6} {shed:5} {rejected:8}"
        f" {point.good_ms['p50']:14.2f} {point.good_ms['p99']:9.2f}"
        f" {point.told_ms['p50']:18.2f} {point.told_ms['p99']:9.2f} {point.soon:8.1%}"
        f" {point.rejected_soon:17.1%} {point.client_late_ms:15.3f}"
    )
    return "\n".join(
        (text.replace("nan%", "-   ").replace("nan", "  -"), *(f"  VOID: {v}" for v in point.voids))
    )


def draw(points: Sequence[Point], path: Path, title: str) -> None:
    """Write the PNG: goodput and what is offered, in capacities; and the share that was answered in time."""
    valid = sorted((point for point in points if not point.voids), key=lambda point: point.load)
    loads = [point.load for point in valid]
    with drawn(7.5, 6.5, path) as figure:
        above, below = figure.subplots(2, 1, sharex=True)
        above.plot(loads, loads, color="#8c8c8c", ls="--", lw=1, label="offered")
        above.axhline(1, color="black", ls=":", lw=1, label="the bare model, full batches all the time")
        shares = [point.share for point in valid]
        above.plot(loads, shares, color="#2a7f62", marker="o", label="answered in time (goodput)")
        above.set_ylim(0, 1.3)
        above.set_ylabel("rows a second, in capacities")
        below.plot(
            loads, [100 * point.attainment for point in valid], color="#2a7f62", marker="o", label="in time"
        )
        below.plot(loads, [100 * point.rejected_soon for point in valid], color="#5b6fb5", marker=".",
                   label=f"of the rejected, told within {SOON_MS:g} ms")  # fmt: skip
        below.set_ylim(0, 105)
        below.set_ylabel("% of the requests")
        below.set_xlabel("offered load, in capacities of the bare model")
        for axes in (above, below):
            axes.legend(fontsize=7.5, frameon=False)
        figure.suptitle(title, wrap=True)


def _soon(told_ms: Floats) -> float:
    return float((told_ms <= SOON_MS).mean()) if len(told_ms) else float("nan")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    add = parser.add_argument
    add("--points", type=float, nargs="+", default=POINTS, metavar="LOAD", help="in capacities")
    add("--seconds", type=float, default=20, help="of each point")
    add("--tries", type=int, default=3, help="runs of a point that is void")
    add("--seed", type=int, default=0, help="of arrivals and contents")
    add("--json", type=Path, metavar="FILE")
    add("--png", type=png, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
