"""What another penstock.yaml serves otherwise, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from router.settings import Settings
from router.settings.served.tenants import rate_text
from serving.values.objectives import Needs, ReplicaSpec, ScalingSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec, ServedModel, TenantSpec, guards_of

UNSTATED = "none"


def differences(old: Settings, new: Settings) -> Iterator[str]:
    """Yield a sentence on each thing that the new file serves otherwise than the old file."""
    if _shares(old.slices) != _shares(new.slices):
        yield f"slices are {', '.join(each.name for each in new.slices)}"
    yield from _terms_said(old.slices, new.slices)
    yield from _scaling_said(old.scaling, new.scaling)
    yield from _rates_said(old.tenants, new.tenants)
    if old.placement != new.placement:
        yield f"placement replan {old.placement.replan} -> {new.placement.replan}"
    tiers = [*_tiers_said(old.tiers, new.tiers)]
    yield from tiers
    before = {model.name: model for model in old.models}
    after = {model.name: model for model in new.models}
    for name in before.keys() - after.keys():
        yield f"{name} is removed"
    for name, model in after.items():
        was = before.get(name)
        if was is None:
            yield f"{name} is added"
        elif said := [each for each in _said(was, model) if each not in tiers]:
            yield f"{name}: {', '.join(said)}"


def _shares(slices: Sequence[SliceSpec]) -> list[SliceSpec]:
    return [replace(each, price=0.0, spot=False) for each in slices]


def _terms_said(old: Sequence[SliceSpec], new: Sequence[SliceSpec]) -> Iterator[str]:
    """Yield the changed terms of the slices that stay."""
    before = {each.name: each for each in old}
    for each in new:
        was = before.get(each.name, each)
        if each.price != was.price:
            yield f"{each.name}'s price {was.price:g} -> {each.price:g}"
        if each.spot != was.spot:
            yield f"{each.name} is {'spot' if each.spot else 'on demand'} now"


def _scaling_said(old: ScalingSpec, new: ScalingSpec) -> Iterator[str]:
    if old.policy != new.policy:
        yield f"scaling policy {old.policy} -> {new.policy}"
    if old.target != new.target:
        yield f"scaling target {_stated(old.target)} -> {_stated(new.target)}"
    if old.cost_max != new.cost_max:
        was, now = (None if each == inf else each for each in (old.cost_max, new.cost_max))
        yield f"scaling cost_max_per_hour {_stated(was)} -> {_stated(now)}"


def _rates_said(old: Sequence[TenantSpec], new: Sequence[TenantSpec]) -> Iterator[str]:
    before = {each.name: each.rate for each in old}
    for each in new:
        if each.rate != before.get(each.name):
            yield f"tenant {each.name}: rate {rate_text(before.get(each.name))} -> {rate_text(each.rate)}"


def _said(old: ServedModel, new: ServedModel) -> Iterator[str]:
    if old.slo_us != new.slo_us:
        yield f"slo_ms {old.slo_us / 1000:g} -> {new.slo_us / 1000:g}"
    for key in ("variants", "slices"):
        if getattr(old, key) != getattr(new, key):
            yield f"{key} {', '.join(getattr(new, key))}"
    if old.answering_variant != new.answering_variant and not new.needs.chooses:
        yield f"{old.answering_variant} -> {new.answering_variant} answers"
    yield from _needs_said(old.needs, new.needs)
    yield from _tiers_said(old.tiers, new.tiers)
    if old.replicas != new.replicas:
        yield f"replicas {_replicas_text(old.replicas)} -> {_replicas_text(new.replicas)}"
    if old.isolate != new.isolate:
        yield f"isolate {old.isolate} -> {new.isolate}"
    for key, name in (
        ("selection", "selection"),
        ("batching", "batching"),
        ("cache", "cache"),
        ("domains_min", "domains"),
        ("required", "required"),
    ):
        if getattr(old, key) != getattr(new, key):
            yield name
    if guards_of(old.spec) != guards_of(new.spec):
        yield "guards"
    if _unguarded(old.spec) != _unguarded(new.spec):
        yield "model.yaml"


def _unguarded(spec: ModelSpec) -> ModelSpec:
    return replace(spec, outputs=tuple(replace(output, guard=None) for output in spec.outputs))


def _tiers_said(old: Sequence[Needs], new: Sequence[Needs]) -> Iterator[str]:
    before = {each.tier: each for each in old}
    after = {each.tier: each for each in new}
    yield from (f"tier {tier} is removed" for tier in before if tier not in after)
    for tier, needs in after.items():
        if tier not in before:
            yield f"tier {tier} is added"
        else:
            yield from (f"tier {tier}'s {each}" for each in _needs_said(before[tier], needs))


def _needs_said(old: Needs, new: Needs) -> Iterator[str]:
    if old.slo_us != new.slo_us:
        yield f"slo_ms {_stated(old.slo_us, 1000)} -> {_stated(new.slo_us, 1000)}"
    for key in ("slo_rows", "percentile", "accuracy_min", "tolerance", "cost_max"):
        was, now = getattr(old, key), getattr(new, key)
        if was != now:
            yield f"{key} {_stated(was)} -> {_stated(now)}"
    if old.optimize != new.optimize:
        yield f"optimize {old.optimize or UNSTATED} -> {new.optimize or UNSTATED}"


def _replicas_text(spec: ReplicaSpec | None) -> str:
    """Return the replicas as text, for example `1 to 4`, `2`, `1 to one on each slice`."""
    if spec is None:
        return "one on each slice"
    most = "one on each slice" if spec.most is None else f"{spec.most}"
    count = f"{spec.least}" if spec.least == spec.most else f"{spec.least} to {most}"
    return f"{count}, priority {spec.priority}" if spec.priority else count


def _stated(value: float | None, unit: float = 1) -> str:
    return UNSTATED if value is None else f"{value / unit:.10g}"
