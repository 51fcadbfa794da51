"""Where the checks look: the kernel's files, the environment, and what the settings file asks of GPUs."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from router.settings import Settings, SettingsError
from router.settings.machine.cgroups import CGROUPS, PROC, lines
from router.settings.machine.slices import usable_cores
from router.settings.values.document import read_document
from serving.values.slice_specs import SliceSpec

MIG, MPS = frozenset({"mig"}), frozenset({"mps", "sm"})


@dataclass(frozen=True, slots=True)
class Machine:
    """The roots of the kernel's files, and what this process is given.

    `cores`: those that it may use; `may`: whether it may read, write or execute a file, as os.access says.
    """

    proc: Path = PROC
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    cgroups: Path = CGROUPS
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cores: tuple[int, ...] = field(default_factory=usable_cores)
    may: Callable[[Path, int], bool] = os.access


def text(file: Path) -> str:
    """Return the text of a small file; "" if it cannot be read."""
    return "\n".join(lines(file)).strip()


def cpu_slices(settings: Settings | None) -> tuple[SliceSpec, ...]:
    """Return the slices that compute on cores of this machine."""
    here = [each for each in settings.slices if not each.node] if settings else []
    return tuple(each for each in here if each.device == "cpu")


def gpu_slices(settings: Settings | None) -> tuple[SliceSpec, ...]:
    """Return the slices that need a GPU of this machine: not those on rehearsed devices."""
    asked = settings.slices if settings else ()
    return tuple(each for each in asked if each.device != "cpu" and not (each.rehearsed or each.node))


def asks_for_gpus(path: Path) -> bool:
    """Return whether a file that cannot be used asks for GPUs of this machine, as far as it can be read."""
    try:
        document = read_document(path)
    except SettingsError:
        return False
    asked, devices = document.at(("slices",)), document.at(("devices",))
    rehearsed = {each.get("name") for each in _mappings(devices) if each.get("rehearse") is True}
    here = [each for each in _mappings(asked) if "node" not in each]
    return any("device" in each and each["device"] not in rehearsed for each in here)


def _mappings(entries: object) -> list[dict[str, object]]:
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def of_kinds(slices: Sequence[SliceSpec], kinds: frozenset[str]) -> list[SliceSpec]:
    """Return the slices with these kinds of shares."""
    return [each for each in slices if each.share.kind in kinds]
