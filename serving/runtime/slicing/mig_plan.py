"""Which GPU instances to destroy and which to create where, and the commands that do it. Pure.

An instance occupies memory slices start .. start + size - 1 of eight. A GPU has a few hundred legal layouts,
so all ways are tried: exact, and the same answer on every run. MIG mode itself is never switched: that
resets the GPU under everybody.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.mig_text import Geometry, Instance, Profile

Argv = tuple[str, ...]
_Taken = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """A GPU instance to be: `profile` at the memory slice `start`."""

    profile: Profile
    start: int


@dataclass(frozen=True, slots=True)
class Plan:
    """From the instances of a GPU to those wanted; what is in neither list stays as it is."""

    destroy: tuple[Instance, ...]
    create: tuple[Placement, ...]  # largest first: drivers have refused a 3g after smaller ones (NVIDIA, MIG)

    def commands(self, gpu: int) -> tuple[Argv, ...]:
        """The arguments of each `nvidia-smi` call, in order; each instance gets one compute instance."""
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
) -> Plan:
    """The plan with the fewest destroyed instances after which the GPU has exactly the profiles `want`.

    `want`: names, any order; `busy`: ids of instances that are not destroyed, each to be among those wanted.
    Of equal plans the one that leaves the most placements open. SlicingError where no layout has them all.
    """
    by_name = {profile.name: profile for profile in geometry}
    if unknown := sorted(set(want) - set(by_name)):
        raise SlicingError(f"no MIG profile {', '.join(unknown)}; there are {', '.join(by_name)}")
    for kept in _kept(have, want, frozenset(busy)):
        missing = Counter(want) - Counter(instance.profile for instance in kept)
        profiles = sorted((by_name[name] for name in missing.elements()), key=lambda p: (-p.size, p.name))
        taken = tuple((instance.start, instance.size) for instance in kept)
        used = Counter(instance.profile for instance in kept) + missing
        if any(used[profile.name] > profile.instances_max for profile in geometry):
            continue
        layouts = list(_layouts(profiles, taken))
        if layouts:
            best = max(
                layouts, key=lambda layout: (_open(geometry, taken, layout), [-p.start for p in layout])
            )
            return Plan(tuple(sorted(set(have) - set(kept))), best)
    held = f" beside {len(busy)} busy" if busy else ""
    raise SlicingError(f"no layout has the MIG instances {', '.join(want) or 'none'}{held}")


def _kept(
    have: Sequence[Instance], want: Sequence[str], busy: frozenset[int]
) -> Iterator[tuple[Instance, ...]]:
    """The sets of instances that may stay, largest first."""
    for count in range(len(have), -1, -1):
        for kept in combinations(sorted(have), count):
            extra = Counter(instance.profile for instance in kept) - Counter(want)
            if not extra and busy <= {instance.id for instance in kept}:
                yield kept


def _layouts(profiles: Sequence[Profile], taken: _Taken) -> Iterator[tuple[Placement, ...]]:
    """Every way to place the profiles; of equal ones only in ascending order."""
    if not profiles:
        yield ()
        return
    first, rest = profiles[0], profiles[1:]
    for start in first.starts:
        if _free(first, start, taken):
            for others in _layouts(rest, (*taken, (start, first.size))):
                if not others or others[0].profile != first or others[0].start > start:
                    yield (Placement(first, start), *others)


def _free(profile: Profile, start: int, taken: _Taken) -> bool:
    return all(start + profile.size <= other or other + size <= start for other, size in taken)


def _open(geometry: Geometry, taken: _Taken, layout: tuple[Placement, ...]) -> int:
    """What could still be created, weighted by size: 1g in a corner leaves room for 3g and 4g."""
    full = taken + tuple((each.start, each.profile.size) for each in layout)
    return sum(
        profile.size for profile in geometry for start in profile.starts if _free(profile, start, full)
    )
