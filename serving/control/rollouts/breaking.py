"""GPUs that cannot have what they have and what they are to have at once: these are drained in between.

Make before break is the rule. A GPU has one kind of share, and its MIG instances must fit beside each other.
Where a change breaks this, the way leads through states without the GPU's old slices. GPUs follow one after
the other. A model that would be on no slice meanwhile is loaded on another slice of the same kind of GPU.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState, union
from serving.policy.placement.terms.geometry import arrangements, known_geometry
from serving.policy.placement.terms.mps import CLIENTS_MAX
from serving.values.slice_specs import SliceSpec


def way(old: DesiredState, new: DesiredState, by: Sequence[DesiredState] = ()) -> tuple[DesiredState, ...]:
    """Return the states to reach one after the other from `old` to `new`, without `new` itself.

    `by`: states that a plan has chosen; what cannot be at once is taken apart there too.
    """
    if not by:
        return _between(old, new) or (union(old, new),)
    states: list[DesiredState] = []
    for each in (*by, new):
        states += [*_between(old, each), each]
        old = each
    return tuple(states[:-1])


def contested(old: DesiredState, new: DesiredState) -> tuple[str, ...]:
    """Return the GPUs that cannot have the slices of both states at once, by name.

    A slice without a kind is of cores, or of a device that is not known.
    """
    there: dict[str, list[SliceSpec]] = {}
    had = {each.spec.name: each.spec for each in old.slices}
    for spec in {**had, **{each.spec.name: each.spec for each in new.slices}}.values():
        if spec.kind:
            there.setdefault(spec.device, []).append(spec)
    coming = {each.spec.device for each in new.slices if each.spec.name not in had}
    stay = {each.spec.name for each in new.slices}
    leaving = {spec.device for name, spec in had.items() if name not in stay}
    return tuple(sorted(device for device in coming & leaving & {*there} if not _fit(there[device])))


def _between(old: DesiredState, new: DesiredState) -> tuple[DesiredState, ...]:
    """Return the states on the way, () where all that is new can be made before anything is removed."""
    devices = contested(old, new)
    if not devices:
        return ()
    before = {each.spec.name for each in old.slices}
    after = {each.spec.name for each in new.slices}
    both = union(old, new)
    late = [each for each in both.slices if each.spec.device in devices and each.spec.name not in before]
    here = _without(both, {each.spec.name for each in late})
    states = [here]
    for device in devices:
        leaving = {each.spec.name for each in here.slices if each.spec.device == device} - after
        bare = _without(here, leaving)
        drained = _housed(bare, old)
        if drained != bare:  # what stands in is loaded first
            states.append(replace(drained, slices=(*drained.slices, *_named(here, leaving))))
        states.append(drained)
        coming = tuple(each for each in late if each.spec.device == device)
        states.append(_housed(replace(drained, slices=(*drained.slices, *coming)), old))
        here = replace(bare, slices=(*bare.slices, *coming))
    return tuple(states)


def _without(state: DesiredState, names: Collection[str]) -> DesiredState:
    return replace(state, slices=tuple(each for each in state.slices if each.spec.name not in names))


def _named(state: DesiredState, names: Collection[str]) -> tuple[DesiredSlice, ...]:
    return tuple(each for each in state.slices if each.spec.name in names)


def _housed(state: DesiredState, before: DesiredState) -> DesiredState:
    """Return the state with a place for each model that has none there and had one in `before`."""
    slices = {each.spec.name: each for each in state.slices}
    for model in state.models:
        there = _on(state.slices, model.name)
        had = _on(before.slices, model.name)
        if there or not had:
            continue
        kinds = {each.spec.kind for each in had}
        free = [each for each in slices.values() if each.spec.kind in kinds and not each.spec.memory_bytes]
        if free:
            chosen = min(free, key=lambda each: (len(each.replicas), each.spec.name))
            more = DesiredReplica(model.name, model.answering_variant)
            slices[chosen.spec.name] = replace(chosen, replicas=(*chosen.replicas, more))
    return replace(state, slices=tuple(slices.values()))


def _on(slices: Iterable[DesiredSlice], model: str) -> list[DesiredSlice]:
    """Return the slices that answer requests for a model."""
    return [each for each in slices if any(one.model == model and one.routed for one in each.replicas)]


def _fit(specs: Sequence[SliceSpec]) -> bool:
    """Return whether a GPU can have these slices at once.

    Static partitions count as if they could not, as only a GPU's driver tells how many chunks it has. So do
    MIG profiles that the tables do not have.
    """
    kinds = {spec.share.kind for spec in specs}
    if len(kinds) > 1 or kinds == {"sm"}:
        return False
    if kinds == {"mps"}:
        return len(specs) <= CLIENTS_MAX
    if kinds != {"mig"}:
        return True
    geometry = known_geometry(specs[0].kind) or ()
    instances = {spec.instance or spec.name: spec.share.profile for spec in specs}
    size = {profile.name: profile.size for profile in geometry}
    if any(profile not in size for profile in instances.values()):
        return False
    room = max(each.starts[-1] + each.size for each in geometry)
    if sum(size[profile] for profile in instances.values()) > room:
        return False
    return bool(arrangements(geometry, [*instances.values()]))
