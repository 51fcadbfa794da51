"""The controller's knowledge of scaled models, as the inputs of policies, allotment and slow plan."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from serving.control.scaling.ranking import RankedSlice
from serving.control.scaling.scaling_state import ScalingState
from serving.control.scaling.scaling_status import ScalingStatus
from serving.control.scaling.topology import SliceClass, Topology
from serving.control.state.desired import DesiredReplica
from serving.control.state.replicas import ReplicaStatus, SliceRecord, on_slice
from serving.policy.scaling.allotment import Claim
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import View, Wish
from serving.policy.scaling.slow.task import Claimant, SliceKind
from serving.values.objectives import CHEAPEST
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel

ROUTE_US = 1_000  # until a replica that stands by gets batches: one turn of the event loop
NAMED_MAX = 3
MANY = 1 << 20  # more replicas than there are slices

Capacities = Mapping[str, Capacity]
"""Capacities by variant."""


@dataclass(frozen=True, slots=True)
class ModelTopology:
    """Where one model may run: `counts` of slices by class, and what it `carries` on each class."""

    topology: Topology
    counts: Mapping[SliceClass, int]
    carries: Mapping[SliceClass, Capacities]

    def speeds(self) -> dict[SliceClass, float]:
        """Return how fast slices are; 1 if that is unknown.

        The speed is the load that one replica carries on each, over the load that it carries on most of them.
        """
        rates = {
            slice_class: next((each.rate(1) for each in known.values()), 0.0)
            for slice_class, known in self.carries.items()
        }
        known = Counter[float]()
        for slice_class, rate in rates.items():
            known[round(rate, 6)] += self.counts[slice_class] if rate > 0 else 0
        usual = known.most_common(1)[0][0] if known else 0.0
        return {slice_class: rate / usual if rate > 0 else 1.0 for slice_class, rate in rates.items()}

    def usual(self, liked: Iterable[RankedSlice]) -> Capacity | None:
        """Return the capacity of the most accurate variant, on the first of these slices with a profile."""
        carries = (self.carries[self.topology.class_of[each.spec.name]] for each in liked)
        known = next((each for each in carries if each), {})
        return next(iter(known.values()), None)


def assumed(model: ServedModel, scaled: ScalingState, capacities: Capacities) -> str:
    """Return the variant to plan with; "" if none has been measured.

    It is the plan's variant. Without a plan it is the most accurate one, or the fastest if the model
    optimizes cost.
    """
    if scaled.band is not None and scaled.band.variant in capacities:
        return scaled.band.variant
    if model.own.optimize == CHEAPEST:
        return max(capacities, key=lambda name: capacities[name].rate(1), default="")
    return next(iter(capacities), "")


def claim(
    model: ServedModel,
    wish: int,
    liked: Sequence[RankedSlice],
    capacity: Capacity | None,
    held: frozenset[str],
) -> Claim:
    """Return the claim of a model: what it asks for.

    `liked`: slices that it may have. `capacity`: the capacity on many of them. `held`: slices that it has. A
    wish counts replicas on usual slices. On slower slices the model needs more, but no more than it may have.
    On faster ones it needs fewer, but no fewer than it must have.
    """
    least, most = bounds(model, MANY)
    wish = min(max(wish, least), most)
    worth, there = [0.0], 0.0
    for each in liked:
        if len(worth) > most or (there >= wish - 1e-6 and len(worth) > least):
            break
        there += each.speed
        worth.append(capacity.rate(there) if capacity is not None else there)
    lacking = min(max(round(wish - there), 0), most + 1 - len(worth))
    worth += [worth[-1]] * lacking  # it asks for more than there are, so that the claim says so
    top = worth[-1] or 1.0
    places = tuple(each.spec.name for each in liked)
    weighed = tuple(model.batching.weight * each / top for each in worth)
    wish, least = len(worth) - 1, min(least, len(worth) - 1)
    return Claim(model.name, least, wish, weighed, places, held, rank(model))


def bounds(model: ServedModel, there: int) -> tuple[int, int]:
    """Return the fewest and the most replicas that a model should have, if there are enough slices."""
    spec = model.replicas
    least = spec.least if spec is not None else 0
    return least, max(spec.most if spec is not None and spec.most is not None else there, least)


def rank(model: ServedModel) -> int:
    """Return its priority among scaled models."""
    return model.replicas.priority if model.replicas is not None else 0


def view(
    model: ServedModel,
    scaled: ScalingState,
    ground: ModelTopology,
    slices: Mapping[str, SliceRecord],
    now_us: int,
) -> View:
    """Return what a model's policy sees."""
    speed, slice_class = ground.speeds(), ground.topology.class_of
    own = {name: speed.get(slice_class[name], 1.0) if name in slice_class else 1.0 for name in scaled.slices}
    ready = sum(pace for name, pace in own.items() if is_ready(slices, name, model.name))
    given = sum(own.values())
    usual = next((each for each, pace in speed.items() if abs(pace - 1.0) < 1e-6), None)
    capacities = ground.carries[usual] if usual is not None else {}
    least, most = bounds(model, round(sum(speed[each] * count for each, count in ground.counts.items())))
    ready_count = round(ready)
    return View(
        now_us=now_us,
        period_us=max(now_us - scaled.decided_us, 1),
        seen=scaled.seen,
        before=scaled.before,
        ready=ready_count,
        coming=max(round(given) - ready_count, 0),
        least=least,
        most=most,
        slo_us=model.slo_us,
        start_us=scaled.start_us,
        variant=assumed(model, scaled, capacities),
        capacities=capacities,
        band=scaled.band if scaled.band is not None and scaled.band.until_us > now_us else None,
        percentile=model.own.percentile,
    )


