"""The gateway against `penstock simulate` on the arrivals that the gateway recorded.

  python -m loadtests.scheduling.sim_fidelity
  python -m loadtests.scheduling.sim_fidelity --points 0.9 --seconds 10 --json fidelity.json

The model is `loadtests/scheduling/synthetic`, whose batches take 1.08 ms a row and 5.2 ms: what is compared
is the gateway and its simulator, not a model's moods. Loads are shares of the capacity that the simulator
finds. Its one free figure, the time from dispatch to the worker and back, is the gateway's own mean of it in
a run at a tenth of the load. The worker is alone on its core, gateway and client on another.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from loadtests.harness.gateway import ROOT, Gateway, settings_of
from loadtests.harness.payloads import Contents, Target
from loadtests.openloop import Ask, Course
from loadtests.stand.stage import Place, Stage, add_arguments, read_place, set_up
from serving.recording import SUFFIX

MODEL, SLO_MS = "synthetic", 25.0
POINTS = (0.5, 0.9, 1.3)
CALM = 0.1  # of the capacity
TRANSPORT = "penstock_batch_transport_seconds"
GOODPUT_APART, P99_APART = 0.02, 0.10


@dataclass(frozen=True, slots=True)
class Twin:
    """A run and its simulation: answered in time a second, and the 99th percentile of answers in ms."""

    load: float
    offered: float
    goodput: float
    goodput_simulated: float
    p99_ms: float
    p99_ms_simulated: float
    voids: Sequence[str]

    @property
    def kept(self) -> bool:
        """Whether the two are as near as promised."""
        goodput = abs(self.goodput_simulated / self.goodput - 1)
        return goodput <= GOODPUT_APART and abs(self.p99_ms_simulated / self.p99_ms - 1) <= P99_APART


def main() -> int:
    """Return 0 if every point is as near as promised, 1 if not, 2 if nothing could be run."""
    asked = arguments(__doc__, POINTS)
    try:
        with read_place(asked) as place, tempfile.TemporaryDirectory(prefix="penstock-fidelity-") as folder:
            twins = list(_twins(asked, place, Path(folder)))
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"sim_fidelity: {error}\n")
        return 2
    if asked.json:
        asked.json.write_text(json.dumps([asdict(twin) for twin in twins], indent=1) + "\n")
    return 0 if all(twin.kept and not twin.voids for twin in twins) else 1


def _twins(asked: argparse.Namespace, place: Place, folder: Path) -> Iterator[Twin]:
    entry: dict[str, object] = {
        "path": str(ROOT / "loadtests" / "scheduling" / MODEL), "slices": ["measured"], "slo_ms": SLO_MS,
    }  # fmt: skip
    config = folder / "penstock.yaml"
    config.write_text(json.dumps(settings_of([entry], [place.worker_core], place.profiles)))
    with set_up([entry], place) as stage:
        full = simulated(config, "--rate", f"{MODEL}=400", "--capacity", "--noise", "0")["capacity"]["rate"]
        ask = Ask(Target(MODEL), f"{CALM * full}", SLO_MS)
        way_us = overhead_us(stage, ask, Course(asked.seconds))
    print(f"capacity {full:.0f}/s by simulation; {way_us} us from dispatch to the worker and back")
    print(" load  offered/s  in time/s: gateway  simulated   apart   p99 ms: gateway  simulated   apart")
    for load in asked.points:
        recordings = folder / f"at-{load:g}"
        with set_up([entry], place, recording={"folder": str(recordings)}) as stage:
            course = Course(asked.seconds, contents=Contents(seed=asked.seed))
            played = stage.play([Ask(Target(MODEL), f"{load * full}", SLO_MS)], course)
        (trace,) = recordings.glob(f"*{SUFFIX}")
        found = simulated(config, "--trace", str(trace), "--overhead-us", str(way_us), "--noise", "0")
        summary, total = played.report.loads[0], found["total"]
        twin = Twin(
            load, summary.offered_rate, summary.goodput, total["goodput"],
            summary.latency["p99_ms"], total["p99_ms"], played.voids,
        )  # fmt: skip
        print(line(twin), flush=True)
        yield twin


def overhead_us(stage: Stage, ask: Ask, course: Course) -> int:
    """Return the time from dispatch to the worker and back, beside the compute: the gateway's mean in a run
    of that load. Raises RuntimeError if no batch found its worker idle."""
    before = counted(stage)
    stage.play([ask], course)
    after = counted(stage)
    total_s, count = (
        after.get(f"{TRANSPORT}_{part}", 0.0) - before.get(f"{TRANSPORT}_{part}", 0.0)
        for part in ("sum", "count")
    )
    if not count:
        raise RuntimeError("no batch found its worker idle")
    return round(total_s / count * 1e6)


def counted(stage: Stage) -> dict[str, float]:
    """Return the gateway's metrics so far, each summed over its labels."""
    return counted_at(stage.gateway)


def counted_at(gateway: Gateway) -> dict[str, float]:
    """Return the metrics of a gateway so far, each summed over its labels."""
    url = f"http://{gateway.host}:{gateway.metrics_port}/metrics"
    with urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    values: dict[str, float] = {}
    for name, value in (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")):
        values[name.split("{")[0]] = values.get(name.split("{")[0], 0.0) + float(value)
    return values


def simulated(config: Path, *options: str) -> dict[str, Any]:
    """Return the result of `penstock simulate` for these settings; RuntimeError, with what it said, for
    none."""
    command = [sys.executable, "-m", "router.cli", "simulate", str(config), "--json", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return results[0]


def line(twin: Twin) -> str:
    """Return a row below the heading, and why it is void where it is."""
    goodput = twin.goodput_simulated / twin.goodput - 1
    p99 = twin.p99_ms_simulated / twin.p99_ms - 1
    text = (
        f"{twin.load:5} {twin.offered:10.1f} {twin.goodput:19.1f} {twin.goodput_simulated:10.1f} "
        f"{goodput:+7.1%} {twin.p99_ms:17.2f} {twin.p99_ms_simulated:10.2f} {p99:+7.1%}"
        f"  {'met' if twin.kept else 'MISSED'}"
    )
    return "\n".join((text, *(f"  VOID: {void}" for void in twin.voids)))


def arguments(description: str | None, points: Sequence[float]) -> argparse.Namespace:
    """Return the arguments of a comparison with the simulator, at `points` if no loads are given."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--points", type=float, nargs="+", default=points, metavar="LOAD")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
