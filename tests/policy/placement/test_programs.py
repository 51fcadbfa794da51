"""Programs are solved as they are written down."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.programs import InfeasibleError, Program
from tests.seeds import drawn

small = st.integers(-3, 3)


def test_reals_may_be_fractions_and_integers_may_not() -> None:
    program = Program()
    one, other = program.column(2.0, integer=True), program.column(3.0, integer=True)
    row = program.row([(one, 2.0), (other, 2.0)], lower=5.0)
    relaxed = program.relax()
    assert relaxed.cost == pytest.approx(5.0)
    assert relaxed.prices[row] == pytest.approx(1.0)
    found = program.solve()
    assert found is not None
    assert (found.cost, [*found.values], found.proved) == (6.0, [3.0, 0.0], True)


def test_terms_of_the_same_column_add_up() -> None:
    program = Program()
    column = program.column(1.0)
    row = program.row(lower=6.0)
    program.put(row, column, 1.0)
    program.put(row, column, 2.0)
    assert program.relax().cost == pytest.approx(2.0)


def test_prices_are_what_one_more_would_cost() -> None:
    """At least 4 of a or b, at most 1 of a, 2 of b at 3 each, the rest at 10."""
    program = Program()
    a, b, dear = program.column(1.0), program.column(3.0, upper=2.0), program.column(10.0)
    least = program.row([(a, 1.0), (b, 1.0), (dear, 1.0)], lower=4.0)
    most = program.row([(a, 1.0)], upper=1.0)
    same = program.row([(program.column(7.0), 1.0)], lower=2.0, upper=2.0)
    relaxed = program.relax()
    assert relaxed.cost == pytest.approx(1 + 6 + 10 + 14)
    assert [relaxed.prices[row] for row in (least, most, same)] == pytest.approx([10.0, -9.0, 7.0])


def test_costs_and_bounds_may_change_between_solutions() -> None:
    program = Program()
    column = program.column(1.0, integer=True)
    first = program.solve()
    program.lower[column], program.costs[column] = 2.0, 5.0
    second = program.solve()
    assert first is not None
    assert second is not None
    assert (first.cost, second.cost) == (0.0, 10.0)


def test_what_cannot_be_met_is_infeasible() -> None:
    program = Program()
    program.row([(program.column(1.0, upper=1.0, integer=True), 1.0)], lower=2.0)
    with pytest.raises(InfeasibleError):
        program.relax()
    with pytest.raises(InfeasibleError):
        program.solve()


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.tuples(st.lists(small, min_size=3, max_size=3), small, st.integers(0, 4)), max_size=3),
)
@settings(max_examples=drawn(40))
def test_no_values_that_meet_all_rows_cost_less(
    costs: list[int], rows: list[tuple[list[int], int, int]]
) -> None:
    program = Program()
    columns = [program.column(float(cost), upper=4.0, integer=True) for cost in costs]
    for factors, lower, width in rows:
        terms = [(column, float(factor)) for column, factor in zip(columns, factors, strict=False)]
        program.row(terms, lower, lower + width)
    possible = [
        sum(cost * value for cost, value in zip(costs, values, strict=True))
        for values in product(range(5), repeat=len(costs))
        if all(
            lower
            <= sum(factor * value for factor, value in zip(factors, values, strict=False))
            <= lower + width
            for factors, lower, width in rows
        )
    ]
    if possible:
        found = program.solve()
        assert found is not None
        assert (found.cost, found.proved) == (min(possible), True)
        assert program.relax().cost <= found.cost + 1e-6
    else:
        with pytest.raises(InfeasibleError):
            program.solve()
