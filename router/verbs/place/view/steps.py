"""The steps of a transition, one for each slice or replica that it touches, with the models' names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from serving.policy.placement.terms.plan import PlacedReplica, Placement
from serving.policy.transition.steps import (
    Address,
    Create,
    Destroy,
    Drain,
    LoadStep,
    RouteStep,
    Transition,
    UnloadStep,
)
from serving.policy.transition.steps import Step as Done
from serving.values.slice_specs import Share

CREATE, LOAD, ROUTE, RESIZE, STOP, DRAIN, UNLOAD, DESTROY = (
    "create", "load", "route", "resize", "stop", "drain", "unload", "destroy",
)  # fmt: skip
"""What is done. Route and stop: requests go there from now on, or no more; resize: in other batches."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """What is done to a slice of a device, or to a replica on it (`model`, `variant`)."""

    action: str
    device: str
    share: Share
    start: int = -1
    model: str = ""
    variant: str = ""


def steps(old: Placement, transition: Transition) -> tuple[tuple[ShownStep, ...], ...]:
    """Return the steps in the transition's groups. `old`: the placement that it begins with."""
    slices, residents = _named(old, transition)
    return tuple(
        tuple(step for done in group for step in _steps(done, slices, residents))
        for group in transition.groups
    )


_Slices = Mapping[tuple[str, int], tuple[Share, int]]
_Residents = Mapping[Address, PlacedReplica]


def _named(old: Placement, transition: Transition) -> tuple[_Slices, _Residents]:
    """Return the slices and replicas by their numbers. No number is used twice."""
    slices = {
        (device, number): (slot.share, slot.start)
        for device, slots in old.items()
        for number, slot in enumerate(slots)
    }
    residents = {
        Address(device, number, place): resident
        for device, slots in old.items()
        for number, slot in enumerate(slots)
        for place, resident in enumerate(slot.residents)
    }
    for step in transition.steps:
        if isinstance(step, Create):
            slices[step.device, step.slice] = (step.share, step.start)
        elif isinstance(step, LoadStep):
            residents[step.address] = step.resident
    return slices, residents


def _steps(done: Done, slices: _Slices, residents: _Residents) -> Iterator[ShownStep]:
    if isinstance(done, Create | Destroy):
        action = CREATE if isinstance(done, Create) else DESTROY
        yield ShownStep(action, done.device, done.share, done.start)
        return
    for action, address in _actions(done):
        share, start = slices[address.device, address.slice]
        resident = residents[address]
        yield ShownStep(action, address.device, share, start, resident.model, resident.option.variant)


def _actions(done: LoadStep | RouteStep | Drain | UnloadStep) -> Iterator[tuple[str, Address]]:
    """Yield what is done to which replicas."""
    if isinstance(done, RouteStep):
        yield from ((ROUTE, each) for each in done.up)
        yield from ((STOP, each) for each in done.down)
        yield from ((RESIZE, each.address) for each in done.sized)
    else:
        yield {LoadStep: LOAD, Drain: DRAIN, UnloadStep: UNLOAD}[type(done)], done.address
