"""A gateway to kill: a process with one worker, which it has asked for one batch."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec
from serving.worker.frames.batches import BatchInput
from tests.runtime.recorder import Recorder, model_spec

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def dying_gateway(model: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """It and its worker's process id, once the batch is sent; killed at the end. The model in
    that folder takes X (FP32), gives Y (FP64), and is asked with the parameter `go`."""
    command = [sys.executable, "-m", "tests.runtime.dying", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


async def main(model: Path) -> None:
    heard = Recorder()
    await Supervisor(heard).start(SliceSpec("s", ()))
    await heard.hear("ready")
    link = heard.links[0]
    link.load(1, model_spec(model, {"X": "FP32"}, {"Y": "FP64"}), "only")
    await heard.hear("loaded")
    link.run(1, 1, 1, [BatchInput("FP32", (1,), [bytes(4)])], (("go", True),))
    sys.stdout.write(f"{link.pid}\n")
    sys.stdout.flush()
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
