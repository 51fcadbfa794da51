"""How soon a rehearsed fleet is ready, and ready again after its host is killed.

  python -m loadtests.placing.rehearsal_start [--gpus 64]

Each GPU has seven slices of `mig:1g.18gb`. One client asks `/v2/health/live` every 20 ms, and the slowest
answer is printed. Times count from the start of the gateway's process, and from the kill.
"""

import argparse
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.request import urlopen

from loadtests.harness.gateway import Gateway
from loadtests.harness.processes import children, command_line
from loadtests.placing.rehearsal import SLO_BATCHES, fleet_settings, write_profile
from loadtests.stand.living import Living, kill, living

SHARE, SLICES = "mig:1g.18gb", 7
HOST = "serving.worker.rehearsed"
PERIOD_S, PATIENCE_S = 0.02, 120.0
READY = re.compile(rb"^penstock_replicas\{.*state=\"ready\"\} (\d+)$", re.MULTILINE)


class Pulse:
    """Asks all the time whether the gateway is live."""

    def __init__(self, there: Living) -> None:
        self._there = there
        self._over = threading.Event()
        self._slowest_s = 0.0
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def end(self) -> float:
        """Stop asking; return the seconds that the slowest answer took."""
        self._over.set()
        self._thread.join()
        return self._slowest_s

    def _ask(self) -> None:
        while not self._over.wait(PERIOD_S):
            begin_s = time.monotonic()
            self._there.ask("GET", "/v2/health/live")
            self._slowest_s = max(self._slowest_s, time.monotonic() - begin_s)


def host_of(gateway: Gateway) -> int:
    """Return the process that plays the GPUs. Raises RuntimeError where there is none."""
    found = [pid for pid in children(gateway.pid) if HOST in command_line(pid)]
    if not found:
        raise RuntimeError("the gateway has no host of rehearsed slices")
    return found[0]


def ready(gateway: Gateway) -> int:
    """Return how many replicas are ready."""
    with urlopen(f"http://{gateway.host}:{gateway.metrics_port}/metrics", timeout=PATIENCE_S) as answer:
        return sum(map(int, READY.findall(answer.read())))


def measure(asked: argparse.Namespace, folder: Path) -> tuple[float, float, float]:
    """Return the seconds until all slices are ready, until they are again after a kill, and the slowest
    answer meanwhile. Raises RuntimeError if a slice is not ready in time."""
    profiles, slices = folder / "profiles", asked.gpus * SLICES
    slo_ms = SLO_BATCHES * write_profile(asked, profiles, SHARE)
    settings = fleet_settings(asked, profiles, slo_ms, SHARE, SLICES)
    begin_s = time.monotonic()
    with living(folder, settings) as there:
        there.until(lambda: ready(there.gateway) == slices, f"have {slices} ready", PATIENCE_S)
        ready_s = time.monotonic() - begin_s
        pulse = Pulse(there)
        kill(host_of(there.gateway))
        begin_s = time.monotonic()
        there.until(lambda: ready(there.gateway) < slices, "lose its slices", PATIENCE_S)
        there.until(lambda: ready(there.gateway) == slices, f"have {slices} ready again", PATIENCE_S)
        return ready_s, time.monotonic() - begin_s, pulse.end()


def main() -> int:
    """Return 0, or 2 if the fleet was not ready."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=64, help=f"rehearsed H200s, of {SLICES} slices each")
    parser.set_defaults(batch_ms=10.0, row_ms=2.0, noise=0.0, seed=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-rehearsal-") as folder:
        try:
            ready_s, back_s, slowest_s = measure(asked, Path(folder))
        except RuntimeError as error:
            sys.stderr.write(f"rehearsal_start: {error}\n")
            return 2
    slices = asked.gpus * SLICES
    print(f"{slices} slices: ready in {ready_s:.1f} s, again {back_s:.1f} s after a kill of their host")
    print(f"the slowest answer of /v2/health/live meanwhile took {slowest_s:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
