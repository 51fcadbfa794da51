"""All that only a GPU can show, in one command and 20 minutes at most, with a report of what it has shown.

  python -m loadtests.gpu.gpu_day
  python -m loadtests.gpu.gpu_day --device cuda:1 --models minilm,digits --recut --report /tmp/day
  python -m loadtests.gpu.gpu_day --only clients,caps,memory

Each step runs in a process of its own, no longer than its bound, and ends with ok, failed or skipped. The
report (gpu_day.md, gpu_day.json) is written after each step. A step that needs what is not here is skipped
with the reason. Nothing is installed and no mode is switched; MIG instances are made only with --recut.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.gpu import gpu_day_served, gpu_day_steps
from loadtests.gpu.gpu_day_report import Figure, Outcome, Shown, Status, write
from loadtests.gpu.gpu_day_served import cuda_name
from loadtests.gpu.gpu_day_steps import Site, SkippedError
from loadtests.harness.gateway import ROOT
from serving.runtime.slicing.inventory import take_inventory

ON_GPU, ELSEWHERE = ("minilm", "digits"), ("simple", "identity")
"""Models where torch computes on the GPU and they are built, and elsewhere."""


@dataclass(frozen=True, slots=True)
class Step:
    """`row`: of the last table of docs/slices.md; `bound_s`: after that it is ended."""

    name: str
    row: str
    bound_s: float
    run: Callable[[Site], Outcome]


STEPS = (
    Step("doctor", "", 60, gpu_day_served.doctor),
    Step("inventory", "NVML", 30, gpu_day_served.inventory),
    Step("clients", "MPS caps", 60, gpu_day_steps.clients),
    Step("caps", "MPS caps", 90, gpu_day_steps.caps),
    Step("memory", "MPS caps", 60, gpu_day_steps.memory),
    Step("quit", "MPS caps", 40, gpu_day_steps.quit_with_clients),
    Step("partitions", "MPS partitions", 40, gpu_day_steps.partitions),
    Step("instances", "MIG commands", 90, gpu_day_steps.instances),
    Step("turns", "turns", 60, gpu_day_steps.turns),
    Step("copies", "", 60, gpu_day_steps.copies),
    Step("profile", "", 200, gpu_day_served.profile),
    Step("serving", "", 140, gpu_day_served.serving),
    Step("killed", "MPS caps", 140, gpu_day_served.killed),
    Step("sharing", "", 130, gpu_day_served.sharing),
)
"""1,200 s in all."""


def main() -> int:
    """Return 1 if a step failed, else 0."""
    asked = _arguments()
    with tempfile.TemporaryDirectory(prefix="gpu-day-") as folder:
        if asked.outcome:
            return _run_here(asked)
        shown: list[Shown] = []
        about = _about(asked)
        for step in STEPS:
            if asked.only and step.name not in asked.only:
                continue
            begun = time.monotonic()
            outcome = _run(step, asked, Path(folder))
            seconds = time.monotonic() - begun
            shown.append(Shown(step.name, step.row, outcome, round(seconds, 1), step.bound_s))
            write(asked.report, about, shown)
            sys.stdout.write(f"{outcome.status:8} {step.name:11} {seconds:6.1f} s  {outcome.sentence}\n")
            sys.stdout.flush()
    sys.stdout.write(f"report: {asked.report / 'gpu_day.md'}\n")
    return 1 if any(each.outcome.status is Status.FAILED for each in shown) else 0


def _run(step: Step, asked: argparse.Namespace, folder: Path) -> Outcome:
    """Run a step in a process group of its own, which ends with it."""
    file, log = folder / "outcome.json", folder / "log"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "loadtests.gpu.gpu_day", "--only", step.name, "--outcome", str(file)]
    command += ["--device", asked.device, "--models", ",".join(asked.models), "--folder", str(folder)]
    command += ["--seconds", str(asked.seconds)]
    command += ["--recut"] if asked.recut else []
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            process.wait(step.bound_s)
        except subprocess.TimeoutExpired:
            return Outcome(Status.FAILED, f"it was not done in {step.bound_s:g} s, and was ended")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if not file.exists():
        lines = log.read_text("utf-8", "replace").strip().splitlines()
        return Outcome(
            Status.FAILED, f"status {process.returncode}: {lines[-1] if lines else 'it said nothing'}"
        )
    told = json.loads(file.read_text())
    return Outcome(Status(told["status"]), told["sentence"], told["figures"])


def _run_here(asked: argparse.Namespace) -> int:
    site = Site(asked.device, asked.models, asked.recut, asked.folder, asked.seconds)
    (step,) = (each for each in STEPS if each.name == asked.only[0])
    try:
        outcome = step.run(site)
    except SkippedError as error:
        outcome = Outcome(Status.SKIPPED, str(error))
    except Exception as error:  # whatever it is, the report says it and the next step follows
        outcome = Outcome(Status.FAILED, f"{type(error).__name__}: {error}")
    asked.outcome.write_text(json.dumps(asdict(outcome)))
    return 0


def _about(asked: argparse.Namespace) -> Mapping[str, Figure]:
    inventory = take_inventory()
    gpus = ", ".join(each.name for each in inventory.gpus) or f"none ({inventory.reason})"
    return {
        "GPUs": gpus, "driver": inventory.driver or "none", "CUDA": cuda_name(inventory.cuda),
        "cores": len(inventory.cores), "kernel": platform.release(), "device": asked.device,
        "models": ", ".join(asked.models), "recut": asked.recut,
        "begun": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }  # fmt: skip


def _models() -> Sequence[str]:
    try:
        import torch
    except ImportError:
        return ELSEWHERE
    built = [name for name in ON_GPU if (ROOT / "models" / name / "build").is_dir()]
    return built if built and torch.cuda.is_available() else ELSEWHERE


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def names(text: str) -> list[str]:
        return text.split(",")

    add = parser.add_argument
    add("--device", default="cuda:0", help="the GPU to open shares of")
    add(
        "--models",
        type=names,
        metavar="MODEL,MODEL",
        help="below models/; by default those that torch can",
    )
    add("--recut", action="store_true", help="make a MIG instance, and destroy it")
    add("--seconds", type=float, default=10, help="of each load on a gateway")
    add("--only", type=names, default=[], metavar="STEP,...", help=", ".join(each.name for each in STEPS))
    add("--report", type=Path, default=Path("gpu-day"), metavar="FOLDER")
    add("--outcome", type=Path, help=argparse.SUPPRESS)
    add("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    unknown = sorted({*asked.only} - {each.name for each in STEPS})
    if unknown:
        parser.error(
            f"--only: no step {', '.join(unknown)}; there are {', '.join(each.name for each in STEPS)}"
        )
    asked.models = asked.models or _models()
    return asked


if __name__ == "__main__":
    sys.exit(main())
