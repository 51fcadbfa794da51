"""Slices go where they are worth most, within what there is and what may be paid."""

from dataclasses import replace
from itertools import product
from math import inf
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.allotment import Allotment, Claim, Priced, allot, gains

NAMES = ("a", "b", "c", "d")


def places(*prices: float) -> dict[str, Priced]:
    return {name: Priced(name, price) for name, price in zip(NAMES, prices, strict=False)}


def claim(
    model: str, wish: int, likes: str = "abcd", least: int = 0, held: str = "", weight: float = 1.0
) -> Claim:
    worth = tuple(weight * n / max(wish, 1) for n in range(wish + 1))
    return Claim(model, least, wish, worth, tuple(likes), frozenset(held))


def test_who_wants_gets_what_it_likes_most() -> None:
    found = allot([claim("m", 2, "bca")], places(1, 1, 1))
    assert found == Allotment({"m": ("b", "c")}, {})


def test_what_a_model_has_it_keeps_while_others_come_and_go() -> None:
    first = allot([claim("m", 2, "abc", held="bc")], places(1, 1, 1))
    assert set(first.slices["m"]) == {"b", "c"}
    both = allot([claim("m", 2, "abc", held="bc"), claim("n", 1, "abc")], places(1, 1, 1))
    assert both.slices == {"m": ("b", "c"), "n": ("a",)}


def test_a_newcomer_takes_a_free_slice_before_one_that_another_has() -> None:
    found = allot([claim("n", 1, "ab"), claim("m", 1, "ab", held="a")], places(1, 1))
    assert found.slices == {"n": ("b",), "m": ("a",)}


def test_the_least_comes_first_whatever_others_are_worth() -> None:
    found = allot([claim("rich", 2, "ab", weight=9), claim("poor", 1, "ab", least=1)], places(1, 1))
    assert len(found.slices["poor"]) == 1
    assert found.short == {"rich": "no other slice that it may have is free"}


def test_the_higher_priority_comes_first_whatever_others_are_worth_but_not_before_their_least() -> None:
    first, rich = replace(claim("first", 3, "abc"), priority=1), claim("rich", 3, "abc", least=1, weight=9)
    for fair in (False, True):
        found = allot([rich, first], places(1, 1, 1), fair=fair)
        assert {model: len(slices) for model, slices in found.slices.items()} == {"first": 2, "rich": 1}
    broken = allot([replace(rich, least=2), replace(first, least=2)], places(1, 1, 1))
    assert {model: len(slices) for model, slices in broken.slices.items()} == {"first": 2, "rich": 1}


def test_an_owner_moves_where_another_has_no_choice() -> None:
    found = allot([claim("m", 1, "ab", held="a"), claim("n", 1, "a")], places(1, 1))
    assert found.slices == {"m": ("b",), "n": ("a",)}


def test_the_ceiling_stops_what_is_beyond_the_least_and_says_so() -> None:
    found = allot([claim("m", 3, "abc", least=1)], places(1, 1, 1), 2.5, 0.5)
    assert len(found.slices["m"]) == 2
    assert found.short == {"m": "another slice would pass the ceiling of 2.5 an hour"}


def test_the_least_is_had_even_beyond_the_ceiling() -> None:
    assert allot([claim("m", 2, "ab", least=1)], places(3, 3), 1.0, 0.0).slices == {"m": ("a",)}


@pytest.mark.parametrize(
    ("worth", "steps"),
    [
        ((0.0, 1.0, 1.5), [1.0, 0.5]),
        ((0.0, 0.0, 2.0), [1.0, 1.0]),
        ((0.0, 0.2, 1.0, 1.0), [0.5, 0.5, 0.0]),
        ((0.0,), []),
    ],
)
def test_gains_are_those_of_the_concave_envelope(worth: tuple[float, ...], steps: list[float]) -> None:
    assert gains(worth) == pytest.approx(steps)


def total(claims: list[Claim], counts: tuple[int, ...]) -> float:
    return sum(sum(gains(each.worth)[:count]) for each, count in zip(claims, counts, strict=True))


def fits(claims: list[Claim], counts: tuple[int, ...]) -> bool:
    """Whether so many slices each can be had (by trying all owners)."""
    for owners in product([None, *range(len(claims))], repeat=len(NAMES)):
        got = [
            sum(
                owner == place and name in claims[place].places
                for name, owner in zip(NAMES, owners, strict=True)
            )
            for place in range(len(claims))
        ]
        if all(have >= want for have, want in zip(got, counts, strict=True)):
            return True
    return False


