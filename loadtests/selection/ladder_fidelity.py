"""The ladder of a gateway against `penstock simulate` on the arrivals that the gateway recorded.

  python -m loadtests.selection.ladder_fidelity
  python -m loadtests.selection.ladder_fidelity --points 2 --seconds 10 --json ladder.json

`digits` is asked for eight rows a request; all of its variants may answer. Loads are shares of what the most
accurate one carries by its profile, in batches of 2 l(b) <= SLO. What is compared is the answers in time and
their mean accuracy, by the gateway's own counters. As in `loadtests.scheduling.sim_fidelity` the time from
dispatch to the worker and back is the gateway's own, and the worker is alone on its core.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.harness.gateway import ROOT, model_entry, settings_of, started
from loadtests.harness.payloads import Contents, Target
from loadtests.harness.processes import pin
from loadtests.openloop import Ask, Course
from loadtests.scheduling.sim_fidelity import CALM, GOODPUT_APART, arguments, counted, overhead_us, simulated
from loadtests.stand.stage import Place, Stage, capacity, read_place
from router.settings import load_model
from serving.recording import SUFFIX
from serving.values.objectives import ranked

MODEL, ROWS, SLO_MS = "digits", 8, 25.0
POINTS = (0.5, 1.0, 2.0, 3.0)
ACCURACY_APART = 0.005
LOADED_S = 120.0  # the first start on a machine measures every variant
REPLICAS = "penstock_replicas"
ACCURACY, MEASURED = "penstock_answer_accuracy_total", "penstock_answer_measured_rows_total"


@dataclass(frozen=True, slots=True)
class Pair:
    """A run and its simulation: answered in time a second, and the mean accuracy of the rows answered."""

    load: float
    offered: float
    goodput: float
    goodput_simulated: float
    accuracy: float
    accuracy_simulated: float
    voids: Sequence[str]

    @property
    def kept(self) -> bool:
        """Whether the two are as near as promised."""
        goodput = abs(self.goodput_simulated / self.goodput - 1)
        return goodput <= GOODPUT_APART and abs(self.accuracy_simulated - self.accuracy) <= ACCURACY_APART


def main() -> int:
    """Return 0 if every point is as near as promised, 1 if not, 2 if nothing could be run."""
    asked = arguments(__doc__, POINTS)
    try:
        with read_place(asked) as place, tempfile.TemporaryDirectory(prefix="penstock-fidelity-") as folder:
            pairs = list(_pairs(asked, place, Path(folder)))
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"ladder_fidelity: {error}\n")
        return 2
    if asked.json:
        asked.json.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1) + "\n")
    return 0 if all(pair.kept and not pair.voids for pair in pairs) else 1


def _pairs(asked: argparse.Namespace, place: Place, folder: Path) -> Iterator[Pair]:
    spec = load_model(ROOT / "models" / MODEL)
    names = ranked({each.name: each.accuracy for each in spec.variants}, 0.0)
    entry = model_entry(MODEL, slo_ms=SLO_MS, variants=list(names), optimize="most_accurate", cache=False)
    config = folder / "penstock.yaml"
    config.write_text(json.dumps(settings_of([entry], [place.worker_core], place.profiles)))
    course = Course(asked.seconds, contents=Contents(ROWS, seed=asked.seed))
    with _staged(entry, place, len(names)) as stage:
        full = capacity(stage.latency(MODEL, names[0]), SLO_MS * 1000) / ROWS
        way_us = overhead_us(stage, Ask(Target(MODEL), f"{CALM * full}", SLO_MS), course)
    print(f"{names[0]} carries {full:.0f}/s by its profile; {way_us} us from dispatch to the worker and back")
    print(" load  offered/s  in time/s: gateway  simulated   apart   accuracy: gateway  simulated    apart")
    for load in asked.points:
        recordings = folder / f"at-{load:g}"
        with _staged(entry, place, len(names), recording={"folder": str(recordings)}) as stage:
            before = _accuracy(stage)
            played = stage.play([Ask(Target(MODEL), f"{load * full}", SLO_MS)], course)
            total, rows = (now - then for now, then in zip(_accuracy(stage), before, strict=True))
        (trace,) = recordings.glob(f"*{SUFFIX}")
        found = simulated(config, "--trace", str(trace), "--overhead-us", str(way_us))["models"][MODEL]
        summary = played.report.loads[0]
        goodput = found["attainment"] * summary.offered_rate  # the simulator leaves its first second out
        pair = Pair(
            load, summary.offered_rate, summary.goodput, goodput, total / rows, found["accuracy"],
            played.voids,
        )  # fmt: skip
        print(line(pair), flush=True)
        yield pair


@contextlib.contextmanager
def _staged(entry: dict[str, object], place: Place, variants: int, **settings: object) -> Iterator[Stage]:
    """Yield a gateway once `variants` variants have a replica: it is ready with the first of them. Raises
    RuntimeError if they have none in time. Profiles go on being refined while the slice idles, as in
    service."""
    with started([entry], [place.worker_core], place.profiles, **settings) as gateway:
        pin(gateway.pid, [place.core])
        stage, give_up_s = Stage(gateway, place), time.monotonic() + LOADED_S
        while counted(stage).get(REPLICAS, 0) < variants:
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"not all of {variants} variants have a replica after {LOADED_S:g} s")
            time.sleep(0.2)
        yield stage


def _accuracy(stage: Stage) -> tuple[float, float]:
    """Return the accuracy summed over rows, and the rows."""
    values = counted(stage)
    return values.get(ACCURACY, 0.0), values.get(MEASURED, 0.0)


def line(pair: Pair) -> str:
    """Return a row below the heading, and why it is void where it is."""
    text = (
        f"{pair.load:5} {pair.offered:10.1f} {pair.goodput:19.1f} {pair.goodput_simulated:10.1f} "
        f"{pair.goodput_simulated / pair.goodput - 1:+7.1%} {pair.accuracy:19.4f} "
        f"{pair.accuracy_simulated:10.4f} {pair.accuracy_simulated - pair.accuracy:+8.4f}"
        f"  {'met' if pair.kept else 'MISSED'}"
    )
    return "\n".join((text, *(f"  VOID: {void}" for void in pair.voids)))


if __name__ == "__main__":
    sys.exit(main())