def load_us(slices: Mapping[str, SliceRecord], scaled: ScalingState, model: str) -> int:
    """Return how long a request waits for a model on no slice: hardly at all if it stands by."""
    hot = any(
        one.status in (ReplicaStatus.STANDING, ReplicaStatus.READY)
        for name in scaled.standby
        for _, one in on_slice(slices, name, model)
    )
    return ROUTE_US if hot else scaled.start_us


def in_order(
    replicas: Sequence[DesiredReplica], models: Mapping[str, ScalingState]
) -> tuple[DesiredReplica, ...]:
    """Return the replicas in the order in which models want their variants loaded, without unwanted ones."""
    order = {
        (model, variant): place
        for model, scaled in models.items()
        for place, variant in enumerate(scaled.wish.variants)
    }
    some = {model for model, _ in order}
    found = [one for one in replicas if one.model not in some or (one.model, one.variant) in order]
    return tuple(sorted(found, key=lambda one: order.get((one.model, one.variant), 0)))


def handed(wish: Wish) -> tuple[int, int, tuple[str, ...], bool]:
    """Return the part of a wish that decides on slices."""
    return wish.count, wish.standby, wish.variants, wish.pressure > 1


def is_ready(slices: Mapping[str, SliceRecord], slice_name: str, model: str) -> bool:
    """Return whether a slice gets batches of a model."""
    return any(one.status is ReplicaStatus.READY for _, one in on_slice(slices, slice_name, model))


def claimant(
    model: ServedModel, scaled: ScalingState, by_kind: Mapping[str, Capacities], current: Mapping[str, int]
) -> Claimant:
    """Return what the slow plan knows of a model.

    `by_kind`: what it carries on each kind of slice. `current`: how many of these it has.
    """
    history, bin_s = scaled.history.bins()
    own = model.own
    least, most = bounds(model, MANY)
    variant = assumed(model, scaled, next(iter(by_kind.values()), {}))
    return Claimant(
        model=model.name,
        history=history,
        variants={name: model.accuracy(name) or 0.0 for name in own.variants},
        capacities={(name, kind): each for kind, known in by_kind.items() for name, each in known.items()},
        current={(variant, kind): count for kind, count in current.items() if variant},
        bin_s=bin_s,
        cv=scaled.wish.cv,
        optimize=own.optimize,
        cost_max=own.cost_max,
        weight=model.batching.weight,
        priority=rank(model),
        least=least,
        most=most,
        load_s=scaled.start_us / 1e6,
    )


def standing(
    model: ServedModel, scaled: ScalingState, slices: Mapping[str, SliceRecord], there: int
) -> ScalingStatus:
    """Return why a model has as many replicas as it has. `there`: how many slices it may use."""
    wish = scaled.wish
    least, most = bounds(model, there)
    ready = sum(is_ready(slices, name, model.name) for name in scaled.slices)
    return ScalingStatus(
        model=model.name,
        desired=wish.count,
        count=len(scaled.slices),
        ready=ready,
        coming=len(scaled.slices) - ready,
        standing=len(scaled.standby),
        least=least,
        most=most,
        slices=scaled.slices,
        pressure=wish.pressure,
        why=wish.why,
        up=wish.up,
        down=wish.down,
        budget=wish.budget,
        held=scaled.short,
        lacking=scaled.lacking,
        band=scaled.band,
        figures=wish.figures,
    )


def called(nodes: Collection[str]) -> str:
    """Return nodes as a sentence names them, no more than four."""
    if len(nodes) == 1:
        return f"node {min(nodes)}"
    *first, last = sorted(nodes)
    if len(first) > NAMED_MAX:
        first, last = first[:NAMED_MAX], f"{len(nodes) - NAMED_MAX} more"
    return f"nodes {', '.join(first)} and {last}"


def kinds_of(
    specs: Iterable[SliceSpec], kinds: Mapping[str, str], held: Collection[str]
) -> tuple[SliceKind, ...]:
    """Return the kinds of these slices, by the name of each; `held` ones cost nothing more."""
    found: dict[str, list[SliceSpec]] = {}
    for spec in specs:
        found.setdefault(kinds[spec.name], []).append(spec)
    return tuple(
        SliceKind(kind, 0.0 if several[0].name in held else several[0].price, len(several), several[0].spot)
        for kind, several in found.items()
    )
