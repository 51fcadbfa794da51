"""What a request is promised follows from what operators, tiers and the request itself state, and no variant
below the floor is ever among those that may answer."""

from collections.abc import Mapping
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serving.values.objectives import CHEAPEST, MOST_ACCURATE, OPTIMIZE, PERCENTILE, Needs, ranked, resolve
from tests.builders import graded

NEAR = 1e-6  # of what floats make of a difference
KNOWN = {"a": 0.9, "b": 0.8, "c": 0.7, "d": None}

shares = st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
accuracies = st.dictionaries(
    st.sampled_from("abcde"), st.none() | shares, min_size=1, max_size=5
)  # in any order
needs = st.builds(
    Needs,
    tier=st.just(""),
    slo_us=st.none() | st.integers(1, 9),
    percentile=st.none() | st.sampled_from([50.0, 95.0]),
    accuracy_min=st.none() | shares,
    tolerance=st.none() | st.sampled_from([0.0, 0.2, 0.5]),
    cost_max=st.none() | st.sampled_from([0.5, 2.0]),
    optimize=st.sampled_from(["", *OPTIMIZE]),
    slo_rows=st.none() | st.integers(1, 9),
)
PLAIN = Needs()


@given(needs, needs, st.integers(1, 40))
def test_a_request_is_due_one_slo_after_its_arrival_for_each_so_many_rows_as_that_is_stated_for(
    own: Needs, tier: Needs, rows: int
) -> None:
    model = graded({"a": 0.5}, own, (Needs("t").over(tier),))
    for objective, stated in ((model.own, own.slo_rows), (model.by_tier["t"], tier.slo_rows or own.slo_rows)):
        spans = range(0, rows, stated) if stated else range(1)
        assert objective.parts(rows) == len(spans)
        assert objective.due_us(rows) == sum(objective.slo_us for _ in spans)


@given(accuracies, needs, needs, st.sampled_from(["", "t"]), st.just(0.0) | shares)
def test_whoever_may_answer_keeps_the_floors_of_the_model_the_tier_and_the_request(
    accuracy: Mapping[str, float | None], own: Needs, tier: Needs, asked: str, accuracy_min: float
) -> None:
    model = graded(accuracy, own, (Needs("t").over(tier),))
    objective = model.objective(asked, accuracy_min)
    stated = tier.over(own) if asked else own
    best = max((share for share in accuracy.values() if share is not None), default=0.0)
    floor = max(stated.floor(best), accuracy_min)
    assert objective.accuracy_min == pytest.approx(floor)
    if stated.chooses or accuracy_min:
        for variant in objective.variants:
            share = accuracy[variant]
            assert not floor or (share is not None and share >= floor - NEAR)


@given(accuracies, needs, st.just(0.0) | shares)
def test_those_that_may_answer_are_the_most_accurate_first_and_unmeasured_ones_last(
    accuracy: Mapping[str, float | None], own: Needs, accuracy_min: float
) -> None:
    variants = graded(accuracy, own).objective("", accuracy_min).variants
    known = [-1.0 if accuracy[name] is None else accuracy[name] or 0.0 for name in variants]
    assert known == sorted(known, reverse=True)
    assert len(set(variants)) == len(variants)


@given(accuracies, needs)
def test_a_request_that_asks_for_less_than_the_model_promises_gets_what_the_model_promises(
    accuracy: Mapping[str, float | None], own: Needs
) -> None:
    model = graded(accuracy, own)
    assert model.objective("", model.own.accuracy_min / 2) is model.own


@given(accuracies, needs, shares, shares)
def test_a_higher_floor_never_lets_another_variant_answer(
    accuracy: Mapping[str, float | None], own: Needs, one: float, other: float
) -> None:
    model = graded(accuracy, own)
    assume(own.chooses)
    lower, higher = sorted((one, other))
    wide, narrow = (model.objective("", floor).variants for floor in (lower, higher))
    assert set(narrow) <= set(wide)


@given(needs, needs, needs)
def test_needs_over_needs_over_needs_are_the_same_whichever_are_put_together_first(
    one: Needs, two: Needs, three: Needs
) -> None:
    assert one.over(two).over(three) == one.over(two.over(three))


@given(needs)
def test_needs_over_none_stay_as_they_are(own: Needs) -> None:
    assert own.over(PLAIN) == PLAIN.over(own) == own


def test_of_a_model_of_which_nothing_is_stated_the_answering_variant_alone_answers() -> None:
    model = graded({"b": 0.8, "a": 0.9})
    assert model.own.variants == ("b",)
    assert model.answering_variant == "b"
    assert (model.own.percentile, model.own.cost_max) == (PERCENTILE, inf)


@pytest.mark.parametrize(
    "stated",
    [Needs(accuracy_min=0.1), Needs(tolerance=0.5), Needs(cost_max=1.0), Needs(optimize=CHEAPEST)],
)
def test_whoever_states_a_floor_a_ceiling_or_an_aim_lets_variants_be_chosen(stated: Needs) -> None:
    assert graded({"b": 0.8, "a": 0.9}, stated).own.variants == ("a", "b")


@pytest.mark.parametrize("stated", [Needs(slo_us=5), Needs(percentile=95.0)])
def test_whoever_states_a_latency_alone_does_not(stated: Needs) -> None:
    assert graded({"b": 0.8, "a": 0.9}, stated).own.variants == ("b",)


@pytest.mark.parametrize(
    ("tolerance", "allowed"), [(0.0, "a"), (0.05, "a"), (0.1, "ab"), (0.2, "abc"), (0.9, "abcd")]
)
def test_a_tolerance_is_counted_from_the_best_and_never_shuts_it_out(tolerance: float, allowed: str) -> None:
    """0.9 - 0.1 is a hair above 0.8 in floats. A tolerance that leaves no floor lets unmeasured ones in."""
    found = resolve(Needs(tolerance=tolerance), KNOWN, "a", 1)
    assert "".join(found.variants) == allowed


def test_an_unmeasured_variant_keeps_no_floor_however_low() -> None:
    assert ranked(KNOWN, 1e-6) == ("a", "b", "c")
    assert ranked(KNOWN, 0.0) == ("a", "b", "c", "d")


def test_a_floor_that_none_keeps_leaves_nobody_to_answer() -> None:
    assert resolve(Needs(accuracy_min=0.95), KNOWN, "a", 1).variants == ()


def test_a_tier_states_what_differs_and_takes_the_rest_from_the_model() -> None:
    model = graded(KNOWN, Needs(accuracy_min=0.8, cost_max=2.0), (Needs("bulk", slo_us=7, tolerance=0.2),))
    bulk = model.objective("bulk")
    assert (bulk.slo_us, bulk.cost_max, bulk.optimize) == (7, 2.0, MOST_ACCURATE)
    assert bulk.variants == ("a", "b", "c")
    assert model.own.variants == ("a", "b")


def test_a_floor_of_its_own_narrows_the_tier_that_the_request_asked_for() -> None:
    model = graded(KNOWN, tiers=(Needs("bulk", optimize=CHEAPEST),))
    asked = model.objective("bulk", 0.75)
    assert (asked.variants, asked.optimize, asked.tier) == (("a", "b"), CHEAPEST, "bulk")


def test_a_floor_of_its_own_lets_any_variant_answer_that_keeps_it() -> None:
    """The answering variant would not."""
    model = graded({"c": 0.7, "a": 0.9, "b": 0.8})
    assert model.objective("", 0.75).variants == ("a", "b")


def test_who_asks_for_a_tier_that_is_not_there_is_told_so() -> None:
    with pytest.raises(KeyError):
        graded(KNOWN).objective("gold")
