"""A planner that moves what cannot be where it is to the first slice with room."""

from collections.abc import Collection
from dataclasses import replace

from serving.control.state.desired import DesiredReplica, DesiredSlice
from serving.simulation.governed.planning import NONE, Facts, VirtualPlan, plain_names
from serving.values.slice_specs import SliceSpec


class FirstFit:
    """Moves what cannot be where it is to the first slice, in their order, that can have it and has room.

    Slices have room for `replicas_max`. What has no place is left out; its model stays, without replicas.
    """

    from_rest = False

    def __init__(self, slices: Collection[SliceSpec], replicas_max: int) -> None:
        self._slices = slices
        self._replicas_max = replicas_max

    def plan(self, facts: Facts) -> VirtualPlan | str:
        """See `Planner`."""
        there = {
            spec: dict[tuple[str, str], DesiredReplica]()
            for spec in self._slices
            if spec.device not in facts.lost
        }
        moved: list[DesiredReplica] = []
        for each in plain_names(facts.standing).slices:
            for replica in each.replicas:
                if each.spec in there and (each.spec.device, replica.model) not in facts.failing:
                    there[each.spec][replica.model, replica.variant] = replica
                else:
                    moved.append(replica)
        for replica in moved:
            key = (replica.model, replica.variant)
            for spec, here in there.items():
                can = (spec.device, replica.model) not in facts.failing and key not in here
                if can and len(here) < self._replicas_max:
                    here[key] = replica
                    break
        slices = tuple(DesiredSlice(spec, tuple(here.values())) for spec, here in there.items() if here)
        if not moved:
            return NONE
        return VirtualPlan(replace(facts.standing, slices=slices))
