"""What `penstock doctor` prints of machines that do well and of machines that do not, and its help."""

from pathlib import Path

from typer.testing import CliRunner

from router.cli import app
from router.settings import Settings
from router.verbs.doctor import cores, cuda, limits, neighbours, sharing
from router.verbs.doctor.command import shown
from router.verbs.doctor.finding import Finding
from router.verbs.doctor.machine import gpu_slices
from serving.runtime.slicing.inventory import Inventory
from tests.goldens.conftest import Golden
from tests.router.verbs.doctor.roots import NO_GPU, deployment, gpu, inventory, machine, on_gpus

FILE = Path("penstock.yaml")
CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
WELL = {
    CLOCK: "tsc\n",
    "proc/self/limits": "Max open files 20000 20000 files\n",
    "proc/loadavg": "0.3 0 0 1/9 7\n",
}
ILL = {
    CLOCK: "hpet\n",
    "proc/self/limits": "Max open files 1024 4096 files\n",
    "proc/loadavg": "9.1 0 0 9/9 7\n",
}
BUSY = neighbours.CoreTimes(60, 0, 100)


def findings(
    root: Path, files: dict[str, str], settings: Settings, gpus: Inventory, times: neighbours.CoreTimes
) -> list[Finding]:
    """Return the findings that depend on nothing but these."""
    root.mkdir()
    here = machine(root, files)
    return [
        cores.check_cores(here, settings),
        cores.check_clock(here),
        neighbours.check_load(here),
        limits.check_open_files(here, settings),
        cuda.check_driver(here, gpus, bool(gpu_slices(settings))),
        cuda.check_torch(cuda.TorchBuild("2.9.0+cpu"), gpus, settings),
        sharing.check_gpu_slices(here, gpus, settings),
        sharing.check_mig(here, gpus, settings),
        sharing.check_mps(here, gpus, settings, lambda _: None),
        neighbours.check_neighbours(neighbours.CoreTimes(), times, 0),
    ]


def help_text() -> str:
    return CliRunner().invoke(app, ["doctor", "--help"], prog_name="penstock", env={"COLUMNS": "100"}).output


def test_doctor(golden: Golden, tmp_path: Path) -> None:
    quiet = neighbours.CoreTimes(2, 0, 100)
    eight = inventory(*(gpu(index) for index in range(8)))
    asked = on_gpus(tmp_path, "mps:30", "mig:3g.71gb")
    golden(
        "doctor",
        {
            "help": help_text(),
            "a machine that does well": shown(
                FILE, findings(tmp_path / "a", WELL, deployment(tmp_path), NO_GPU, quiet)
            ),
            "slices ask for GPUs that are not there": shown(
                FILE, findings(tmp_path / "b", ILL, asked, NO_GPU, BUSY)
            ),
            "GPUs that cannot be shared so": shown(FILE, findings(tmp_path / "c", WELL, asked, eight, quiet)),
            "no file": shown(None, findings(tmp_path / "d", WELL, deployment(tmp_path), eight, quiet)[:2]),
            "a file that cannot be used": shown(
                FILE,
                findings(tmp_path / "e", ILL, deployment(tmp_path), NO_GPU, BUSY)[:2],
                ["penstock.yaml:1:1: no"],
            ),
        },
    )
