"""The states of a transition, one after each group of steps that changes something."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from serving.control.state.desired import DesiredReplica, DesiredSlice
from serving.policy.placement.terms.plan import Placement
from serving.policy.transition.state import State, TransitionReplica
from serving.policy.transition.steps import Create, Transition
from serving.values.slice_specs import SliceSpec

Specs = Mapping[str, Sequence[SliceSpec]]
"""The slices of each device by its name, in the order of a placement's slots."""


@dataclass(frozen=True, slots=True)
class RolloutSteps:
    """`states`: the desired states one after the other; at least one, and the last is to stay.

    `placement` and `specs` are the result of the rollout, and the start of the next transition.
    """

    states: tuple[tuple[DesiredSlice, ...], ...]
    placement: Placement
    specs: Specs


def rollout_steps(
    old: Placement, specs: Specs, transition: Transition, spec_of: Callable[[Create, str], SliceSpec]
) -> RolloutSteps:
    """Return the states of the way from `old`, with its slices `specs`.

    `spec_of` returns the slice to create with that name. No other slice has had the name before or on the
    way, except one of the same share in the same place.
    """
    state = State.of({device: old[device] for device in sorted(old)})
    there = {
        (device, number): spec for device, several in specs.items() for number, spec in enumerate(several)
    }
    taken = {spec.name for spec in there.values()}
    states = [_desired(state, there)]
    for group in transition.groups:
        for step in group:
            if isinstance(step, Create):
                there[step.device, step.slice] = spec_of(step, _named(step, taken))
            state = state.apply(step)
        desired = _desired(state, there)
        if desired != states[-1]:  # else a wait, or other batches for replicas that stay
            states.append(desired)
    final = {
        device: tuple(there[device, each.number] for each in slices)
        for device, slices in state.devices.items()
    }
    placement = {device: tuple(each.routed for each in slices) for device, slices in state.devices.items()}
    return RolloutSteps(tuple(states[1:] or states), placement, final)


def _named(created: Create, taken: set[str]) -> str:
    """Return a name for a slice: from its place, if it has one; else a free name, which is then taken."""
    if created.start >= 0:
        return f"{created.device}/{created.share}@{created.start}"
    name = next(name for number in count() if (name := f"{created.device}/{number}") not in taken)
    taken.add(name)
    return name


def _desired(state: State, specs: Mapping[tuple[str, int], SliceSpec]) -> tuple[DesiredSlice, ...]:
    return tuple(
        DesiredSlice(specs[device, each.number], _replicas(each.replicas))
        for device, slices in sorted(state.devices.items())
        for each in slices
    )


def _replicas(there: Sequence[TransitionReplica]) -> tuple[DesiredReplica, ...]:
    """Return one replica of each variant: a worker that has a variant twice computes no more with it."""
    routed: dict[tuple[str, str], bool] = {}
    for each in there:
        key = (each.resident.model, each.resident.option.variant)
        routed[key] = routed.get(key, False) or each.routed
    return tuple(DesiredReplica(*key, takes) for key, takes in routed.items())
