"""A fleet in the middle of a transition: what is there on each device, and what a step makes of it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot
from serving.policy.transition.steps import (
    Address,
    Create,
    Destroy,
    Drain,
    LoadStep,
    RouteStep,
    Step,
    UnloadStep,
)
from serving.values.slice_specs import Share


@dataclass(frozen=True, slots=True)
class TransitionReplica:
    """Loaded, so it holds memory. `routed`: it gets batches."""

    number: int
    resident: PlacedReplica
    routed: bool = False


@dataclass(frozen=True, slots=True)
class TransitionSlice:
    """A slice that exists, in ascending order of its replicas' numbers."""

    number: int
    share: Share
    start: int = -1
    replicas: tuple[TransitionReplica, ...] = ()

    @property
    def routed(self) -> Slot:
        """What computes on it."""
        residents = tuple(each.resident for each in self.replicas if each.routed)
        return Slot(self.share, residents, self.start)

    @property
    def memory_bytes(self) -> int:
        """Of all that is loaded."""
        return sum(each.resident.option.memory_bytes for each in self.replicas)


Slices = tuple[TransitionSlice, ...]


@dataclass(frozen=True, slots=True)
class State:
    """The slices by device, in ascending order of their numbers; devices that have none are left out."""

    devices: Mapping[str, Slices]

    @classmethod
    def of(cls, placement: Placement) -> "State":
        """Return a placement at rest."""
        return cls({device: at_rest(slots) for device, slots in placement.items() if slots})

    @property
    def routed(self) -> Placement:
        """What computes."""
        slots = {
            device: tuple(slot for slot in (each.routed for each in slices) if slot.residents)
            for device, slices in self.devices.items()
        }
        return {device: each for device, each in slots.items() if each}

    @property
    def changing(self) -> tuple[str, ...]:
        """The devices on which a replica is loaded and not routed: it comes or goes."""
        return tuple(
            device
            for device, slices in sorted(self.devices.items())
            if any(not replica.routed for each in slices for replica in each.replicas)
        )

    def apply(self, step: Step) -> "State":
        """Return the state after the step. Raises ValueError if the step cannot be carried out from here."""
        devices = dict(self.devices)
        if isinstance(step, RouteStep):
            _reroute(devices, step)
        else:
            (device,) = step.devices
            slices = _applied(devices.pop(device, ()), step)
            if slices:
                devices[device] = slices
        return State(devices)


def at_rest(slots: tuple[Slot, ...]) -> Slices:
    """Return the slices with all their residents routed, numbered in order."""
    return tuple(
        TransitionSlice(number, slot.share, slot.start, replicas(slot.residents))
        for number, slot in enumerate(slots)
    )


def replicas(residents: Sequence[PlacedReplica]) -> tuple[TransitionReplica, ...]:
    """Return the residents as routed replicas, numbered in order."""
    return tuple(TransitionReplica(number, each, True) for number, each in enumerate(residents))


def _applied(slices: Slices, step: Create | LoadStep | Drain | UnloadStep | Destroy) -> Slices:
    """Return the slices of one device after the step."""
    if isinstance(step, Create):
        if any(each.number == step.slice for each in slices):
            raise ValueError(f"{step}: it is there")
        created = TransitionSlice(step.slice, step.share, step.start)
        return tuple(sorted((*slices, created), key=lambda each: each.number))
    if isinstance(step, Destroy):
        gone = _slice(slices, step.slice, step)
        if gone.replicas:
            raise ValueError(f"{step}: {len(gone.replicas)} replicas are loaded there")
        return tuple(each for each in slices if each is not gone)
    if isinstance(step, LoadStep):
        there = _slice(slices, step.address.slice, step)
        if any(each.number == step.address.replica for each in there.replicas):
            raise ValueError(f"{step}: it is loaded")
        return _with(slices, there, (*there.replicas, TransitionReplica(step.address.replica, step.resident)))
    there, replica = _replica(slices, step.address, step)
    if replica.routed:
        raise ValueError(f"{step}: it is routed")
    if isinstance(step, Drain):
        return slices
    if replica.resident != step.resident:
        raise ValueError(f"{step}: {replica.resident.model} is loaded there")
    return _with(slices, there, tuple(each for each in there.replicas if each is not replica))


def _reroute(devices: dict[str, Slices], step: RouteStep) -> None:
    for addresses, routed in ((step.up, True), (step.down, False)):
        for address in addresses:
            slices = devices.get(address.device, ())
            there, replica = _replica(slices, address, step)
            if replica.routed == routed:
                raise ValueError(f"{step}: {address} is {'' if routed else 'not '}routed as it is")
            devices[address.device] = _changed(slices, there, replace(replica, routed=routed))
    for sizing in step.sized:
        slices = devices.get(sizing.address.device, ())
        there, replica = _replica(slices, sizing.address, step)
        if not replica.routed or replica.resident != sizing.before:
            raise ValueError(f"{step}: {sizing.address} is not what it says")
        sized = replace(replica, resident=sizing.after)
        devices[sizing.address.device] = _changed(slices, there, sized)


def _slice(slices: Slices, number: int, step: Step) -> TransitionSlice:
    for each in slices:
        if each.number == number:
            return each
    raise ValueError(f"{step}: there is no such slice")


def _replica(slices: Slices, address: Address, step: Step) -> tuple[TransitionSlice, TransitionReplica]:
    there = _slice(slices, address.slice, step)
    for each in there.replicas:
        if each.number == address.replica:
            return there, each
    raise ValueError(f"{step}: {address} is not loaded")


def _changed(slices: Slices, there: TransitionSlice, replica: TransitionReplica) -> Slices:
    changed = tuple(replica if each.number == replica.number else each for each in there.replicas)
    return _with(slices, there, changed)


def _with(slices: Slices, there: TransitionSlice, replicas: tuple[TransitionReplica, ...]) -> Slices:
    held = replace(there, replicas=tuple(sorted(replicas, key=lambda each: each.number)))
    return tuple(held if each is there else each for each in slices)
