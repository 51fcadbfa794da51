"""Which GPU a device name means, and which actuator makes a kind of share real there."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from serving.policy.placement.terms.mps import clients_max
from serving.runtime.slicing.contract import Actuator, SlicingError
from serving.runtime.slicing.inventory import Gpu, Inventory, MigDevice, take_inventory
from serving.runtime.slicing.kinds import chunks, kind_fault
from serving.runtime.slicing.mig.mig import GivenInstance, MigGpu, MigInstances
from serving.runtime.slicing.mps.mps import MpsPartitions, MpsPercentages
from serving.runtime.slicing.timeslice import TimeSlices
from serving.values.slice_specs import Share

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
_BY_BUS: Final = "PCI_BUS_ID"
_INSTANCE: Final = re.compile(r"(?:MIG-)?(GPU-[\w-]+)/(\d{1,4})/(\d{1,4})", re.ASCII)
"""GPU, GPU instance and compute instance: how CUDA named a MIG device before R470."""

_WHOLE_INSTANCE: Final = re.compile(r"\d+g\.", re.ASCII)  # "1c.3g.20gb" is a part of an instance

_Found = tuple[Gpu, MigDevice | None]


@dataclass(frozen=True, slots=True)
class VisibleDevice:
    """A device that workers may compute on. `name` ("cuda:1") is its place among those that are visible.

    `mig_device` is the one instance of `gpu` that is visible; None: all of the GPU.
    """

    name: str
    gpu: Gpu
    mig_device: MigDevice | None = None

    @property
    def uuid(self) -> str:
        """Return the name that CUDA knows the device by in every process."""
        return self.gpu.uuid if self.mig_device is None else self.mig_device.uuid

    @property
    def share(self) -> Share:
        """Return the share of a GPU of its kind that it is."""
        profile = self.mig_device.profile if self.mig_device else ""
        return Share.parse(f"mig:{profile}") if _WHOLE_INSTANCE.match(profile) else Share("whole", 1.0)


def visible_devices(inventory: Inventory, environ: Mapping[str, str]) -> tuple[VisibleDevice, ...]:
    """Return the devices that CUDA_VISIBLE_DEVICES leaves visible, in its order; without it, all GPUs.

    The rules are CUDA's ("CUDA Environment Variables" of its programming guide). An entry that means no
    device hides all entries after it, so "" and -1 hide all. A device that is listed twice hides all, too, as
    PyTorch counts. A process sees one MIG device only, but each worker gets its own, so all of them count.
    NVIDIA_VISIBLE_DEVICES is not CUDA's: NVML does not list what it hides.
    """
    listed = environ.get(VISIBLE)
    if listed is None:
        found: list[_Found] = [(gpu, None) for gpu in inventory.gpus]
    else:
        found = _leading(_meant(entry.strip(), inventory) for entry in listed.split(","))
    devices = tuple(VisibleDevice(f"cuda:{n}", gpu, mig) for n, (gpu, mig) in enumerate(found))
    twice = len({each.uuid for each in devices}) < len(devices)
    return () if twice else devices


def device_named(text: str, inventory: Inventory, environ: Mapping[str, str]) -> VisibleDevice:
    """Return the visible device of that name. SlicingError names what is there where there is none.

    `text` is "cuda:1" (the second that is visible), "gpu-1" (NVML's index), a GPU's UUID or its beginning, or
    a MIG device's UUID. "GPU-<uuid>/<gpu instance>/<compute instance>" is a MIG device's older name.
    """
    names = _names(text, visible_devices(inventory, environ))
    found = names.get(text) or _abbreviated(text, list(names.values()))
    if found is None:
        raise SlicingError(_absent(text, names, inventory, environ))
    return found


def gpu_named(device: str, inventory: Inventory, visible: str | None = None) -> Gpu:
    """Return the GPU of the visible device of that name. SlicingError where there is none.

    `visible`: CUDA_VISIBLE_DEVICES, None where it is not set.
    """
    return device_named(device, inventory, {} if visible is None else {VISIBLE: visible}).gpu


def index_note(inventory: Inventory, environ: Mapping[str, str]) -> str:
    """Return a sentence where CUDA may count the GPUs in another order than Penstock does, else "".

    CUDA's default is the fastest first. Penstock gives workers UUIDs, so that only people can be misled.
    """
    names = {gpu.name for gpu in inventory.gpus}
    listed = environ.get(VISIBLE)
    indexed = listed is None or any(entry.strip().isdecimal() for entry in listed.split(","))
    if environ.get(ORDER) == _BY_BUS or len(names) < 2 or not indexed:
        return ""
    return f"the GPUs are unlike, and Penstock counts them by PCI bus; {ORDER}={_BY_BUS} makes CUDA agree"


def device_actuator(kind: str, device: VisibleDevice, inventory: Inventory, recut: bool = False) -> Actuator:
    """Return the actuator of that kind of share on a visible device, as `gpu_actuator` does.

    Of a MIG device, nothing but itself is given out: other instances of its GPU are not visible.
    """
    if device.mig_device is None:
        return gpu_actuator(kind, device.gpu, inventory, recut)
    if kind == "mig" and device.share.kind == "mig":
        return GivenInstance(device.mig_device.uuid, device.share)
    if kind in ("whole", "time"):
        return TimeSlices(device.mig_device.uuid)
    raise SlicingError(f"{device.name} is a MIG device: its shares are mig, whole or time; got {kind}")


def gpu_actuator(kind: str, gpu: Gpu, inventory: Inventory, recut: bool = False) -> Actuator:
    """Return the actuator of that kind of share ("whole", "time", "mps", "sm", "mig") on a GPU.

    MIG instances are created and destroyed only with `recut`; otherwise those that exist are given out.
    Raises SlicingError if the GPU, its driver or its mode has no such shares.
    """
    if problem := kind_fault(f"GPU {gpu.index}", kind, gpu, inventory.cuda):
        raise SlicingError(problem)
    clients = clients_max(inventory.cuda)
    match kind:
        case "whole" | "time":
            return TimeSlices(gpu.uuid)
        case "mps":
            return MpsPercentages(gpu.uuid, clients_max=clients)
        case "sm":
            return MpsPartitions(gpu.uuid, chunks(gpu, inventory.cuda), clients_max=clients)
        case "mig":
            divided = MigGpu(gpu.index, dry_run=not recut, known=gpu.geometry)
            return MigInstances(divided, lambda: _mig_uuids(gpu.uuid))
    raise SlicingError(f"{kind} is no kind of share that a GPU's actuators give")


def _mig_uuids(uuid: str) -> dict[int, str]:
    gpus = take_inventory().gpus
    return {each.gpu_instance: each.uuid for gpu in gpus if gpu.uuid == uuid for each in gpu.mig_devices}


def _leading(entries: Iterable[_Found | None]) -> list[_Found]:
    found = []
    for entry in entries:
        if entry is None:
            break
        found.append(entry)
    return found


def _meant(entry: str, inventory: Inventory) -> _Found | None:
    """Return what an entry of CUDA_VISIBLE_DEVICES means; None where CUDA would find no device."""
    if entry.isdecimal():
        return next(((gpu, None) for gpu in inventory.gpus if gpu.index == int(entry)), None)
    instances: list[_Found] = [(gpu, each) for gpu in inventory.gpus for each in gpu.mig_devices]
    listed = next((each for each in instances if each[1] and each[1].uuid == entry), None)
    if listed or "/" in entry:
        return listed or _old_instance(entry, instances)
    gpu = _gpu_beginning(entry, inventory.gpus)
    return None if gpu is None else (gpu, None)


def _gpu_beginning(text: str, gpus: Iterable[Gpu]) -> Gpu | None:
    """Return the only GPU with a UUID that begins so, or is this one."""
    found = [gpu for gpu in gpus if text.startswith("GPU-") and gpu.uuid.startswith(text)]
    exact = [gpu for gpu in found if gpu.uuid == text]
    return (exact or found)[0] if exact or len(found) == 1 else None


def _old_instance(text: str, instances: Iterable[_Found]) -> _Found | None:
    """Return the MIG device that is named by its GPU and the ids of its instances."""
    match = _INSTANCE.fullmatch(text)
    if match is None:
        return None
    there = list(instances)
    gpu = _gpu_beginning(match[1], {each.uuid: each for each, _ in there}.values())
    for each in there:
        of_gpu, mig = each
        if (
            of_gpu == gpu
            and mig
            and (mig.gpu_instance, mig.compute_instance) == (int(match[2]), int(match[3]))
        ):
            return each
    return None


def _names(text: str, devices: Iterable[VisibleDevice]) -> dict[str, VisibleDevice]:
    """Return the devices that a text of this form can name, by their full names of this form."""
    if text.startswith("MIG-") or "/" in text:
        return {each.uuid: each for device in devices for each in _instances(device)}
    wholes = [each for each in devices if each.mig_device is None]
    if text.startswith("GPU-"):
        return {each.uuid: each for each in wholes}
    if text.startswith("gpu-"):
        return {f"gpu-{each.gpu.index}": each for each in wholes}
    return {each.name: each for each in devices}


def _abbreviated(text: str, devices: list[VisibleDevice]) -> VisibleDevice | None:
    """Return the device that is named by the beginning of its UUID or, if of MIG, by its instances' ids."""
    if "/" in text:
        found = _old_instance(text, [(each.gpu, each.mig_device) for each in devices])
        return next((each for each in devices if found and each.mig_device == found[1]), None)
    beginning = [each for each in devices if text.startswith("GPU-") and each.uuid.startswith(text)]
    if len(beginning) > 1:
        several = " and ".join(each.uuid for each in beginning)
        raise SlicingError(f"{text} is the beginning of {several}; expected more of the UUID")
    return beginning[0] if beginning else None


def _instances(device: VisibleDevice) -> list[VisibleDevice]:
    """Return the MIG devices that a visible device is or has."""
    if device.mig_device is not None:
        return [device]
    return [VisibleDevice(device.name, device.gpu, each) for each in device.gpu.mig_devices]


def _absent(
    text: str, names: Mapping[str, VisibleDevice], inventory: Inventory, environ: Mapping[str, str]
) -> str:
    """Return the sentence that says what is there in place of a device."""
    there = ", ".join(names) or ("no MIG device" if text.startswith("MIG-") or "/" in text else "no GPU")
    reasons = [inventory.reason] if inventory.reason else []
    if VISIBLE in environ and not text.startswith("cuda:"):
        with suppress(SlicingError):
            device_named(text, inventory, {})
            reasons.insert(0, f"{VISIBLE}={environ[VISIBLE]} hides it")
    why = "".join(f" ({reason})" for reason in reasons)
    return f"there is no {text} here; there is {there}{why}"