@st.composite
def claims_of_any_kind(draw: st.DrawFn) -> list[Claim]:
    found = []
    for model in ("m", "n", "o")[: draw(st.integers(1, 3))]:
        likes = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
        wish = draw(st.integers(0, 3))
        steps = draw(st.lists(st.integers(0, 5), min_size=wish, max_size=wish))
        worth = (0.0, *(float(sum(steps[: n + 1])) for n in range(wish)))
        least = draw(st.integers(0, wish))
        found.append(Claim(model, least, wish, worth, tuple(likes)))
    return found


@given(claims_of_any_kind())
def test_no_other_allotment_is_worth_more(claims: list[Claim]) -> None:
    found = allot(claims, places(1, 1, 1, 1))
    taken = [name for names in found.slices.values() for name in names]
    assert len(taken) == len(set(taken))
    counts = tuple(len(found.slices[each.model]) for each in claims)
    assert all(set(found.slices[each.model]) <= set(each.places) for each in claims)
    leasts = tuple(each.least for each in claims)
    if fits(claims, leasts):
        assert all(count >= each.least for count, each in zip(counts, claims, strict=True))
        others = product(*(range(each.least, each.wish + 1) for each in claims))
        assert (
            total(claims, counts) >= max(total(claims, each) for each in others if fits(claims, each)) - 1e-9
        )


@given(claims_of_any_kind(), st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(0, 8))
def test_beyond_the_least_nothing_passes_the_ceiling(
    claims: list[Claim], prices: list[int], ceiling: int
) -> None:
    priced = places(*map(float, prices))
    found = allot(claims, priced, ceiling, 0.0)
    cost = sum(priced[name].price for names in found.slices.values() for name in names)
    beyond = any(len(found.slices[each.model]) > each.least for each in claims)
    least = sum(
        sorted((each.price for each in priced.values()), reverse=True)[: sum(each.least for each in claims)]
    )
    assert cost <= max(ceiling, least) or not beyond


def shared(*worths: tuple[float, ...]) -> list[Claim]:
    """Models that may both have either of two slices."""
    return [Claim(f"m{place}", 0, len(worth) - 1, worth, NAMES[:2]) for place, worth in enumerate(worths)]


def test_fair_is_who_has_least_of_what_it_wants() -> None:
    rich, poor = (0.0, 9.0, 18.0), (0.0, 0.1, 0.2)
    assert [len(each) for each in allot(shared(rich, poor), places(1, 1)).slices.values()] == [2, 0]
    assert [len(each) for each in allot(shared(rich, poor), places(1, 1), fair=True).slices.values()] == [
        1,
        1,
    ]


@given(claims_of_any_kind())
def test_the_least_part_of_a_fair_allotment_is_the_largest_there_is(claims: list[Claim]) -> None:
    claims = [each for each in claims if each.wish and each.worth[-1]]
    claims = [Claim(each.model, 0, each.wish, each.worth, each.places) for each in claims]
    if not claims:
        return

    def part(claim: Claim, count: int) -> float:
        return sum(gains(claim.worth)[:count]) / claim.worth[-1]

    found = allot(claims, places(1, 1, 1, 1), fair=True)
    least = min(part(each, len(found.slices[each.model])) for each in claims)
    counts = product(*(range(each.wish + 1) for each in claims))
    assert (
        least
        >= max(
            min(part(each, count) for each, count in zip(claims, some, strict=True))
            for some in counts
            if fits(claims, some)
        )
        - 1e-9
    )


def test_where_worths_are_not_concave_it_is_near_the_optimum() -> None:
    """Faro's setting: ten models whose utility of n replicas is that of a queue, on slices that are too few;
    beside the exact dynamic program."""
    rng = np.random.default_rng(1)
    ratios = []
    for _ in range(40):
        loads = rng.uniform(0.5, 4.0, 10)
        worths = [
            tuple(min(1.0, max(0.0, (n - load * 0.8) / load) ** 0.7) if n else 0.0 for n in range(7))
            for load in loads
        ]
        names = [f"s{n}" for n in range(14)]
        claims = [Claim(f"m{n}", 0, 6, worth, tuple(names)) for n, worth in enumerate(worths)]
        found = allot(claims, {name: Priced(name) for name in names})
        reached = sum(worth[len(found.slices[f"m{n}"])] for n, worth in enumerate(worths))
        best = {0: 0.0}
        for worth in worths:
            best = {
                used: max(best.get(used - n, -inf) + worth[n] for n in range(7) if used - n in best)
                for used in range(15)
                if any(used - n in best for n in range(7))
            }
        ratios.append(reached / max(best.values()))
    assert max(ratios) <= 1 + 1e-9
    assert mean(ratios) > 0.97
    assert min(ratios) > 0.85
