"""A machine made of files: what the kernel shows of cores, clocks, limits and devices."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from router.settings import Settings, load_settings
from router.verbs.doctor.finding import Finding, Level
from router.verbs.doctor.machine import Machine
from serving.runtime.slicing.inventory import Gpu, Inventory
from serving.values.slice_specs import Share, SliceSpec
from tests.router.settings.samples import write_deployment


def machine(root: Path, files: Mapping[str, str] | None = None, cores: int = 2) -> Machine:
    """Return a machine with these files below `root` (proc, sys, dev, cgroup) and that many cores."""
    for name in ("proc", "sys", "dev", "cgroup"):
        (root / name).mkdir(exist_ok=True)
    for name, content in (files or {}).items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    places = (root / "proc", root / "sys", root / "dev", root / "cgroup")
    return Machine(*places, environ={}, cores=tuple(range(cores)))


def deployment(home: Path) -> Settings:
    """Return the settings of a small sound file."""
    return load_settings(write_deployment(home))


def on_cores(home: Path, *cores: tuple[int, ...]) -> Settings:
    """Return the settings with slices on these cores."""
    slices = tuple(SliceSpec(f"s{place}", each, len(each)) for place, each in enumerate(cores))
    return replace(deployment(home), slices=slices)


def on_gpus(home: Path, *shares: str, device: str = "gpu-0") -> Settings:
    """Return the settings with a slice of each share, and with all models on these."""
    slices = tuple(
        SliceSpec(f"g{place}", (), 1, device, Share.parse(each)) for place, each in enumerate(shares)
    )
    settings = deployment(home)
    names = tuple(each.name for each in slices)
    models = tuple(replace(each, slices=names) for each in settings.models)
    return replace(settings, slices=slices, models=models)


def gpu(index: int = 0, mig: bool = False, name: str = "NVIDIA H200") -> Gpu:
    return Gpu(index, f"GPU-{index}", name, 141 << 30, 0, (9, 0), 132, mig, (), None, None, 0, ())


def inventory(*gpus: Gpu, reason: str = "") -> Inventory:
    return Inventory((0, 1), gpus, "580.65.06" if gpus else "", 13010 if gpus else None, reason)


NO_GPU = inventory(reason="NVML: NVML Shared Library Not Found")


def is_ok(found: Finding) -> bool:
    """Return whether there is nothing to cure."""
    return found.level is Level.OK and not found.cure


def is_warning(found: Finding) -> bool:
    return found.level is Level.WARNING and bool(found.cure)


def is_fault(found: Finding) -> bool:
    return found.level is Level.FAULT and bool(found.cure)
