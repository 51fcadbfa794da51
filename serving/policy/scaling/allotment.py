"""Which slices each scaled model gets, where there may be too few of them, or too little money.

The objective is Faro's (EuroSys 2025): the weighted sum of what each model's count is worth to it, or the
smallest of these where it is to be fair; of the models of the highest priority first. Units of one slice are
handed out in the order of their worth, before all others what each model is to have at least. Sets of units
that fit are a transversal matroid, so this greedy order is the best there is for concave worths (Edmonds
1971); a unit fits where a chain of moves makes room for it (Kuhn 1955). A worth is made concave by its
envelope, as one slice of a model that needs two may be worth nothing.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

STICKY = 1.1
"""What a slice that a model has is worth more to it than another would be: to change it costs a load."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A slice that may be had at `price` an hour: 0 where it is held anyway."""

    name: str
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """A model that wants `wish` slices and is to have `least` of them whatever others want. `worth` of 0 to
    `wish` slices, not falling. `places`: those that it may have, in the order in which it likes them; of
    these it has `held`. What models of a higher `priority` wish comes before what those of a lower one do."""

    model: str
    least: int
    wish: int
    worth: tuple[float, ...]
    places: tuple[str, ...]
    held: frozenset[str] = frozenset()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Allotment:
    """`slices` by model; `short`: why a model has fewer than it wants, in words."""

    slices: Mapping[str, tuple[str, ...]]
    short: Mapping[str, str]


def allot(
    claims: Sequence[Claim],
    places: Mapping[str, Priced],
    cost_max: float = inf,
    paid: float = 0.0,
    fair: bool = False,
) -> Allotment:
    """Hand out the slices. `paid`: what is paid an hour whatever happens here. With what is handed out beyond
    the least it stays within `cost_max`. `fair`: the model that has least of what it wants comes first,
    whatever its weight."""
    desk = _Desk(claims, places, cost_max, paid)
    for model in _order(claims, fair):
        desk.take(model)
    return Allotment(desk.slices(), desk.short)


class _Desk:
    """What has been handed out so far."""

    def __init__(
        self, claims: Iterable[Claim], places: Mapping[str, Priced], cost_max: float, paid: float
    ) -> None:
        self._claims = {each.model: each for each in claims}
        self._places = places
        self._cost_max = cost_max
        self._cost = paid
        self._owner: dict[str, str] = {}
        self._free = set(places)
        self._counts = dict.fromkeys(self._claims, 0)
        self._held = {name: each.model for each in self._claims.values() for name in each.held}
        self.short: dict[str, str] = {}

    def take(self, model: str) -> None:
        """Give a model one more slice, or note why not; a model that was refused once is refused for good."""
        if model in self.short:
            return
        claim = self._claims[model]
        budget = inf if self._counts[model] < claim.least else self._cost_max - self._cost
        moves = self._find(claim, budget)
        if moves is None:
            more = budget < inf and self._find(claim, inf) is not None
            ceiling = f"another slice would pass the ceiling of {self._cost_max:g} an hour"
            self.short[model] = ceiling if more else "no other slice that it may have is free"
            return
        for name, owner in moves:
            self._owner[name] = owner
        self._free.discard(moves[0][0])
        self._counts[model] += 1
        self._cost += self._places[moves[0][0]].price  # what it was not before: all others only changed hands

    def slices(self) -> dict[str, tuple[str, ...]]:
        """Return the slices of each model, in the order in which it likes them."""
        return {
            model: tuple(name for name in claim.places if self._owner.get(name) == model)
            for model, claim in self._claims.items()
        }

    def _find(self, claim: Claim, budget: float) -> list[tuple[str, str]] | None:
        """Return the fewest moves, (slice, its next owner), that give a model one more slice. It takes a free
        slice, else a slice of an owner that can go elsewhere, and so on. The first move takes the slice that
        was free, at a price within the budget. Return None if there are no such moves."""
        affordable = {name for name in self._free if self._places[name].price <= budget}
        reached: dict[str, tuple[str, str]] = {}  # owner -> (slice that it is to give, to whom)
        waiting = deque([claim] if affordable else ())
        while waiting:
            asker = waiting.popleft()
            if not affordable.isdisjoint(asker.places):
                moves = [(self._best(asker, affordable), asker.model)]
                while moves[-1][1] != claim.model:
                    moves.append(reached[moves[-1][1]])
                return moves
            for name in asker.places:
                owner = self._owner.get(name)
                if owner is not None and owner != claim.model and owner not in reached:
                    reached[owner] = (name, asker.model)
                    waiting.append(self._claims[owner])
        return None

    def _best(self, claim: Claim, affordable: Collection[str]) -> str:
        """Return the best free slice that a model may have: one that it held before, else one that had no
        owner, as it likes them."""
        free = [name for name in claim.places if name in affordable]
        return min(
            free, key=lambda name: (name not in claim.held, self._held.get(name, claim.model) != claim.model)
        )


def _order(claims: Iterable[Claim], fair: bool) -> list[str]:
    """Return the models of all units: first what each is to have at least, then by priority. Within a
    priority the units of most value come first, or if `fair` the model that would have least of its value
    without."""
    units: list[tuple[bool, int, float, int, str]] = []
    for place, claim in enumerate(claims):
        had, top = 0.0, claim.worth[-1] - claim.worth[0]
        for count, gain in enumerate(gains(claim.worth)[: claim.wish], start=1):
            kept = STICKY if count <= len(claim.held) else 1.0
            key = had / top / kept if fair and top else -gain * kept
            extra = count > claim.least
            units.append((extra, -claim.priority, key if extra else 0.0, place, claim.model))
            had += gain
    return [model for *_, model in sorted(units, key=lambda unit: unit[:4])]


def gains(worth: Sequence[float]) -> list[float]:
    """Return what each further slice adds to the concave envelope of `worth` (of 0, 1, 2 ... slices); not
    rising."""
    found: list[float] = []
    here = 0
    while here + 1 < len(worth):
        slopes = [(worth[there] - worth[here]) / (there - here) for there in range(here + 1, len(worth))]
        best = max(slopes)
        steps = max(step for step, slope in enumerate(slopes, start=1) if slope >= best - 1e-12)
        found += [best] * steps
        here += steps
    return found
