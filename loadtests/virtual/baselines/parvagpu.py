"""ParvaGPU (Lee et al., SC 2024; MunQ-Lee/ParvaGPU_SC24, MIT): MIG instances by throughput per slice.

The configurator covers each rate with copies of the instance that has the most throughput for its size, and a
smaller one for the rest. The allocator puts them, the largest first, where the fewest slices are left.
Instances on GPUs that are at most half full are then cut into instances of 2 and 1 slices, which fit into
gaps.

An instance of 3 slices lies on the upper half only, because two of them waste a slice. Batch and number of
processes are the best offer's.

The public code notes start indices that overlap on 32 of its 46 GPUs. Here, what lies on a GPU together is
always legal, and only that is decided. The public code drops an instance if its model has no smaller one;
here the instance stays whole. The public code has no limit of GPUs; here the fullest are taken.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, floor

from loadtests.virtual.baselines.filling import Filling
from loadtests.virtual.baselines.pools import NEAR, each_pool, offers, slices
from loadtests.virtual.baselines.segments import alone, cover
from serving.policy.placement.terms.geometry import Geometry, Multiset
from serving.policy.placement.terms.plan import Draft, Slot
from serving.policy.placement.terms.problem import Instances, Offer, PlacementProblem, Pool

SPLIT_MAX = 4
"""The most slices in use on a GPU with instances that are cut (the code's `usage <= 4`)."""
SMALL = (2, 1)
"""The sizes, in slices, of the instances that they are cut into."""

Small = Mapping[float, Offer]


def solve(problem: PlacementProblem) -> Draft:
    """Return a draft on pools of MIG devices. Other pools are not used."""
    return each_pool(problem, "parvagpu", _pack)


def _pack(problem: PlacementProblem, pool: Pool) -> Sequence[tuple[Slot, ...]]:
    if not isinstance(pool.division, Instances):
        return []
    found = {each.model: offers(pool, each) for each in problem.demands}
    gpus = Filling(_upper_only(pool.division.geometry))
    segments = [
        alone(each.model, offer) for each in problem.demands for offer, _ in cover(each, found[each.model])
    ]
    for segment in sorted(segments, key=lambda slot: -slot.share.amount):
        gpus.place(segment, _fullest)
    _split(gpus, {model: _small(each) for model, each in found.items()})
    used = [tuple(slots) for slots in gpus.devices if slots]
    return sorted(used, key=lambda slots: -sum(slot.share.amount for slot in slots))[: len(pool.devices)]


def _upper_only(geometry: Geometry) -> Geometry:
    """Return the geometry in which an instance of 3 slices lies at its last start only."""
    return tuple(
        replace(each, starts=each.starts[-1:]) if slices(each.name) == 3 else each for each in geometry
    )


def _fullest(_: int, names: Multiset) -> tuple[float, ...]:
    return (-sum(map(slices, names)),)


def _small(found: Sequence[Offer]) -> Small:
    """Return the best offer of each of the SMALL sizes."""
    best: dict[float, Offer] = {}
    for offer in found:
        size = offer.option.share.amount
        if size in SMALL and (size not in best or offer.throughput > best[size].throughput):
            best[size] = offer
    return best


def _split(gpus: Filling, small: Mapping[str, Small]) -> None:
    """Cut the instances of GPUs that are at most half full, and place the pieces here or elsewhere.

    It goes from the last GPU to the first. What a model's pieces carry in excess is taken off what its next
    pieces have to carry.
    """
    spare: dict[str, float] = defaultdict(float)
    for index in reversed(range(len(gpus.devices))):
        if sum(slot.share.amount for slot in gpus.devices[index]) > SPLIT_MAX:
            continue
        for slot in tuple(gpus.devices[index]):
            model = slot.residents[0].model
            rate = slot.residents[0].capacity - spare[model]
            pieces = _pieces(model, rate, small[model])
            if pieces is not None:
                gpus.remove(index, slot)
                for piece in pieces:
                    gpus.place(piece, _fullest)
                spare[model] = sum(piece.residents[0].capacity for piece in pieces) - rate


def _pieces(model: str, rate: float, small: Small) -> list[Slot] | None:
    """Return small instances that carry that rate, or None if the model has none.

    If instances of 2 slices carry more by the slice, as many of them are taken as are filled. Instances of 1
    slice carry the rest.
    """
    if not small:
        return None
    two, one = (small.get(size) for size in SMALL)
    found: list[Slot] = []
    left = max(rate, 0.0)
    if two and (not one or two.throughput > 2 * one.throughput):
        count = floor(left / two.throughput + NEAR) if one else ceil(left / two.throughput - NEAR)
        found += [alone(model, two)] * count
        left -= count * two.throughput
    if one:
        found += [alone(model, one)] * ceil(left / one.throughput - NEAR)
    return found
