"""The order in which a model prefers the slices on which it may run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.control.scaling.scaling_state import ScalingState
from serving.values.slice_specs import SliceSpec


@dataclass(frozen=True, slots=True, eq=False)
class RankedSlice:
    """A slice as one model sees it.

    Slices of one `kind` have equal speed and cost. `speed`: of a replica there, 1 on most of the model's
    slices. `fixed`: the slice is held whatever this model does. `bad`: it is the last choice.
    """

    spec: SliceSpec
    kind: str
    speed: float
    fixed: bool
    bad: bool

    @property
    def price(self) -> float:
        """The price of the load that a replica carries there."""
        return self.spec.price / max(self.speed, 1e-9)


def by_preference(places: Iterable[RankedSlice], scaled: ScalingState, least: int) -> list[RankedSlice]:
    """Return the slices with the most preferred first.

    The order: slices where the model is, then slices that are held anyway. Then as many of each kind as the
    slow plan has, then the cheapest, then slices where it stands by. For its `least` replicas, spot slices
    come only if there are no others.
    """
    cheap = sorted(places, key=lambda each: (each.price, each.spec.name not in scaled.standby))
    planned: set[str] = set()
    counts = Counter[str]()
    for each in cheap:
        counts[each.kind] += 1
        if counts[each.kind] <= scaled.liked[each.kind]:
            planned.add(each.spec.name)

    def order(each: RankedSlice) -> tuple[bool, bool, bool, bool]:
        name = each.spec.name
        return each.bad, name not in scaled.slices, not each.fixed, name not in planned

    ranked = sorted(cheap, key=order)
    firm = [each for each in ranked if not each.spec.spot and not each.bad][:least]
    return [*firm, *(each for each in ranked if each not in firm)]


def kept_slices(places: Sequence[RankedSlice], scaled: ScalingState, least: int) -> frozenset[str]:
    """Return the slices of the model that it prefers to keep. `places`: in the order of `by_preference`.

    It keeps no slice that is a last choice. It keeps no spot slice while it lacks another slice that its
    `least` could be on.
    """
    found = {each.spec.name for each in places if not each.bad and each.spec.name in scaled.slices}
    firm = [each.spec.name for each in places[:least] if not each.spec.spot and not each.bad]
    if not found.issuperset(firm):
        found -= {each.spec.name for each in places if each.spec.spot}
    return frozenset(found)
