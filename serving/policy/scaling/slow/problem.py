"""The slow plan's problem as arrays: what each model needs, what a replica of each kind carries of it, and
what replicas, lost accuracy and shed rows cost in one currency.

Sets and rows are those of Proteus (ASPLOS 2024), of which this is the linear form: devices that are alike are
counted, not named. In the order of the places here: claims, one for each model; offers, a variant on a kind
of slice, to a claim; kinds.

What is best is the least sum of
- the prices of replicas, where nobody has said any, one each;
- for a replica more than a model has on a kind, the part of its price that passes while it loads;
- accuracy that is lost against the model's best, by the share of its rows;
- its share of rows that is shed.

The rates of exchange below make of that an order. `most_accurate`: buy, then degrade, then shed;
`cheapest`: degrade before buying; `balanced`: a price. All are in multiples of what the model costs, so that
a small model is not given up because it is small, and by its weight among those of its priority.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from serving.policy.scaling.slow.tables import NEAR, CapacityTables, Floats, Ints, make_tables
from serving.policy.scaling.slow.task import Claimant, Key, ScalingTask, SliceKind
from serving.values.objectives import BALANCED, CHEAPEST, MOST_ACCURATE

EXCHANGE = {MOST_ACCURATE: 1_000.0, BALANCED: 10.0, CHEAPEST: 0.001}
"""What accuracy 1.0 of all rows is worth, in multiples of what carrying them costs: by the dearest variant
for `most_accurate`, where 0.001 is worth the whole of it; by the cheapest way for the others. `balanced`: a
point (0.01) for a tenth more. So EfficientNet-B1, 2.0 points better than B0 for 1.8 times the computing (Tan
and Le 2019, table 2), is not bought, but taken where a slice would be idle otherwise; what a float variant
has over one in 8 bits seldom pays either."""
SHED = 10_000.0
"""What shedding all rows costs, in multiples of what the dearest variant costs that carries them: ten times
the worth of any accuracy there is. Each of `least` replicas that is lacking costs twice as much."""
PRIORITY = 100.0
"""How many times dearer the rows of the next priority are; over RANKS of them together, PRIORITY**RANKS at
most, as a solver has 16 digits."""
RANKS = 2
WEIGHTS = 10.0  # weights count as up to so many times the least of their priority: less than PRIORITY
HELD_S = 600.0
"""A replica is held for ten minutes, as a rule: its load costs so much of its price."""
HOUR_S = 3_600.0
MILLION = 1e6
_CHEAP = 1e-3  # of the dearest price: what a replica costs at least, so that none is taken for nothing


@dataclass(frozen=True, slots=True)
class Kinds:
    """By kind: `price` an hour as the plan weighs it and as it is `paid`; `count` of slices; `spot`."""

    names: tuple[str, ...]
    price: Floats
    paid: Floats
    count: Ints
    spot: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Claims:
    """By claim: `rate`, rows a second to plan for; what shedding all of it and losing accuracy 1.0 costs;
    `load`, the part of a replica's price that starting one costs; `firm`: whether its `least` replicas are to
    be on slices that are not spot; `current` replicas by claim and kind."""

    each: tuple[Claimant, ...]
    rate: Floats
    shed_price: Floats
    loss_price: Floats
    load: Floats
    least: Ints
    most: Ints
    firm: npt.NDArray[np.bool_]
    current: Ints


@dataclass(frozen=True, slots=True)
class ScalingOffers:
    """By offer, sorted by claim: `loss`, of accuracy against the claim's best, and the capacity `tables`."""

    keys: tuple[Key, ...]
    claim: Ints
    kind: Ints
    loss: Floats
    tables: CapacityTables

    def pace(self, places: Ints, pool: Ints) -> Floats:
        """Return the rows a second of each replica of these offers, if the model has `pool` in all off one
        queue."""
        return self.tables.pace(places, pool)

    def needed(self, places: Ints, rate: Floats) -> Ints:
        """Return the fewest replicas alike that carry `rate` rows a second; `tables.NEVER` if none do."""
        return self.tables.needed(places, rate)


@dataclass(frozen=True, slots=True)
class ScalingProblem:
    """What is to be planned. `cost_max` of an hour. `begins`: where the offers of each claim do, and end."""

    kinds: Kinds
    claims: Claims
    offers: ScalingOffers
    begins: Ints
    cost_max: float

    def of(self, claim: int) -> Ints:
        """Return the places of a claim's offers."""
        return np.arange(self.begins[claim], self.begins[claim + 1])


def make_problem(task: ScalingTask, rates: Sequence[float]) -> ScalingProblem:
    """Return a task as arrays. `rates`: rows a second to plan for, by claimant.

    Offers on unknown kinds and on kinds without slices are left out. So are offers that cost more than the
    claimant's `cost_max` for a million rows, even if many replicas are busy.
    """
    kinds = _kinds(task.kinds)
    offers = _offers(task, kinds)
    rate = np.array(rates, float)
    begins = np.searchsorted(offers.claim, np.arange(len(task.claimants) + 1))
    return ScalingProblem(kinds, _claims(task.claimants, rate, kinds, offers), offers, begins, task.cost_max)


