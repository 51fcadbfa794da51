"""Slices on GPUs: which devices an entry of `slices:` means, and whether they have the shares.

An entry means GPUs of this machine, or rehearsed devices of `devices:`, which need not be here.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from router.settings.machine.gpu_faults import clients_fault, doubts, faults
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, one_of, shown
from router.settings.values.schema import SliceSection
from serving.profile.device import gpu_kind
from serving.runtime.slicing.choice import VISIBLE, VisibleDevice, device_named, visible_devices
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.inventory import Gpu, Inventory
from serving.values.rehearsal import EXACT, RehearsalSpec
from serving.values.slice_specs import DeviceSpec, Share

ALL: Final = ("all", "gpus: all")
"""Names of all GPUs of this machine."""
WHOLE: Final = Share("whole", 1.0)
TIME: Final = Share("time", 1.0)
_RECUT: Final = ("mig", "recut")
_PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
_PIPES_DEFAULT: Final = "/tmp/nvidia-mps"  # noqa: S108  # NVIDIA's
_NAMED: Final = ("gpu-", "GPU-", "MIG-")
_AUTO: Final = re.compile(r"(mig:? ?)?auto")
_SHARES: Final = "whole, time, mps:30 (per cent), sm:16 (chunks) or mig:2g.35gb (an instance)"


@dataclass(frozen=True, slots=True)
class SlicedDevice:
    """A GPU or MIG device that an entry means. `visible` is None for a rehearsed device."""

    name: str
    kind: str
    rehearsed: bool = False
    visible: VisibleDevice | None = None
    rehearsal: RehearsalSpec = EXACT

    @property
    def gpu(self) -> Gpu | None:
        """Return the GPU that it is or is an instance of."""
        return self.visible.gpu if self.visible else None


def device_names(findings: Findings, text: str) -> tuple[str, ...]:
    """Return the names of the devices that `device: text` means; `text` alone if they are unknown."""
    return tuple(each.name for each in _meant(findings, text)) or (text,)


def means_several(findings: Findings, text: str) -> bool:
    """Return whether `text` names a group of devices: then the slices of the entry are numbered."""
    return text in ALL or any(each.name == text and each.count > 1 for each in findings.devices)


def read_share(findings: Findings, loc: Loc, text: str | None) -> Share | None:
    """Return the share that an entry asks for, all of the device by default; None if it is faulty."""
    try:
        return share_of(text)
    except ValueError:
        findings.add((*loc, "share"), fault("no share of a GPU", text, _expected(text)))
        return None


def _expected(text: str | None) -> str:
    """Return the right shares, or the way to one if a layout is to be chosen."""
    if _AUTO.fullmatch(text or ""):
        return "an instance such as mig:2g.35gb: `penstock place` chooses the layout and prints the slices"
    return _SHARES


def share_of(text: str | None) -> Share:
    """Return the share of a GPU that `text` writes; ValueError if it writes none."""
    if text in (None, "whole", "time"):
        return TIME if text == "time" else WHOLE
    share = Share.parse(text or "")
    wrong = share.kind == "cores" or (share.kind == "mps" and share.amount > 100)
    if wrong or (share.kind in ("mps", "sm") and share.amount % 1):
        raise ValueError(text)
    return share


def check_processes(findings: Findings, loc: Loc, section: SliceSection, share: Share) -> bool:
    """Return whether an entry may have its number of processes in the share; add a problem if not."""
    if share.processes > 1:
        expected = f"share: {share.with_processes(1)} beside processes: {share.processes}"
        findings.add((*loc, "share"), fault("processes in the share", section.share, expected))
        return False
    if section.processes > 1 and share.kind != "mig":
        message = f"{section.processes} processes in a share of kind {share.kind}"
        findings.add((*loc, "processes"), f"{message}; expected a mig: share, or `count` slices by mps:")
        return False
    return True


def sliced_devices(findings: Findings, loc: Loc, text: str) -> Sequence[SlicedDevice]:
    """Return the devices that an entry means; none, with a problem, if there are none."""
    found = _meant(findings, text)
    if not found:
        findings.add((*loc, "device"), _missing(findings, text))
    return found


def check_devices(findings: Findings, asked: Sequence[tuple[Loc, SlicedDevice, Share]]) -> None:
    """Add what cannot be of the shares that all entries ask for, device by device; warn of what may be slow.

    `asked`: an item for each slice.
    """
    by_device: dict[str, list[tuple[Loc, SlicedDevice, Share]]] = {}
    for each in asked:
        by_device.setdefault(each[1].name, []).append(each)
    for on_device in by_device.values():
        _check_device(findings, on_device)
    instances = [each for each in asked if _instance_of(each[1])]
    for loc, device, share in asked:
        if any(_instance_of(named) == device.gpu for _, named, _ in instances) and not _instance_of(device):
            message = f"other slices name MIG devices of {device.name}, so {share} could be one of these"
            findings.add((*loc, "device"), f"{message}; expected a MIG device's UUID here too")


def _instance_of(device: SlicedDevice) -> Gpu | None:
    """Return the GPU of a MIG device; None for a whole GPU and a rehearsed device."""
    return device.gpu if device.visible and device.visible.mig_device else None


def _meant(findings: Findings, text: str) -> Sequence[SlicedDevice]:
    rehearsed = [each for each in findings.devices if each.rehearse]
    for spec in rehearsed:
        if text == spec.name or text in spec.names:
            names = spec.names if text == spec.name else (text,)
            return [_rehearsed(name, spec) for name in names]
    if findings.rehearse:
        return _stand_ins(rehearsed, text)
    visible = visible_devices(findings.inventory, _environ(findings))
    if text in ALL:
        return [_sliced(each.name, each) for each in visible]
    try:
        found = device_named(text, findings.inventory, _environ(findings))
    except SlicingError:
        return []
    return [_sliced(found.name if found in visible else found.uuid, found)]


def _sliced(name: str, device: VisibleDevice) -> SlicedDevice:
    return SlicedDevice(name, gpu_kind(device.gpu.name), visible=device)


def _rehearsed(name: str, spec: DeviceSpec) -> SlicedDevice:
    return SlicedDevice(name, spec.kind, rehearsed=True, rehearsal=spec.rehearsal)


def _stand_ins(rehearsed: Sequence[DeviceSpec], text: str) -> Sequence[SlicedDevice]:
    """Return the rehearsed devices that stand in for GPUs: cuda:0 or gpu-0 is the first of `devices:`."""
    found = [_rehearsed(name, spec) for spec in rehearsed for name in spec.names]
    if text in ALL:
        return found
    return [each for index, each in enumerate(found) if text in (f"cuda:{index}", f"gpu-{index}")]


def _environ(findings: Findings) -> dict[str, str]:
    return {} if findings.visible_gpus is None else {VISIBLE: findings.visible_gpus}


def _missing(findings: Findings, text: str) -> str:
    planned = next((each for each in findings.devices if text == each.name or text in each.names), None)
    if planned is not None:
        what = f"{shown(text)} is a device to plan with, and no GPU of this machine"
        return f"{what}; expected `rehearse: true` there, or a GPU such as cuda:0"
    if findings.rehearse:
        what = f"no device of `devices:` stands for {text} in a rehearsal"
        return f"{what}; expected an entry there such as {{name: h, kind: gpu-nvidia-h200, count: 8}}"
    inventory: Inventory = findings.inventory
    if inventory.gpus and text.startswith(_NAMED):
        try:
            device_named(text, inventory, _environ(findings))
        except SlicingError as error:
            return str(error)
    why = f" ({inventory.reason})" if inventory.reason else ""
    count = len(visible_devices(inventory, _environ(findings)))
    there = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0" if count else "no GPU"
    cure = "" if count else "; to rehearse without one, name a device of `devices:` with `rehearse: true`"
    return f"no such GPU here; got {text}, there is {there}{why}{cure}"


def _check_device(findings: Findings, asked: Sequence[tuple[Loc, SlicedDevice, Share]]) -> None:
    name, shares = asked[0][1].name, [share for _, _, share in asked]
    kinds = {share.kind for share in shares}
    loc = asked[-1][0]
    if "whole" in kinds and len(asked) > 1:
        message = f"{name} is whole for one slice, and {len(asked)} slices ask for it"
        findings.add((*loc, "share"), f"{message}; expected share: time, an mps: or a mig: share")
        return
    if len(kinds) > 1:
        message = f"the slices of {name} ask for shares of several kinds, {one_of(sorted(kinds))}"
        findings.add((*loc, "share"), f"{message}; expected one kind for each GPU")
        return
    device = asked[0][1]
    for problem in _problems(device, shares, findings.inventory, _may_recut(findings)):
        findings.add((*loc, "share"), problem)
    if device.gpu is not None:
        pipes = Path(os.environ.get(_PIPES) or _PIPES_DEFAULT)
        for sentence in doubts(name, device.gpu, shares, pipes):
            findings.warn((*loc, "share"), sentence)
    percent = sum(share.amount for share in shares if share.kind == "mps")
    if percent > 100:
        message = f"the MPS shares of {name} add up to {percent:g} %; they are caps, so slices will wait"
        findings.warn((*loc, "share"), message)


def _may_recut(findings: Findings) -> bool:
    """Return whether the gateway may make MIG instances: as it runs, or as the document says."""
    return findings.document.at(_RECUT) is True if findings.recut is None else findings.recut


def _problems(
    device: SlicedDevice, shares: Sequence[Share], inventory: Inventory, recut: bool
) -> Iterator[str]:
    if device.visible is not None and device.visible.mig_device is not None:
        own = device.visible.share
        if [*shares] != [own]:
            asked = ", ".join(map(str, shares))
            yield f"{device.name} is one MIG device; got {asked}, expected one slice with share: {own}"
        return
    if many := clients_fault(device.name, shares, inventory, device.gpu):
        yield many
    if device.gpu is not None:
        yield from faults(device.name, device.gpu, shares, inventory, recut)


def has_rehearsed(devices: Sequence[DeviceSpec]) -> bool:
    """Return whether any of these devices is rehearsed."""
    return any(each.rehearse for each in devices)
