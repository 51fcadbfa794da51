"""Slices that are held for models of which each has so many to itself, against all ways to give them out."""

from collections.abc import Iterator, Mapping
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from router.settings.served.holding import Ask, SliceOwners

SLICES = ("a", "b", "c", "d", "e")

asks = st.dictionaries(
    st.sampled_from(["x", "y", "z"]),
    st.builds(
        Ask,
        st.lists(st.sampled_from(SLICES), unique=True).map(tuple),
        st.integers(0, 3),
    ),
    min_size=1,
)
prices = st.fixed_dictionaries({name: st.integers(0, 4) for name in SLICES})


def sets(asked: Mapping[str, Ask]) -> Iterator[frozenset[str]]:
    """Every set of slices of which each can be one model's, no model having more than it asks for."""

    def given_out(models: list[str], free: frozenset[str]) -> Iterator[frozenset[str]]:
        if not models:
            yield frozenset()
            return
        ask = asked[models[0]]
        for count in range(ask.count + 1):
            for own in combinations(sorted(free & set(ask.slices)), count):
                for rest in given_out(models[1:], free - set(own)):
                    yield rest | set(own)

    return given_out([*asked], frozenset(SLICES))


def held(asked: Mapping[str, Ask], order: list[str]) -> SliceOwners:
    holding = SliceOwners(asked)
    holding.take(order)
    return holding


@given(asks, prices)
def test_in_the_order_of_prices_the_cheapest_of_the_largest_sets_is_held_and_in_the_opposite_the_dearest(
    asked: dict[str, Ask], price: dict[str, int]
) -> None:
    every = [*sets(asked)]
    largest = max(map(len, every))
    costs = [sum(price[name] for name in each) for each in every if len(each) == largest]
    cheap = sorted(SLICES, key=price.__getitem__)
    for order, cost in ((cheap, min(costs)), (cheap[::-1], max(costs))):
        given_out = held(asked, order).given
        assert len(given_out) == largest
        assert sum(price[name] for name in given_out) == cost


@given(asks, st.permutations(SLICES))
def test_nobody_has_a_slice_that_it_may_not_use_or_more_than_it_asks_for(
    asked: dict[str, Ask], order: list[str]
) -> None:
    given_out = held(asked, order).given
    assert all(name in asked[model].slices for name, model in given_out.items())
    assert all([*given_out.values()].count(model) <= ask.count for model, ask in asked.items())


@given(asks, st.permutations(SLICES))
def test_who_is_short_asks_together_for_more_than_all_that_they_may_use(
    asked: dict[str, Ask], order: list[str]
) -> None:
    holding = held(asked, order)
    models, slices = holding.short()
    total = sum(ask.count for ask in asked.values())
    assert bool(models) == (len(holding.given) < total)
    assert set(slices) == {name for model in models for name in asked[model].slices}
    if models:
        assert sum(asked[model].count for model in models) > len(slices)
