"""Lots: the bundles of a draft by pool and domain, each still to be given a device."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.policy.placement.terms.geometry import place
from serving.policy.placement.terms.moves import Replica, replica
from serving.policy.placement.terms.plan import Bundle, Draft, Slot
from serving.policy.placement.terms.problem import Instances, PlacementDevice, PlacementProblem, Pool

Slots = tuple[Slot, ...]

Content = tuple[str, tuple[Replica, ...]]
"""What a MIG instance is for: (its profile, the replicas on it)."""


@dataclass(frozen=True, slots=True)
class Lot:
    """The bundles of a draft for devices of one pool, in one failure domain or in any (None)."""

    pool: Pool
    domain: str | None
    bundles: tuple[Bundle, ...]

    def admits(self, device: PlacementDevice) -> bool:
        """Return whether a device of the pool is in the lot's domain."""
        return self.domain is None or device.domain == self.domain


class Spot(NamedTuple):
    """A place for slices: a device, or the MIG instance there that begins at memory slice `start`."""

    device: str
    domain: str
    start: int = -1


@dataclass(slots=True)
class KeptBundles:
    """What of a lot stays, and what is to be dealt.

    - `fixed`: (kind, where, what) of what stays.
    - `loose`: the rest by kind, with equal ones in one list.
    - `vacant`: by kind, the spots for the rest, of each kind at least as many.

    Kinds are MIG profiles, or "" for whole bundles.
    """

    fixed: list[tuple[str, Spot, Slots]] = field(default_factory=list)
    vacant: dict[str, list[Spot]] = field(default_factory=lambda: defaultdict(list))
    loose: dict[str, list[list[Slots]]] = field(default_factory=lambda: defaultdict(list))


def lots(problem: PlacementProblem, draft: Draft) -> list[Lot]:
    """Return the bundles that have slots, as lots; lots of one domain come before lots of any.

    Raise ValueError if the problem has no such pool, the pool has too few devices, or none of them can be
    divided so.
    """
    pools = {pool.name: pool for pool in problem.pools}
    found: dict[tuple[str, str | None], list[Bundle]] = defaultdict(list)
    for bundle in draft.bundles:
        if bundle.pool not in pools:
            raise ValueError(f"there is no pool {bundle.pool}")
        if bundle.slots:
            found[bundle.pool, bundle.domain].append(bundle)
    order = sorted(found, key=lambda key: (key[0], key[1] is None, key[1] or ""))
    made = [Lot(pools[pool], domain, tuple(found[pool, domain])) for pool, domain in order]
    _check_counts(made)
    for lot in made:
        _check_instances(lot)
    return made


def content(slot: Slot) -> Content:
    """Return the content of a slot of a MIG pool: its profile and its replicas."""
    if len(slot.residents) == 1:
        return slot.share.label, (replica(slot.residents[0]),)
    return slot.share.label, tuple(sorted(map(replica, slot.residents)))


def models(slots: Sequence[Slot]) -> tuple[str, ...]:
    """Return the models that have a replica in the slots, each once."""
    if len(slots) == 1 and len(slots[0].residents) == 1:
        return (slots[0].residents[0].model,)
    return tuple(dict.fromkeys(each.model for slot in slots for each in slot.residents))


def spread_least(problem: PlacementProblem, made: Sequence[Lot]) -> dict[str, int]:
    """Return the number of failure domains for each model that asks for more than one.

    It is at most the number of domains that there are, and of separate places that the model has.
    """
    asked = {each.model: each.domains_min for each in problem.demands if each.domains_min > 1}
    places: Counter[str] = Counter()
    for lot in made if asked else ():
        alone = isinstance(lot.pool.division, Instances)
        for bundle in lot.bundles:
            for part in [(slot,) for slot in bundle.slots] if alone else [bundle.slots]:
                places.update(models(part))
    most = len({device.domain for lot in made for device in lot.pool.devices})
    return {model: min(least, places[model], most) for model, least in asked.items() if places[model]}


def _check_counts(made: Iterable[Lot]) -> None:
    for pool in {lot.pool.name: lot.pool for lot in made}.values():
        there = Counter(device.domain for device in pool.devices)
        asked = {lot.domain: len(lot.bundles) for lot in made if lot.pool is pool}
        for domain, count in asked.items():
            if domain is not None and count > there[domain]:
                raise ValueError(f"{count} bundles for {there[domain]} devices of {pool.name} in {domain}")
        if sum(asked.values()) > len(pool.devices):
            raise ValueError(f"{sum(asked.values())} bundles for {len(pool.devices)} devices of {pool.name}")


def _check_instances(lot: Lot) -> None:
    if not isinstance(lot.pool.division, Instances):
        return
    geometry = lot.pool.division.geometry
    known = {profile.name for profile in geometry}
    for labels in dict.fromkeys(tuple(slot.share.label for slot in bundle.slots) for bundle in lot.bundles):
        if not known.issuperset(labels) or place(geometry, labels) is None:
            raise ValueError(f"no device of {lot.pool.name} holds {', '.join(labels)}")
