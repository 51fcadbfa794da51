"""Which GPU instances to destroy and which to create where, and the commands that do it. Pure.

All layouts of what is wanted are looked at (`serving/policy/placement/terms/geometry.py`): exact, and the
same answer on every run. MIG mode itself is never switched: that resets the GPU under everybody.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from serving.policy.placement.terms.geometry import Geometry, MigProfile, arrangements, multiset
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.mig.mig_text import Instance

Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigPlacement:
    """A GPU instance to be: `profile` at the memory slice `start`."""

    profile: MigProfile
    start: int


@dataclass(frozen=True, slots=True)
class MigPlan:
    """From the instances of a GPU to those wanted; what is in neither list stays as it is."""

    destroy: tuple[Instance, ...]
    create: tuple[
        MigPlacement, ...
    ]  # largest first: drivers have refused a 3g after smaller ones (NVIDIA, MIG)

    def commands(self, gpu: int) -> tuple[Argv, ...]:
        """Return the arguments of each `nvidia-smi` call, in order; each instance gets one compute
        instance."""
        smi = ("nvidia-smi", "mig", "-i", str(gpu))
        calls: list[Argv] = []
        for instance in self.destroy:
            calls.append((*smi, "-dci", "-gi", str(instance.id)))
            calls.append((*smi, "-dgi", "-gi", str(instance.id)))
        if self.create:
            where = ",".join(f"{each.profile.id}:{each.start}" for each in self.create)
            calls.append((*smi, "-cgi", where, "-C"))
        return tuple(calls)


def plan(
    geometry: Geometry, have: Sequence[Instance], want: Sequence[str], busy: Collection[int] = ()
) -> MigPlan:
    """Return the plan with the fewest destroyed instances after which the GPU has exactly the profiles
    `want`.

    `want`: names, any order; `busy`: ids of instances that are not destroyed, each to be among those wanted.
    Of equal plans the one that leaves the most placements open. SlicingError where no layout has them all.
    """
    by_name = {profile.name: profile for profile in geometry}
    if unknown := sorted(set(want) - set(by_name)):
        raise SlicingError(f"no MIG profile {', '.join(unknown)}; there are {', '.join(by_name)}")
    there = {(each.start, each.profile) for each in have}
    staying = {(each.start, each.profile) for each in have if each.id in busy}
    legal = [layout for layout in arrangements(geometry, want) if staying.issubset(layout)]
    if not legal or not set(busy) <= {each.id for each in have}:
        held = f" beside {len(busy)} busy" if busy else ""
        raise SlicingError(f"no layout has the MIG instances {', '.join(want) or 'none'}{held}")
    best = max(legal, key=lambda layout: len(there.intersection(layout)))
    destroy = tuple(sorted(each for each in have if (each.start, each.profile) not in best))
    rank = {name: place for place, name in enumerate(multiset(geometry, by_name))}
    create = sorted(set(best) - there, key=lambda each: (rank[each[1]], each[0]))
    return MigPlan(destroy, tuple(MigPlacement(by_name[name], start) for start, name in create))
