"""Whether the GPUs that are here can be shared as the slices ask: by name, by MIG, by MPS."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from router.settings import Settings
from router.verbs.doctor.finding import Finding, fault, listed, ok, warning
from router.verbs.doctor.machine import MIG, MPS, Machine, gpu_slices, of_kinds
from serving.runtime.slicing.choice import VisibleDevice, device_named, index_note, visible_devices
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.inventory import Inventory
from serving.runtime.slicing.mps.mps_daemon import CONTROL, FOLDER_BYTES_MAX
from serving.runtime.slicing.mps.mps_folder import PREFIX
from serving.values.slice_specs import SliceSpec

_PIPES, _PIPES_DEFAULT = "CUDA_MPS_PIPE_DIRECTORY", "tmp/nvidia-mps"
_SCRATCH: Final = "/tmp"  # noqa: S108  # nothing is written there
_RANDOM_BYTES: Final = 8  # of a temporary folder's name


def check_gpu_slices(machine: Machine, inventory: Inventory, settings: Settings | None) -> Finding:
    """Return whether each slice's GPU is there and visible."""
    wanted = gpu_slices(settings)
    if wanted and not inventory.gpus:
        sentence = f"no GPU is there for {listed([f'slice {each.name}' for each in wanted])}"
        return fault("gpu slices", sentence, "see `driver`, or let the slices compute on cores")
    wrong = []
    for each in wanted:
        try:
            device_named(each.device, inventory, machine.environ)
        except SlicingError as error:
            wrong.append(f"slice {each.name}: {error}")
    if wrong:
        cure = "correct `device`, or what hides it (CUDA_VISIBLE_DEVICES, the container's GPUs)"
        return fault("gpu slices", listed(wrong, 2), cure)
    visible = visible_devices(inventory, machine.environ)
    if note := index_note(inventory, machine.environ):
        return warning("gpu slices", note, "name GPUs by UUID, or set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return ok("gpu slices", f"visible: {listed([_described(each) for each in visible]) or 'no GPU'}")


def check_mig(machine: Machine, inventory: Inventory, settings: Settings | None) -> Finding:
    """Return whether MIG mode is on where slices ask for instances, and off where they do not."""
    off, on = [], []
    for each in gpu_slices(settings):
        device = _device(each, machine, inventory)
        if device is None or device.mig_device is not None:
            continue
        if each.share.kind in MIG and not device.gpu.mig:
            off.append(device.gpu.index)
        elif each.share.kind not in MIG and device.gpu.mig:
            on.append(device.gpu.index)
    if off:
        indices = ",".join(map(str, sorted(set(off))))
        cure = f"nvidia-smi -i {indices} -mig 1 as root, while nothing computes there"
        return fault("mig", f"slices ask for MIG instances, and MIG mode is off: GPU {indices}", cure)
    if on:
        indices = ",".join(map(str, sorted(set(on))))
        cure = f"ask for mig:... shares, or nvidia-smi -i {indices} -mig 0 as root"
        return fault("mig", f"slices ask for other shares, and MIG mode is on: GPU {indices}", cure)
    states = [f"GPU {gpu.index} has {len(gpu.mig_devices)}" for gpu in inventory.gpus if gpu.mig]
    return ok("mig", f"MIG instances: {listed(states)}" if states else "MIG mode is off")


def check_mps(
    machine: Machine,
    inventory: Inventory,
    settings: Settings | None,
    which: Callable[[str], str | None] = shutil.which,
) -> Finding:
    """Return whether a control daemon can be started for the slices that share a GPU by MPS."""
    program = which(CONTROL)
    wanted = of_kinds(gpu_slices(settings), MPS)
    if program is None:
        if not wanted:
            return ok("mps", f"no slice needs {CONTROL}, and it is not there")
        cure = (
            "install it: NVIDIA's driver brings it (nvidia-compute-utils); in a container, mount the host's"
        )
        return fault("mps", f"slices ask for MPS shares, and {CONTROL} is not there", cure)
    folder = machine.environ.get("TMPDIR") or _SCRATCH  # tempfile would try by writing
    if wanted and len(folder.encode()) + len(PREFIX) + 1 + _RANDOM_BYTES > FOLDER_BYTES_MAX:
        return fault("mps", f"{folder} is too long for the daemon's sockets", "set TMPDIR to a short folder")
    pipes = Path(machine.environ.get(_PIPES) or machine.dev.parent / _PIPES_DEFAULT)
    if wanted and (pipes / "control").exists():
        cure = "end it (echo quit | nvidia-cuda-mps-control): Penstock starts its own for each GPU"
        return warning("mps", f"another MPS daemon may run: its pipes are in {pipes}", cure)
    return ok("mps", f"{program} is there{_of_driver(Path(program), inventory.driver)}")


def _of_driver(program: Path, driver: str) -> str:
    """Return which driver brought the program, if its file tells: it has no option for that."""
    try:
        known = bool(driver) and driver.encode() in program.read_bytes()
    except OSError:
        known = False
    return f", of driver {driver}" if known else ""


def _device(each: SliceSpec, machine: Machine, inventory: Inventory) -> VisibleDevice | None:
    try:
        return device_named(each.device, inventory, machine.environ)
    except SlicingError:
        return None


def _described(device: VisibleDevice) -> str:
    mig = device.mig_device
    return f"{device.name} ({mig.profile or 'MIG' if mig else f'gpu-{device.gpu.index}'})"
