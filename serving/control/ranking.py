"""In which order a model likes the slices on which it may run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.control.scaling_state import ScalingState
from serving.specs import SliceSpec


@dataclass(frozen=True, slots=True, eq=False)
class RankedSlice:
    """A slice, for one model. Those of one `kind` compute alike and cost alike; `speed`: of a replica there,
    1 on most of its slices. `fixed`: it is held whatever this model does; `bad`: it is the last choice."""

    spec: SliceSpec
    kind: str
    speed: float
    fixed: bool
    bad: bool

    @property
    def price(self) -> float:
        """For what a replica carries there."""
        return self.spec.price / max(self.speed, 1e-9)


def by_preference(places: Iterable[RankedSlice], scaled: ScalingState, least: int) -> list[RankedSlice]:
    """What it likes most first: where it is, what is held anyway, as many of each kind as the slow plan would
    have, what costs least, where it stands by; of the `least` that it is to have, spot slices only where
    there are no others."""
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
    """Which of those that it has it would rather keep. `places`: what it may have, as `by_preference` has
    them. None that are the last choice; nor spot slices, while others that its `least` could be on are not
    its own."""
    found = {each.spec.name for each in places if not each.bad and each.spec.name in scaled.slices}
    firm = [each.spec.name for each in places[:least] if not each.spec.spot and not each.bad]
    if not found.issuperset(firm):
        found -= {each.spec.name for each in places if each.spec.spot}
    return frozenset(found)
