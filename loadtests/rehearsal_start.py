"""How soon a rehearsed fleet is ready, and ready again after its host is killed.

  python -m loadtests.rehearsal_start [--gpus 64]

Each GPU has seven slices of `mig:1g.18gb`. One client asks `/v2/health/live` every 20 ms, and the slowest
answer is printed. Times count from the start of the gateway's process, and from the kill.
"""

import argparse
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

from loadtests.gateway import ROOT, Gateway
from loadtests.living import Living
from loadtests.processes import children, command_line
from loadtests.rehearsal import KIND, VARIANT
from loadtests.sim_fidelity import MODEL
from serving.profile.curve import Point, Profile
from serving.profile.store import ProfileStore
from serving.slice_specs import Share

SHARE, SLICES = "mig:1g.18gb", 7
HOST = "serving.worker.rehearsed"
PERIOD_S, PATIENCE_S = 0.02, 120.0
COUNTS = re.compile(rb"^penstock_replicas\{.*state=\"ready\"\} (\d+)$", re.MULTILINE)


class Pulse:
    """Asks whether the gateway is live, all the time; `slowest_s` of the answers."""

    def __init__(self, gateway: Gateway) -> None:
        self._url = f"http://{gateway.host}:{gateway.rest_port}/v2/health/live"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.slowest_s = 0.0
        self._thread.start()

    def end(self) -> float:
        """Stop asking; return the seconds that the slowest answer took."""
        self._over.set()
        self._thread.join()
        return self.slowest_s

    def _ask(self) -> None:
        while not self._over.wait(PERIOD_S):
            begin_s = time.monotonic()
            with urlopen(self._url, timeout=PATIENCE_S) as answer:  # noqa: S310  # ours, http
                answer.read()
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)


def fleet_settings(gpus: int, profiles: Path) -> dict[str, object]:
    """Return the settings of a rehearsed fleet with one model on all slices, and write its profile."""
    points = tuple(Point(0, rows, 1e4 + 2e3 * rows, 1e4 + 2e3 * rows, 1) for rows in (1, 4, 16))
    profile = Profile(MODEL, VARIANT, KIND, points, 200_000, 1 << 28, share=Share.parse(SHARE))
    ProfileStore(profiles).write(profile)
    return {
        "devices": [{"name": "h", "kind": KIND, "count": gpus, "rehearse": {"seed": 1}}],
        "slices": [{"name": "g", "device": "h", "share": SHARE, "count": SLICES}],
        "models": [{"path": str(ROOT / "loadtests" / MODEL), "slo_ms": 500, "required": True}],
        "profiles": {"folder": str(profiles)},
    }


def host_of(gateway: Gateway) -> int:
    """Return the process that plays the GPUs. Raises RuntimeError where there is none."""
    found = [pid for pid in children(gateway.pid) if HOST in command_line(pid)]
    if not found:
        raise RuntimeError("the gateway has no host of rehearsed slices")
    return found[0]


def ready(gateway: Gateway) -> int:
    """Return how many replicas are ready."""
    with urlopen(f"http://{gateway.host}:{gateway.metrics_port}/metrics", timeout=PATIENCE_S) as answer:
        return sum(map(int, COUNTS.findall(answer.read())))


def measure(settings: Mapping[str, object], slices: int, folder: Path) -> tuple[float, float, float]:
    """Return the seconds until all slices are ready, until they are again after a kill, and the slowest
    answer meanwhile. Raises RuntimeError if a slice is not ready in time."""
    living = Living(folder, settings)
    begin_s = time.monotonic()
    try:
        living.start()
        living.until(lambda: ready(living.gateway) == slices, f"have {slices} ready", PATIENCE_S)
        ready_s = time.monotonic() - begin_s
        pulse = Pulse(living.gateway)
        os.kill(host_of(living.gateway), signal.SIGKILL)
        begin_s = time.monotonic()
        living.until(lambda: ready(living.gateway) < slices, "lose its slices", PATIENCE_S)
        living.until(lambda: ready(living.gateway) == slices, f"have {slices} ready again", PATIENCE_S)
        return ready_s, time.monotonic() - begin_s, pulse.end()
    finally:
        living.stop()


def main() -> int:
    """Return 0, or 2 if the fleet was not ready."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=64, help=f"rehearsed H200s, of {SLICES} slices each")
    gpus, slices = parser.parse_args().gpus, parser.parse_args().gpus * SLICES
    with tempfile.TemporaryDirectory(prefix="penstock-rehearsal-") as folder:
        settings = fleet_settings(gpus, Path(folder) / "profiles")
        try:
            ready_s, back_s, slowest_s = measure(settings, slices, Path(folder))
        except RuntimeError as error:
            sys.stderr.write(f"rehearsal_start: {error}\n")
            return 2
    print(f"{slices} slices: ready in {ready_s:.1f} s, again {back_s:.1f} s after a kill of their host")
    print(f"the slowest answer of /v2/health/live meanwhile took {slowest_s:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