def _kinds(kinds: Sequence[SliceKind]) -> Kinds:
    paid = np.array([each.price for each in kinds], float)
    dearest = float(paid.max(initial=0.0))
    price = np.maximum(paid, _CHEAP * dearest) if dearest > 0 else np.ones(len(kinds))
    count = np.array([each.count for each in kinds], np.int64)
    spot = np.array([each.spot for each in kinds], bool)
    return Kinds(tuple(each.name for each in kinds), price, paid, count, spot)


def _offers(task: ScalingTask, kinds: Kinds) -> ScalingOffers:
    here = {name: place for place, name in enumerate(kinds.names) if kinds.count[place] > 0}
    paid = kinds.paid.tolist()
    keys: list[Key] = []
    owners: list[int] = []
    for owner, each in enumerate(task.claimants):
        for key, capacity in each.capacities.items():
            if key[1] in here and key[0] in each.variants:
                pace = capacity.rates[-1][-1] / capacity.counts[-1]
                if pace > 0 and not too_dear(paid[here[key[1]]], pace, each.cost_max):
                    keys.append(key)
                    owners.append(owner)
    by = [task.claimants[owner] for owner in owners]
    best = [max(each.variants.values(), default=0.0) for each in task.claimants]
    rows = list(zip(owners, by, keys, strict=True))
    loss = np.array([best[owner] - each.variants[variant] for owner, each, (variant, _) in rows], float)
    tables = make_tables([each.capacities[key] for _, each, key in rows], [each.cv for each in by])
    kind = np.array([here[name] for _, name in keys], np.int64)
    return ScalingOffers(tuple(keys), np.array(owners, np.int64), kind, loss, tables)


def too_dear(paid: float, pace: float, cost_max: float) -> bool:
    """Return whether a million rows cost more than `cost_max` on slices of that price an hour, at `pace` rows
    a second each: on many busy ones, as the data plane's ladders reckon, for at night any slice is dear."""
    return cost_max < inf and paid * MILLION > cost_max * pace * HOUR_S * (1 + NEAR)


def _claims(each: tuple[Claimant, ...], rate: Floats, kinds: Kinds, offers: ScalingOffers) -> Claims:
    dear, cheap = _costs(each, rate, kinds, offers)
    shed, loss = np.zeros(len(each)), np.zeros(len(each))
    levels = sorted({claimant.priority for claimant in each})
    step = PRIORITY ** min(1.0, RANKS / max(len(levels) - 1, 1))
    least_weight = {
        level: min(claimant.weight for claimant in each if claimant.priority == level) for level in levels
    }
    for place, claimant in enumerate(each):
        relative = claimant.weight / least_weight[claimant.priority]
        weight = min(relative, WEIGHTS, step / 2)
        base = dear if claimant.optimize == MOST_ACCURATE else cheap
        loss[place] = EXCHANGE[claimant.optimize] * base[place] * weight
        shed[place] = SHED * dear[place] * weight * step ** levels.index(claimant.priority)
    firm = np.zeros(len(each), bool)
    firm[offers.claim[~kinds.spot[offers.kind]]] = True
    current = np.zeros((len(each), len(kinds.names)), np.int64)
    index = {name: place for place, name in enumerate(kinds.names)}
    for place, claimant in enumerate(each):
        for (_, kind), count in claimant.current.items():
            if kind in index:
                current[place, index[kind]] += count
    load = np.array([claimant.load_s / HELD_S for claimant in each], float)
    least = np.array([claimant.least for claimant in each], np.int64)
    most = np.array([claimant.most for claimant in each], np.int64)
    return Claims(each, rate, shed, loss, load, least, np.maximum(most, least), firm, current)


def _costs(
    each: Sequence[Claimant], rate: Floats, kinds: Kinds, offers: ScalingOffers
) -> tuple[Floats, Floats]:
    """Return, by claim, what all its rows cost by the dearest variant, each on its best kind, and by the
    cheapest. Each cost is of at least one replica."""
    every = np.arange(len(offers.keys))
    needed = np.clip(offers.needed(every, rate[offers.claim]), 1, MILLION)
    cost = needed * kinds.price[offers.kind]
    cheap = np.full(len(each), inf)
    np.minimum.at(cheap, offers.claim, cost)
    variants = [{name: place for place, name in enumerate(claimant.variants)} for claimant in each]
    width = max((len(names) for names in variants), default=1)
    owned = zip(offers.claim.tolist(), offers.keys, strict=True)
    column = np.array([variants[claim][variant] for claim, (variant, _) in owned], np.int64)
    best = np.full((len(each), width), inf)
    np.minimum.at(best, (offers.claim, column), cost)
    dear = np.where(best < inf, best, 0.0).max(axis=1, initial=0.0)
    floor = float(kinds.price.min(initial=1.0))
    return np.maximum(dear, floor), np.where(cheap < inf, cheap, floor)
