"""What another penstock.yaml serves otherwise, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from router.settings import Settings
from serving.objectives import Needs
from serving.specs import ServedModel, SliceSpec

UNSTATED = "none"


def differences(old: Settings, new: Settings) -> Iterator[str]:
    """What of the new file is served otherwise than the old one said, a sentence each."""
    if _unpriced(old.slices) != _unpriced(new.slices):
        yield f"slices are {', '.join(each.name for each in new.slices)}"
    prices = {each.name: each.price for each in old.slices}
    for each in new.slices:
        if each.price != prices.get(each.name, each.price):
            yield f"{each.name}'s price {prices[each.name]:g} -> {each.price:g}"
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


def _unpriced(slices: Sequence[SliceSpec]) -> list[SliceSpec]:
    return [replace(each, price=0.0) for each in slices]


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
    for key, name in (
        ("selection", "selection"),
        ("batching", "batching"),
        ("cache", "cache"),
        ("domains_min", "domains"),
        ("spec", "model.yaml"),
    ):
        if getattr(old, key) != getattr(new, key):
            yield name


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
    for key in ("percentile", "accuracy_min", "tolerance", "cost_max"):
        was, now = getattr(old, key), getattr(new, key)
        if was != now:
            yield f"{key} {_stated(was)} -> {_stated(now)}"
    if old.optimize != new.optimize:
        yield f"optimize {old.optimize or UNSTATED} -> {new.optimize or UNSTATED}"


def _stated(value: float | None, unit: float = 1) -> str:
    return UNSTATED if value is None else f"{value / unit:.10g}"
