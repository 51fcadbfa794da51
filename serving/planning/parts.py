"""What of a placement is simulated by itself, for how long, and which part of it where all would take too
long: models that share no slice do not meet, so they can be played one after the other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from serving.policy.placement.terms.check import slowdown
from serving.policy.placement.terms.plan import Placement, Slot, capacities
from serving.policy.placement.terms.problem import Parts as Division
from serving.policy.placement.terms.problem import PlacementProblem

SECONDS_MIN = 2.0
REPLICAS_MIN = 8
"""What is left at least of a model of which only a part is simulated: fewer would wait in unlike queues."""
REQUESTS_MIN = 300
"""Of each model, if that is not too much for the others: a 99th percentile of fewer says nothing."""
SECONDS_MAX = 3600.0

WORK_MAX = 2_700_000.0
"""Of all parts together. 300,000 requests of models that are alone on one slice each: some ten seconds."""
_SLICES_A_REQUEST = 8.0
"""A request costs as much as a look at so many slices, and each decision looks at all (measured with 1 to 32
slices: 40 us and 5 us a slice)."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Placed:
    """A slice of the placement. `slowdowns`: how many times as long the batches of each of its residents take
    while its neighbours compute."""

    name: str
    slot: Slot
    slowdowns: tuple[float, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Its residents'."""
        return tuple(each.model for each in self.slot.residents)

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of its workers: its own, or one of each process of an instance."""
        count = self.slot.processes
        return (self.name,) if count == 1 else tuple(f"{self.name}*{n}" for n in range(1, count + 1))


@dataclass(frozen=True, slots=True)
class PlacementPart:
    """Models, and all their slices or some, for `seconds`. `kept`: by model, the share of its rate that goes
    with the share of its capacity that is here."""

    slices: tuple[Placed, ...]
    kept: Mapping[str, float]
    seconds: float

    def work(self, rates: Mapping[str, float]) -> float:
        """Return what it takes to simulate it, in looks at a slice; `rates`: requests a second by model."""
        requests = sum(rates.get(model, 0.0) * share for model, share in self.kept.items())
        workers = sum(len(each.workers) for each in self.slices)
        return requests * self.seconds * (_SLICES_A_REQUEST + workers)


def placed(problem: PlacementProblem, placement: Placement) -> list[Placed]:
    """Return the placement's slices, named DEVICE/SHARE@START; slices that would have the same name are
    numbered."""
    found: list[Placed] = []
    seen: Counter[str] = Counter()
    for device, slots in placement.items():
        apart = not isinstance(problem.pool_of[device].division, Division)
        for place, slot in enumerate(slots):
            others = () if apart else (*slots[:place], *slots[place + 1 :])
            name = f"{device}/{slot.share}" + (f"@{slot.start}" if slot.start >= 0 else "")
            seen[name] += 1
            name += f"#{seen[name]}" if seen[name] > 1 else ""
            found.append(Placed(name, slot, tuple(slowdown(each, others) for each in slot.residents)))
    return found


def cut(
    problem: PlacementProblem, placement: Placement, rates: Mapping[str, float], seconds: float
) -> tuple[list[PlacementPart], list[str]]:
    """Return the parts to simulate, the models with least to spare first, and the models that are left out.

    Each part is simulated for `seconds` or until REQUESTS_MIN of each of its models came. All parts have the
    same share of WORK_MAX, but parts that need less leave the rest to the others. A part that would take more
    is cut short, to SECONDS_MIN, then thinned out. If parts still take more, as many are kept as WORK_MAX
    allows. The scarcest is always kept, however short.
    """
    there = capacities(placement)

    def scarcity(part: PlacementPart) -> tuple[float, str]:
        return -max(rates.get(model, 0.0) / (there[model] or 1.0) for model in part.kept), min(part.kept)

    whole = [
        PlacementPart(slices, dict.fromkeys(models, 1.0), _seconds(models, rates, seconds))
        for models, slices in _components(placed(problem, placement))
    ]
    found: list[PlacementPart] = []
    greedy: list[PlacementPart] = []
    left_out: list[str] = []
    left = WORK_MAX
    for part, share in _shares(whole, rates):
        fitted = _fitted(part, rates, share, min(seconds, SECONDS_MIN))
        needed = fitted.work(rates)
        if needed <= share * (1 + _ROUNDING):
            found.append(fitted)
            left -= needed
        else:
            greedy.append(fitted)
    for place, part in enumerate(sorted(greedy, key=scarcity)):
        needed = part.work(rates)
        if needed > left and place > 0:
            left_out += part.kept
            continue
        found.append(replace(part, seconds=part.seconds * min(left / needed, 1.0)))
        left -= min(needed, left)
    return sorted(found, key=scarcity), sorted(left_out)


def _components(slices: Iterable[Placed]) -> Iterator[tuple[list[str], tuple[Placed, ...]]]:
    """Yield the models, with their slices, of each set of models that no slice connects with others; in
    order."""
    parents: dict[str, str] = {}

    def root(model: str) -> str:
        while parents.setdefault(model, model) != model:
            parents[model] = model = parents[parents[model]]
        return model

    kept = [each for each in slices if each.models]
    for each in kept:
        for model in each.models:
            parents[root(model)] = root(each.models[0])
    groups: dict[str, list[Placed]] = defaultdict(list)
    for each in kept:
        groups[root(each.models[0])].append(each)
    for group in groups.values():
        yield sorted({model for each in group for model in each.models}), tuple(group)


def _seconds(models: Iterable[str], rates: Mapping[str, float], seconds: float) -> float:
    """Return a time in which each model that is asked for has enough requests."""
    slowest = min((rates[model] for model in models if rates.get(model, 0.0) > 0), default=0.0)
    return max(seconds, min(REQUESTS_MIN / slowest, SECONDS_MAX)) if slowest else seconds


def _shares(
    parts: Sequence[PlacementPart], rates: Mapping[str, float]
) -> Iterator[tuple[PlacementPart, float]]:
    """Yield each part with the work that it may take."""
    left = WORK_MAX
    ordered = sorted(parts, key=lambda each: each.work(rates))
    for place, part in enumerate(ordered):
        share = left / (len(ordered) - place)
        yield part, share
        left -= min(part.work(rates), share)


def _fitted(
    part: PlacementPart, rates: Mapping[str, float], work_max: float, seconds_min: float
) -> PlacementPart:
    """Return as much of the part as the work allows: for a shorter time, then with fewer slices."""
    needed = part.work(rates)
    if needed <= work_max:
        return part
    shorter = replace(part, seconds=max(part.seconds * work_max / needed, seconds_min))
    if shorter.work(rates) <= work_max * (1 + _ROUNDING):
        return shorter
    # work is a share of the rate times (_SLICES_A_REQUEST + that share of the slices)
    requests = sum(rates.get(model, 0.0) for model in part.kept) * shorter.seconds
    slices = sum(len(each.workers) for each in part.slices)
    half = _SLICES_A_REQUEST / (2 * slices)
    return _thinned(shorter, sqrt(half * half + work_max / (requests * slices)) - half)


def _thinned(part: PlacementPart, share: float) -> PlacementPart:
    """Return the part with about that share of each model's slices, every n-th of those that it has for
    itself. All slices that it shares with others stay, and REPLICAS_MIN in all if it has enough."""
    alone: dict[str, list[Placed]] = defaultdict(list)
    shared: Counter[str] = Counter()
    for each in part.slices:
        if len(each.models) == 1:
            alone[each.models[0]].append(each)
        else:
            shared.update(each.models)
    chosen: set[str] = {each.name for each in part.slices if len(each.models) > 1}
    for model, own in alone.items():
        wanted = max(int(share * (len(own) + shared[model])), REPLICAS_MIN) - shared[model]
        count = min(max(wanted, 0), len(own))
        chosen.update(own[number * len(own) // count].name for number in range(count))
    slices = tuple(each for each in part.slices if each.name in chosen)
    before, after = _capacities(part.slices), _capacities(slices)
    return PlacementPart(
        slices, {model: after[model] / (before[model] or 1.0) for model in part.kept}, part.seconds
    )


def _capacities(slices: Iterable[Placed]) -> Mapping[str, float]:
    found: dict[str, float] = defaultdict(float)
    for each in slices:
        for resident in each.slot.residents:
            found[resident.model] += resident.capacity
    return found
