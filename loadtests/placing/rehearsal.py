"""A rehearsed fleet beside `penstock simulate` on the arrivals that its gateway recorded.

  python -m loadtests.placing.rehearsal
  python -m loadtests.placing.rehearsal --gpus 8 --points 0.3 0.6 --seconds 20 --json rehearsal.json

The gateway, its ports and the client are real; 3 slices of 2g on each H200 are rehearsed, with a profile of
--batch-ms a batch and --row-ms a row. Arrivals are an open loop; latencies count from when a request was due.
Loads are shares of the profiled capacity. The simulator's one free figure, from dispatch to the worker
and back, is the gateway's own mean in the run. Where the gateway or the client has no core to itself,
the machine is in the figures, and the client says so (VOID).
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from loadtests.harness.dispatch import Server
from loadtests.harness.gateway import ROOT, served
from loadtests.harness.payloads import Contents, Target
from loadtests.openloop import Ask, Course, run
from loadtests.scheduling.sim_fidelity import MODEL, TRANSPORT, Twin, counted_at, line, simulated
from serving.profile.curve import Point, Profile
from serving.profile.files.store import ProfileStore
from serving.recording import SUFFIX
from serving.values.slice_specs import Share

KIND, SHARE, SLICES = "gpu-nvidia-h200", "mig:2g.35gb", 3
VARIANT, ROWS = "resnet", (1, 2, 4, 8, 16)
SLO_BATCHES = 3
"""The SLO, in times of the largest batch."""


def main() -> int:
    """Return 0 if every point is as near as promised, 1 if not, 2 if nothing could run."""
    asked = _arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-rehearsal-") as folder:
            twins = [*_twins(asked, Path(folder))]
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"rehearsal: {error}\n")
        return 2
    if asked.json:
        asked.json.write_text(json.dumps([asdict(twin) for twin in twins], indent=1) + "\n")
    return 0 if all(twin.kept and not twin.voids for twin in twins) else 1


def _twins(asked: argparse.Namespace, folder: Path) -> Iterator[Twin]:
    longest_ms = write_profile(asked, folder / "profiles")
    slices, slo_ms = asked.gpus * SLICES, SLO_BATCHES * longest_ms
    full = slices * ROWS[-1] / longest_ms * 1e3
    settings = fleet_settings(asked, folder / "profiles", slo_ms)
    config = folder / "penstock.yaml"
    config.write_text(json.dumps(settings))
    print(f"{asked.gpus} GPUs, {slices} slices, profiled capacity {full:.0f}/s, SLO {slo_ms:g} ms")
    print(" load  offered/s  in time/s: gateway  simulated   apart   p99 ms: gateway  simulated   apart")
    for load in asked.points:
        recordings = folder / f"at-{load:g}"
        with served(settings | {"recording": {"folder": str(recordings)}}) as gateway:
            course = Course(asked.seconds, contents=Contents(seed=asked.seed))
            ask = Ask(Target(MODEL), f"{load * full}", slo_ms)
            report = run([ask], course, Server(gateway.host, gateway.rest_port))
            way_us = _way_us(counted_at(gateway))
        (trace,) = recordings.glob(f"*{SUFFIX}")
        noise = ("--noise", str(asked.noise))
        found = simulated(config, "--trace", str(trace), "--overhead-us", str(way_us), *noise)
        summary, total = report.loads[0], found["total"]
        twin = Twin(
            load, summary.offered_rate, summary.goodput, total["goodput"],
            summary.latency["p99_ms"], total["p99_ms"], report.voids,
        )  # fmt: skip
        print(f"{line(twin)}   ({way_us} us to the host and back)", flush=True)
        yield twin


def write_profile(asked: argparse.Namespace, folder: Path, share: str = SHARE) -> float:
    """Write the profile of a slice; return the milliseconds of its largest batch."""
    took_ms = {rows: asked.batch_ms + asked.row_ms * rows for rows in ROWS}
    points = tuple(Point(0, rows, ms * 1e3, ms * 1e3, 1) for rows, ms in took_ms.items())
    profile = Profile(MODEL, VARIANT, KIND, points, 200_000, 1 << 28, share=Share.parse(share))
    ProfileStore(folder).write(profile)
    return float(took_ms[ROWS[-1]])


def fleet_settings(
    asked: argparse.Namespace, profiles: Path, slo_ms: float, share: str = SHARE, slices: int = SLICES
) -> dict[str, object]:
    """Return the settings of the fleet with its one model, and so many slices on each GPU."""
    rehearse = {"noise": asked.noise, "seed": asked.seed}
    device = {"name": "h", "kind": KIND, "count": asked.gpus, "rehearse": rehearse}
    return {
        "devices": [device],
        "slices": [{"name": "g", "device": "h", "share": share, "count": slices}],
        "models": [{"path": str(ROOT / "loadtests" / "scheduling" / MODEL), "slo_ms": slo_ms}],
        "profiles": {"folder": str(profiles)},
    }


def _way_us(counts: dict[str, float]) -> int:
    """Return the mean time from dispatch to the worker and back, beside the compute."""
    count = counts.get(f"{TRANSPORT}_count", 0.0)
    return round(counts[f"{TRANSPORT}_sum"] / count * 1e6) if count else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--gpus", type=int, default=8, help="rehearsed H200s, of 3 slices each")
    add("--batch-ms", type=float, default=240.0, help="of a batch, beside its rows")
    add("--row-ms", type=float, default=30.0)
    add("--noise", type=float, default=0.03, help="of batches, in both worlds")
    add("--points", type=float, nargs="+", default=(0.3, 0.6, 0.8), metavar="LOAD")
    add("--seconds", type=float, default=20.0)
    add("--seed", type=int, default=1)
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
