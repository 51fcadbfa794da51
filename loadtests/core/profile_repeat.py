"""Whether sweeps repeat, and what they cost beside the full grid.

  python -m loadtests.core.profile_repeat digits --variant cnn,ensemble
  python -m loadtests.core.profile_repeat minilm --variant bf16-128 --shares 1 --times 3 --no-full

The same model is swept several times into folders of their own, then once over the full grid. Latencies are
compared as ratios to the yardstick that ran between them, point by point where both sweeps have one, and
beside that as they are. Quiet machine, or the sweeps refuse; --allow-noise is passed on.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from router.verbs.profiling.main import profile
from router.verbs.profiling.options import ProfileOptions
from serving.profile.curve import Point
from serving.profile.files.store import ProfileStore

P50_AIM, P99_AIM = 0.05, 0.10
Key = tuple[str, str, int, int]
"""Variant, share, size bucket, rows."""


@dataclass(frozen=True, slots=True)
class Swept:
    """A sweep of all variants and shares."""

    points: dict[Key, Point]
    seconds: dict[str, float]  # by variant


def main() -> int:
    """Return 0 if the sweeps agree within the aims, 1 if they do not, 2 if one could not be made."""
    asked = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        sweeps = [_sweep(asked, Path(scratch, str(number)), False) for number in range(asked.times)]
        full = _sweep(asked, Path(scratch, "full"), True) if asked.full else None
    if not all(sweep.points for sweep in sweeps):
        return 2
    pairs = list(_pairs(sweeps))
    _show_agreement(pairs)
    if full is not None:
        _show_cost(sweeps, full)
    agreed = all(
        _worst(_apart(pairs, name, "yardstick_us")) <= aim
        for name, aim in (("p50_us", P50_AIM), ("p99_us", P99_AIM))
    )
    print("met: every point of every two sweeps" if agreed else "MISSED: see the largest")
    return 0 if agreed else 1


def _sweep(asked: argparse.Namespace, folder: Path, full: bool) -> Swept:
    options = ProfileOptions(
        model=asked.model, variant=asked.variant, shares=asked.shares, full=full, profiles=folder,
        point_seconds=asked.point_seconds, allow_noise=asked.allow_noise,
    )  # fmt: skip
    profile(options)
    store = ProfileStore(folder)
    found = [each for kind in store.kinds() for each in store.sets(kind)]
    points = {
        (one.variant, str(one.share), point.size, point.rows): point
        for each in found
        for one in each.profiles
        for point in one.points
    }
    seconds = {each.variant: sum(one.origin.seconds for one in each.profiles) for each in found}
    return Swept(points, seconds)


def _pairs(sweeps: Sequence[Swept]) -> Iterator[tuple[Key, Point, Point]]:
    for number, first in enumerate(sweeps):
        for second in sweeps[number + 1 :]:
            for key in sorted(first.points.keys() & second.points.keys()):
                yield key, first.points[key], second.points[key]


def _apart(pairs: Sequence[tuple[Key, Point, Point]], name: str, over: str) -> list[float]:
    """Return how far apart the two sweeps are at each point; `over`: the field that latencies are divided
    by."""

    def value(point: Point) -> float:
        return float(getattr(point, name)) / (float(getattr(point, over)) if over else 1.0)

    return [abs(value(second) / value(first) - 1) for _, first, second in pairs]


def _worst(values: Sequence[float]) -> float:
    return max(values, default=0.0)


def _show_agreement(pairs: Sequence[tuple[Key, Point, Point]]) -> None:
    table = Table(title=f"two sweeps, {len(pairs)} points that both have: how far apart")
    for column in ("latency", "over the yardstick: median", "p90", "largest", "as it is: median", "largest"):
        table.add_column(column, justify="right")
    for name in ("p50_us", "p99_us"):
        unordered = _apart(pairs, name, "yardstick_us")
        variant, share, size, rows = pairs[unordered.index(max(unordered))][0]
        table.caption = f"{table.caption or 'the largest:'} {name[:3]} of {variant} on {share}, {rows} rows"
        table.caption += f" of size {size};" if size else ";"
        ratios, plain = sorted(unordered), sorted(_apart(pairs, name, ""))
        high = ratios[int(0.9 * (len(ratios) - 1))]
        figures = (median(ratios), high, ratios[-1], median(plain), plain[-1])
        table.add_row(name[:3], *(f"{figure:.1%}" for figure in figures))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _show_cost(sweeps: Sequence[Swept], full: Swept) -> None:
    for variant, whole_s in full.seconds.items():
        usual_s = median(sweep.seconds[variant] for sweep in sweeps)
        count = median(sum(key[0] == variant for key in sweep.points) for sweep in sweeps)
        all_of_them = sum(key[0] == variant for key in full.points)
        print(
            f"{variant}: {usual_s:.0f} s for {count:g} batches, {whole_s:.0f} s for the full grid of "
            f"{all_of_them} ({usual_s / whole_s:.0%})"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--variant", default="", help="comma-separated; all, if not given")
    parser.add_argument("--shares", default="", help="as of penstock profile")
    parser.add_argument("--times", type=int, default=2, help="sweeps to compare")
    parser.add_argument("--point-seconds", type=float, default=3.0)
    parser.add_argument("--no-full", dest="full", action="store_false", help="without the full grid")
    parser.add_argument("--allow-noise", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
