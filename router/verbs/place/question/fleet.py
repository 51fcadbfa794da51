"""The devices that a placement may use, as pools: those of `devices:`, else what this machine has."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from router.settings.machine.memory import usable_memory_bytes
from router.verbs.simulate.traffic import SimulateRequestError
from serving.policy.placement.terms.geometry import Geometry, known_geometry, plain
from serving.policy.placement.terms.mps import CLIENTS_MAX
from serving.policy.placement.terms.problem import Instances, Parts, PlacementDevice, PlacementProblem, Pool
from serving.profile.device import device_kind, gpu_kind
from serving.runtime.slicing.choice import index_note, visible_devices
from serving.runtime.slicing.inventory import Gpu, Inventory
from serving.values.slice_specs import DeviceSpec, SliceSpec

CPU = "cpu"
HERE = "this-machine"
"""The failure domain of everything in this machine."""


def this_machine(inventory: Inventory, environ: Mapping[str, str]) -> tuple[list[DeviceSpec], list[str]]:
    """Return (this machine's CPU and GPUs, sentences on what is left out). `environ`: this process's."""
    cpu = DeviceSpec(
        CPU, device_kind(SliceSpec("", ())), "cores", cores=len(inventory.cores),
        memory_bytes=usable_memory_bytes(), domain=HERE,
    )  # fmt: skip
    found = [cpu]
    notes = [note for note in (index_note(inventory, environ),) if note]
    for device in visible_devices(inventory, environ):
        name, kind = device.name, gpu_kind(device.gpu.name)
        if device.mig_device is not None:
            notes.append(f"{name} is left out: it is one MIG device, and only a whole GPU can be divided")
        elif device.gpu.mig and not (device.gpu.geometry or known_geometry(kind)):
            notes.append(f"{name} is left out: it is in MIG mode, and no geometry is known of {kind}")
        else:
            found.append(_gpu_spec(name, kind, device.gpu))
    return found, notes


def _gpu_spec(name: str, kind: str, gpu: Gpu) -> DeviceSpec:
    if gpu.mig:
        return DeviceSpec(name, kind, "mig", domain=HERE)
    return DeviceSpec(name, kind, "mps", memory_bytes=gpu.memory_bytes or 0, domain=HERE)


def geometries(inventory: Inventory) -> dict[str, Geometry]:
    """Return the geometry of each kind of GPU in MIG mode, as its driver lists it, without media profiles.

    The tables in the code are for what the driver does not tell, and for machines that are not here.
    """
    return {gpu_kind(gpu.name): plain(gpu.geometry) for gpu in inventory.gpus if gpu.geometry}


def pools(
    devices: Sequence[DeviceSpec], told: Mapping[str, Geometry] = MappingProxyType({})
) -> tuple[Pool, ...]:
    """Return devices that are alike in kind, division, memory and price as one pool, named after the first.

    `told`: geometries as drivers list them, by kind. If no device has a price, each counts as 1: the cheapest
    placement then has the fewest devices. Raises SimulateRequestError for MIG on a kind with unknown
    geometry.
    """
    alike: dict[tuple[str, str, int, int, float], list[DeviceSpec]] = {}
    for each in devices:
        key = (each.kind, each.divide, each.cores, each.memory_bytes, each.price)
        alike.setdefault(key, []).append(each)
    priced = any(each.price for each in devices)
    return tuple(
        Pool(
            entries[0].name,
            entries[0].kind,
            _division(entries[0], told),
            tuple(PlacementDevice(name, each.domain or name) for each in entries for name in each.names),
            entries[0].price if priced else 1.0,
            entries[0].memory_bytes,
        )
        for entries in alike.values()
    )


def _division(device: DeviceSpec, told: Mapping[str, Geometry]) -> Parts | Instances:
    if device.divide == "mig":
        geometry = told.get(device.kind) or known_geometry(device.kind)
        if geometry is None:
            raise SimulateRequestError(f"{device.name}: no MIG geometry is known of {device.kind}")
        return Instances(geometry)
    if device.divide == "mps":
        return Parts("mps", 100.0, CLIENTS_MAX)
    return Parts(device.divide, float(device.cores) if device.divide == "cores" else 1.0)


def hosted(problem: PlacementProblem, devices: Sequence[DeviceSpec], cores: int) -> Mapping[str, str]:
    """Return the devices on which a gateway of this machine can have slices, and what `slices:` calls each.

    These are its CPU ("cpu"), its GPUs, and rehearsed devices among `devices`.
    """
    own = own_device(problem, cores)
    found = {} if own is None else {own: CPU}
    rehearsed = {name for each in devices if each.rehearse for name in each.names}
    return found | {
        device: device
        for device, pool in problem.pool_of.items()
        if pool.kind.startswith("gpu-") and (device.startswith("cuda:") or device in rehearsed)
    }


def own_device(problem: PlacementProblem, cores: int) -> str | None:
    """Return the device that a settings file of this machine describes. It is the first of its CPU's kind
    that is divided into no more cores than it has. None if the fleet is of other machines."""
    here = device_kind(SliceSpec("", ()))
    for pool in problem.pools:
        division = pool.division
        own = pool.kind == here and isinstance(division, Parts) and division.kind == "cores"
        if own and isinstance(division, Parts) and division.total <= cores and pool.devices:
            return pool.devices[0].name
    return None
