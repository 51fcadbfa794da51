"""All checks in their order, within three seconds: what may be slow runs beside the others."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Generic, TypeVar

from router.settings import Settings
from router.verbs.doctor import (
    cores,
    cuda,
    limits,
    neighbours,
    network,
    shared_memory,
    sharing,
    software,
    storage,
)
from router.verbs.doctor.finding import Finding
from router.verbs.doctor.machine import Machine, gpu_slices
from serving.profile.device import device_kind, gpu_kind
from serving.runtime.slicing.choice import device_named
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.inventory import Inventory, take_inventory
from serving.values.slice_specs import SliceSpec

WATCH_S: Final = 0.5
"""How long the neighbours are watched."""
ANSWER_S: Final = 1.5
"""What a driver may take to answer."""

_T = TypeVar("_T")


class Background(Generic[_T]):
    """A call in a thread of its own, which the end of the process does not wait for."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self._answers: SimpleQueue[_T] = SimpleQueue()
        Thread(target=lambda: self._answers.put(call()), daemon=True).start()

    def answer(self, wait_s: float, otherwise: _T) -> _T:
        """Return what the call returned, or `otherwise` where it takes longer."""
        try:
            return self._answers.get(timeout=max(wait_s, 0.001))
        except Empty:
            return otherwise


@dataclass(frozen=True, slots=True)
class Start:
    """When the watch of the neighbours began, what cores had done by then, and what this process had."""

    at_s: float
    before: neighbours.CoreTimes
    own_s: float


def start(machine: Machine) -> Start:
    """Begin to watch the neighbours: before the settings are read, which takes a while, too."""
    return Start(time.monotonic(), neighbours.core_times(machine), time.process_time())


def examine(
    settings: Settings | None,
    machine: Machine,
    begun: Start,
    wants_gpus: bool = False,
    inventory: Callable[[], Inventory] = take_inventory,
) -> tuple[Finding, ...]:
    """Return what each check says; without settings, only those that need none. Change nothing.

    `wants_gpus`: the file asks for GPUs, though it gives no settings.
    """
    asked, asked_s = Background(inventory), time.monotonic()
    findings = [*_of_machine(settings, machine)]
    if settings is not None:
        findings += _of_settings(settings, machine)
    left_s = asked_s + ANSWER_S - time.monotonic()
    found = asked.answer(left_s, Inventory(machine.cores, reason=cuda.NO_ANSWER))
    findings += _of_gpus(settings, machine, found, wants_gpus or bool(gpu_slices(settings)))
    if settings is not None:
        findings.append(storage.check_profiles(settings, lambda each: kind_of(each, machine, found)))
    time.sleep(max(begun.at_s + WATCH_S - time.monotonic(), 0))
    own_ticks = (time.process_time() - begun.own_s) * os.sysconf("SC_CLK_TCK")
    return (*findings, neighbours.check_neighbours(begun.before, neighbours.core_times(machine), own_ticks))


def kind_of(each: SliceSpec, machine: Machine, inventory: Inventory) -> str:
    """Return the device kind of a slice as profiles name it; "" where its GPU is not there."""
    try:
        return device_kind(each)
    except ValueError:  # a GPU, whose name only its driver knows
        pass
    try:
        return gpu_kind(device_named(each.device, inventory, machine.environ).gpu.name)
    except SlicingError:
        return ""


def _of_machine(settings: Settings | None, machine: Machine) -> Iterator[Finding]:
    yield software.check_python()
    yield software.check_compiled(machine)
    yield cores.check_cores(machine, settings)
    yield cores.check_quota(machine, settings)
    yield cores.check_nodes(machine, settings)
    yield cores.check_clock(machine)
    yield cores.check_governor(machine)
    yield neighbours.check_load(machine)
    yield neighbours.check_pressure(machine)
    yield limits.check_open_files(machine, settings)
    yield limits.check_processes(machine, settings)
    yield limits.check_locked_memory(machine, settings)
    yield shared_memory.check_memfd()
    yield shared_memory.check_areas(machine, settings)
    yield shared_memory.check_shm(machine, settings)


def _of_settings(settings: Settings, machine: Machine) -> Iterator[Finding]:
    yield network.check_ports(settings)
    yield storage.check_folders(machine, settings)
    kept = settings.cache.redis if settings.cache else None
    meets = settings.cells.redis if settings.cells else None
    for redis in dict.fromkeys(each for each in (kept, meets) if each is not None):
        yield network.check_redis(redis)


def _of_gpus(
    settings: Settings | None, machine: Machine, inventory: Inventory, wanted: bool
) -> Iterator[Finding]:
    yield cuda.check_driver(machine, inventory, wanted)
    yield cuda.check_torch(cuda.torch_build(), inventory, settings)
    if not inventory.gpus and not wanted:
        return
    yield cuda.check_device_files(machine, inventory, wanted)
    yield sharing.check_gpu_slices(machine, inventory, settings)
    yield sharing.check_mig(machine, inventory, settings)
    yield sharing.check_mps(machine, inventory, settings)
