"""The desired state of a gateway: its slices, and the replicas on each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel


@dataclass(frozen=True, slots=True)
class DesiredReplica:
    """A variant of a model. If not `routed`, it is loaded and warm, but gets no batches."""

    model: str
    variant: str
    routed: bool = True


@dataclass(frozen=True, slots=True)
class DesiredSlice:
    """A slice and its replicas, in the order in which they are loaded.

    If the slice has `memory_bytes`, its replicas are loaded on demand, within that limit. Otherwise all of
    them are always loaded.
    """

    spec: SliceSpec
    replicas: tuple[DesiredReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Slices with unique names, and the models that are served, by any replicas."""

    slices: tuple[DesiredSlice, ...]
    models: tuple[ServedModel, ...]

    @classmethod
    def of(cls, slices: Iterable[SliceSpec], models: Iterable[ServedModel]) -> "DesiredState":
        """Return every served variant on every slice of its model, answering variants first."""
        served = tuple(models)
        return cls(tuple(DesiredSlice(spec, _on(spec.name, served)) for spec in slices), served)

    def renamed(self, names: Mapping[str, str]) -> "DesiredState":
        """Return this state with new names for some slices."""
        return replace(
            self,
            slices=tuple(
                replace(each, spec=replace(each.spec, name=names.get(each.spec.name, each.spec.name)))
                for each in self.slices
            ),
        )


def _on(slice_name: str, models: Iterable[ServedModel]) -> tuple[DesiredReplica, ...]:
    here = [model for model in models if slice_name in model.slices]
    pairs = [(model, variant) for model in here for variant in model.variants]
    pairs.sort(key=lambda pair: pair[1] != pair[0].answering_variant)
    return tuple(DesiredReplica(model.name, variant) for model, variant in pairs)


def union(old: DesiredState, new: DesiredState) -> DesiredState:
    """Return all of both states at once, the state between the two in make before break.

    A model of both states is as in `new`.
    """
    before = {each.spec.name: each for each in old.slices}
    after = {each.spec.name: each for each in new.slices}
    slices = tuple(
        DesiredSlice(
            (after.get(name) or before[name]).spec,
            _merged(
                after[name].replicas if name in after else (), before[name].replicas if name in before else ()
            ),
        )
        for name in {**after, **before}
    )
    models = {model.name: model for model in (*old.models, *new.models)}
    return DesiredState(slices, tuple(models.values()))


def _merged(new: Iterable[DesiredReplica], old: Iterable[DesiredReplica]) -> tuple[DesiredReplica, ...]:
    found: dict[tuple[str, str], DesiredReplica] = {}
    for each in (*new, *old):
        key = (each.model, each.variant)
        had = found.get(key)
        found[key] = each if had is None else replace(had, routed=had.routed or each.routed)
    return tuple(found.values())
