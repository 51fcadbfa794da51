"""The driver, its device files, and the CUDA build of torch: whether anything can compute on a GPU."""

import importlib.util
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from router.settings import Settings
from router.verbs.doctor.finding import Finding, Level, fault, listed, ok, warning
from router.verbs.doctor.machine import Machine, gpu_slices, text
from serving.runtime.slicing.inventory import Inventory

NO_ANSWER: Final = "NVML does not answer"
_IN_A_CONTAINER: Final = "in a container, start it with --gpus all or runtimeClassName: nvidia"
_MODULE = re.compile(r"Kernel Module\D*(\d[\d.]+)")


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """A torch that is installed. `cuda`: the version ("12.8") of its build, "" for a build for cores."""

    version: str
    cuda: str = ""


def check_driver(machine: Machine, inventory: Inventory, wanted: bool) -> Finding:
    """Return whether NVML lists the GPUs. `wanted`: slices ask for some."""
    if inventory.reason == NO_ANSWER:
        sentence = f"{NO_ANSWER} in time: the driver has to wake the GPUs"
        return warning("driver", sentence, "turn persistence mode on (nvidia-smi -pm 1), and try again")
    if inventory.gpus:
        kinds = Counter(gpu.name for gpu in inventory.gpus)
        gpus = listed([f"{count} x {name}" for name, count in kinds.items()])
        sentence = f"driver {inventory.driver or 'unknown'}, CUDA {version_text(inventory.cuda)}, {gpus}"
        if not inventory.reason:
            return ok("driver", sentence)
        worse = fault if wanted else warning
        return worse(
            "driver", f"{sentence}; {inventory.reason}", "look at dmesg for XID; reset or replace the GPU"
        )
    if not wanted:
        return ok("driver", f"no GPU is asked for, and none can be used ({inventory.reason})")
    module = _MODULE.search(text(machine.proc / "driver" / "nvidia" / "version"))
    if module is None:
        cure = f"install NVIDIA's driver; {_IN_A_CONTAINER}"
    else:
        cure = f"install the libraries of driver {module[1]}: its module is loaded; {_IN_A_CONTAINER}"
    return fault("driver", f"slices ask for GPUs, and none can be used ({inventory.reason})", cure)


def check_device_files(machine: Machine, inventory: Inventory, wanted: bool) -> Finding:
    """Return whether this user may open the files that CUDA opens. `wanted`: slices ask for GPUs."""
    names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{gpu.index}" for gpu in inventory.gpus)]
    missing = [name for name in names if not (machine.dev / name).exists()]
    files = [machine.dev / name for name in names if name not in missing]
    denied = [str(file) for file in files if not machine.may(file, os.R_OK | os.W_OK)]
    if any(gpu.mig for gpu in inventory.gpus):
        caps = sorted((machine.dev / "nvidia-caps").glob("nvidia-cap*"))
        missing += [] if caps else ["nvidia-caps"]
        denied += [str(file) for file in caps if not machine.may(file, os.R_OK)]
    found = ok("device files", f"all files of {len(inventory.gpus)} GPUs can be opened")
    if missing:
        sentence = f"not in {machine.dev}: {listed(missing)}"
        found = fault("device files", sentence, f"nvidia-modprobe -u -c 0; {_IN_A_CONTAINER}")
    elif denied:
        cure = "let this user open them (ls -l shows their group), or start the container with these GPUs"
        found = fault("device files", f"may not be opened: {listed(denied)}", cure)
    if found.level is Level.FAULT and not wanted:
        return warning(found.name, found.sentence, found.cure)
    return found


def check_torch(build: TorchBuild | None, inventory: Inventory, settings: Settings | None) -> Finding:
    """Return whether torch was built for this driver, where models on GPUs compute with it."""
    wanted = _computes_with_torch(settings)
    worse = fault if wanted else warning
    known = "" if inventory.cuda is None else f" {version_text(inventory.cuda)} or older"
    cure = f"install a build for CUDA{known} (pytorch.org names its index)"
    if build is None:
        return (
            worse("torch", "torch is not installed", cure)
            if wanted
            else ok("torch", "torch is not installed")
        )
    if not build.cuda:
        sentence = f"torch {build.version} computes on cores only"
        return worse("torch", sentence, cure) if gpu_slices(settings) else ok("torch", sentence)
    sentence = f"torch {build.version} was built with CUDA {build.cuda}"
    if inventory.cuda is None:
        return ok("torch", sentence)
    driver = version_text(inventory.cuda)
    if int(build.cuda.partition(".")[0]) > int(driver.partition(".")[0]):
        sentence = f"{sentence}, and the driver knows CUDA up to {driver}"
        return worse("torch", sentence, f"update the driver, or {cure}")
    return ok("torch", f"{sentence}; the driver knows CUDA {driver}")


def torch_build(file: Path | None = None) -> TorchBuild | None:
    """Return what torch's version file says, as importing torch takes seconds; None if there is no torch."""
    if file is None:
        found = importlib.util.find_spec("torch")
        if found is None or found.origin is None:
            return None
        file = Path(found.origin).with_name("version.py")
    said = dict(re.findall(r"^(__version__|cuda)\b[^=]*= *'([^']*)'", text(file), re.MULTILINE))
    return TorchBuild(said.get("__version__", "unknown"), said.get("cuda", ""))


def version_text(cuda: int | None) -> str:
    """Return "13.1" of 13010, as CUDA counts."""
    return "unknown" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"


def _computes_with_torch(settings: Settings | None) -> bool:
    """Return whether the code of a model that is served on a GPU imports torch."""
    names = {each.name for each in gpu_slices(settings)}
    folders = (
        {model.spec.folder for model in settings.models if names & {*model.slices}} if settings else set()
    )
    imports = re.compile(r"^\s*(?:import|from) torch\b", re.MULTILINE)
    return any(imports.search(text(file)) for folder in folders for file in folder.glob("*.py"))
