"""Small fleets with something running and a draft of what is to run, and a search of all ways to name it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations, product

from hypothesis import strategies as st

from serving.policy.placement.terms.geometry import MigProfile, arrangements, layouts
from serving.policy.placement.terms.moves import start_us
from serving.policy.placement.terms.plan import Bundle, Draft, PlacedReplica, Placement, Slot
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share

SMALL = (
    MigProfile(1, "1g", (0, 1, 2, 3), 1, 4, 10.0, 10),
    MigProfile(2, "2g", (0, 2), 2, 2, 20.0, 20),
    MigProfile(4, "4g", (0,), 4, 1, 40.0, 40),
)
"""A GPU of four memory slices: few enough layouts to try all."""
MODELS = ("a", "b", "c", "d")
LOADS_S = {"a": 5, "b": 30, "c": 90}
Fleet = tuple[PlacementProblem, Draft, Placement]
Where = frozenset[tuple[str, str]]
"""(model, failure domain) of every replica."""


def option(share: Share, model: str) -> Option:
    return Option("gpu", share, "v", ((1, 1000.0),), load_us=LOADS_S.get(model, 0) * 1_000_000)


def slot(share: Share, *models: str, start: int = -1) -> Slot:
    return Slot(share, tuple(PlacedReplica(model, option(share, model), 1, 100.0) for model in models), start)


def mig(label: str, *models: str, start: int = -1) -> Slot:
    return slot(Share("mig", float(label[0]), label), *models, start=start)


def part(amount: float, *models: str) -> Slot:
    return slot(Share("mps", amount), *models)


def pool_of(division: Parts | Instances, *homes: str, name: str = "p") -> Pool:
    """With a device in each of these domains."""
    return Pool(
        name, "gpu", division, tuple(PlacementDevice(f"{name}{n}", home) for n, home in enumerate(homes))
    )


def problem_of(
    *pools: Pool, models: Sequence[str] = MODELS, spread: dict[str, int] | None = None
) -> PlacementProblem:
    least = spread or {}
    demands = [Demand(each, 1.0, 1e6, (), domains_min=least.get(each, 1)) for each in models]
    return PlacementProblem(tuple(demands), pools)


def drafted(*bundles: Bundle) -> Draft:
    return Draft(bundles, "by hand")


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Up to four devices in one pool or two, each slice with one replica."""
    pools, bundles = [], []
    current: dict[str, tuple[Slot, ...]] = {}
    kinds = draw(st.sampled_from([("mig",), ("parts",), ("mig", "parts")]))
    for name in kinds:
        most = 2 if len(kinds) > 1 else 3 if name == "mig" else 4
        homes = draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=most))
        pool = pool_of(Instances(SMALL) if name == "mig" else Parts("mps", 4.0), *homes, name=name)
        pools.append(pool)
        running, wanted = draw(_devices(pool, 9)), draw(_devices(pool, 5))
        for device, before, after in zip(pool.devices, running, wanted, strict=True):
            if before:
                current[device.name] = before
            if after:
                bare = tuple(Slot(each.share, each.residents) for each in after)
                bundles.append(Bundle(name, bare, draw(st.sampled_from([None, device.domain]))))
    spread = draw(st.dictionaries(st.sampled_from("ab"), st.integers(2, 3), max_size=2))
    return problem_of(*pools, spread=spread), drafted(*bundles), current


@st.composite
def _devices(draw: st.DrawFn, pool: Pool, budget: int) -> list[tuple[Slot, ...]]:
    """What each has, at most `budget` slices in all."""
    found = []
    for _ in pool.devices:
        model = st.sampled_from(MODELS)
        if isinstance(pool.division, Instances):
            layout = draw(st.sampled_from(layouts(SMALL)))[:budget]
            slots = tuple(mig(label, draw(model), start=start) for start, label in layout)
        else:
            amounts = draw(st.lists(st.sampled_from([1.0, 2.0]), max_size=min(2, budget)))
            slots = tuple(part(amount, draw(model)) for amount in amounts)
        budget -= len(slots)
        found.append(slots)
    return found


def best_by_hand(fleet: Fleet) -> tuple[int, int]:
    """(domains that models lack, microseconds of starting) of the best of all namings."""
    problem, draft, current = fleet
    by_pool = []
    for pool in problem.pools:
        least: dict[Where, int] = {}
        for placement in _namings(pool, [each for each in draft.bundles if each.pool == pool.name]):
            where = frozenset(
                (resident.model, problem.domain_of[name])
                for name, slots in placement.items()
                for each in slots
                for resident in each.residents
            )
            cost = sum(_starts_us(current.get(name, ()), slots) for name, slots in placement.items())
            least[where] = min(cost, least.get(where, cost))
        by_pool.append(least)
    return min(
        (lacking(problem, frozenset().union(*(where for where, _ in each))), sum(cost for _, cost in each))
        for each in product(*(pool.items() for pool in by_pool))
    )


def lacking(problem: PlacementProblem, where: Where) -> int:
    """In how many more domains the models should be of which more than one is asked."""
    asked = [each for each in problem.demands if each.domains_min > 1]
    return sum(max(0, each.domains_min - sum(model == each.model for model, _ in where)) for each in asked)


def _starts_us(before: Sequence[Slot], after: Sequence[Slot]) -> int:
    """Each slice has one replica."""
    left = Counter((each.share, each.start, each.residents[0].model) for each in before)
    wanted = Counter((each.share, each.start, each.residents[0].model) for each in after)
    return sum(start_us(option(share, model)) * n for (share, _, model), n in (wanted - left).items())


def _namings(pool: Pool, bundles: Sequence[Bundle]) -> Iterator[Placement]:
    """All placements that the bundles of a pool can become."""
    for devices in permutations(pool.devices, len(bundles)):
        pairs = list(zip(devices, bundles, strict=True))
        if any(bundle.domain not in (None, device.domain) for device, bundle in pairs):
            continue
        if isinstance(pool.division, Parts):
            yield {device.name: bundle.slots for device, bundle in pairs}
            continue
        slots = [(each, bundle.domain) for bundle in bundles for each in bundle.slots]
        geometry = pool.division.geometry
        ways = [arrangements(geometry, [each.share.label for each in bundle.slots]) for bundle in bundles]
        for chosen in product(*ways):
            places = [
                (device.name, start, label, bundle.domain)
                for (device, bundle), layout in zip(pairs, chosen, strict=True)
                for start, label in layout
            ]
            for order in _dealt([place[2:] for place in places], slots):
                found: dict[str, tuple[Slot, ...]] = {}
                for (name, start, _, _), each in zip(places, order, strict=True):
                    found[name] = (*found.get(name, ()), Slot(each.share, each.residents, start))
                yield found


def _dealt(
    places: Sequence[tuple[str, str | None]], slots: Sequence[tuple[Slot, str | None]]
) -> Iterator[list[Slot]]:
    """Every way to give each (profile, domain) a slot of that profile and domain; of equal slots one."""
    if not places:
        yield []
        return
    tried = set()
    for n, (each, home) in enumerate(slots):
        model = each.residents[0].model
        if (each.share.label, home) == places[0] and model not in tried:
            tried.add(model)
            for rest in _dealt(places[1:], [*slots[:n], *slots[n + 1 :]]):
                yield [each, *rest]
