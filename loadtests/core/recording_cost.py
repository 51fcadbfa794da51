"""What a recorded request costs: CPU on the event loop, and bytes in the file.

python -m loadtests.core.recording_cost [--rounds 20]
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter_ns

from loadtests.harness.gateway import ROOT
from router.settings import load_model
from serving.ports import Call
from serving.runtime.files.recorder import Recorder
from serving.values.specs import RecordingSpec, ServedModel

REQUESTS = 20_000  # a round
PAUSE_S = 0.05  # between rounds: the writer's thread comes after
START_UNIX_US = 1_700_000_000_000_000


async def measure(rounds: int, folder: Path) -> tuple[float, int]:
    """Return (microseconds a request, of the median round; requests recorded)."""
    spec = load_model(ROOT / "models" / "digits")
    model = ServedModel(spec, spec.slo_us, (spec.default_variant,), ("s",))
    call = Call(model, [], 1)
    recorder = Recorder(RecordingSpec(folder), START_UNIX_US)
    taken_us = []
    for number in range(rounds):
        begin_ns = perf_counter_ns()
        for place in range(REQUESTS):
            recorder.record(call, number * 1_000_000 + place)
        taken_us.append((perf_counter_ns() - begin_ns) / REQUESTS / 1e3)
        await asyncio.sleep(PAUSE_S)
    await recorder.close()
    return median(taken_us), recorder.recorded


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="penstock-recordings-") as folder:
        taken_us, recorded = asyncio.run(measure(rounds, Path(folder)))
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / recorded
    print(f"{taken_us:.2f} us and {size:.2f} bytes a request, median of {rounds} x {REQUESTS}")


if __name__ == "__main__":
    main()
