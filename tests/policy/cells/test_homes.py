"""Promises of the homes of models: each has one, none moves without need, and no cell is too full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.cells.homes import FULL, GAP, LEAST, Cell, Homes, assign, moves

CELLS = st.lists(st.integers(1, 64), min_size=1, max_size=6).map(
    lambda sizes: [Cell(f"c{number}", size) for number, size in enumerate(sizes)]
)
DEMANDS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(20)]), st.floats(0, 40), max_size=20
)


def spread(demands: dict[str, float], cells: list[Cell], homes: Homes) -> dict[str, float]:
    """Each cell's work as a share of its slices."""
    load = dict.fromkeys((each.name for each in cells), 0.0)
    for model, parts in homes.items():
        for name in parts:
            load[name] += demands[model] / len(parts)
    return {each.name: load[each.name] / each.slices for each in cells}


def whole(homes: Homes) -> dict[str, float]:
    return {model: sum(parts.values()) for model, parts in homes.items()}


@given(CELLS, DEMANDS)
def test_every_model_has_a_home_with_all_of_its_work(cells: list[Cell], demands: dict[str, float]) -> None:
    homes = assign(cells, demands, {})
    assert homes.keys() == demands.keys()
    assert whole(homes) == pytest.approx(demands)
    names = {each.name for each in cells}
    assert all(parts.keys() <= names for parts in homes.values())


@given(CELLS, DEMANDS)
def test_what_is_decided_stays_while_nothing_changes(cells: list[Cell], demands: dict[str, float]) -> None:
    homes = assign(cells, demands, {})
    for _ in range(40):  # evenness comes a few moves at a time
        before, homes = homes, assign(cells, demands, homes)
    assert assign(cells, demands, homes) == homes
    assert not moves(before, homes)


@given(CELLS, DEMANDS, st.data())
def test_a_cell_that_is_gone_costs_only_its_own_models(
    cells: list[Cell], demands: dict[str, float], data: st.DataObject
) -> None:
    before = assign(cells, demands, {})
    gone = data.draw(st.sampled_from(cells))
    left = [each for each in cells if each is not gone]
    after = assign(left, demands, before, even=False)
    names = {each.name for each in left}
    assert all(parts.keys() <= names for parts in after.values())
    assert after.keys() == (demands.keys() if left else set())
    if max(spread(demands, left, after).values(), default=0) < FULL - LEAST:  # then none was too full
        assert {model for model, _ in moves(before, after)} <= {
            model for model, parts in before.items() if gone.name in parts
        }


@given(CELLS, DEMANDS)
def test_work_that_fits_fills_no_cell(cells: list[Cell], demands: dict[str, float]) -> None:
    small = {model: min(demand, 0.1) for model, demand in demands.items()}
    room = sum(each.slices for each in cells)
    homes = assign(cells, small, {})
    if sum(small.values()) < FULL * room / 2:
        assert max(spread(small, cells, homes).values()) <= FULL
    assert all(len(parts) == 1 for parts in homes.values())


def test_a_model_is_split_only_if_no_cell_carries_it() -> None:
    cells = [Cell(name, 10) for name in "abc"]
    homes = assign(cells, {"big": 15.0, "small": 4.0}, {})
    assert len(homes["big"]) == 2
    assert [*homes["big"].values()] == [7.5, 7.5]
    assert [*homes["small"]] == ["c"]


def test_a_split_model_returns_to_fewer_cells_late() -> None:
    cells = [Cell(name, 10) for name in "ab"]
    split = assign(cells, {"m": 12.0}, {})
    assert [*split["m"]] == ["a", "b"]
    assert [*assign(cells, {"m": 7.0}, split)["m"]] == ["a", "b"]
    assert [*assign(cells, {"m": 3.9}, split)["m"]] == ["a"]


def test_a_cell_that_cannot_serve_a_model_gets_none() -> None:
    cells = [Cell("a", 10), Cell("b", 100, frozenset({"m"}))]
    assert [*assign(cells, {"m": 1.0}, {"m": {"b": 1.0}})["m"]] == ["a"]
    assert assign(cells[1:], {"m": 1.0}, {}) == {}


def test_a_cell_that_is_too_full_gives_away_what_relieves_it_best() -> None:
    cells = [Cell("a", 10), Cell("b", 10)]
    before = {"x": {"a": 5.0}, "y": {"a": 3.0}, "z": {"a": 1.0}}
    after = assign(cells, {"x": 6.0, "y": 3.0, "z": 1.0}, before, even=False)
    assert moves(before, after) == [("y", "b")]


def test_cells_without_work_share_models_too() -> None:
    cells = [Cell("a", 1), Cell("b", 1)]
    before = {model: {"a": 0.0} for model in "wxyz"}
    after = assign(cells, dict.fromkeys("wxyz", 0.0), before)
    assert 1 <= len(moves(before, after)) <= 2
    assert LEAST * 4 > GAP


def test_ten_thousand_slices_are_dealt_with_few_splits() -> None:
    cells = [Cell(f"c{number}", 100) for number in range(100)]
    weights = [1 / (number + 1) for number in range(3000)]
    demands = {f"m{number}": 6500 * weight / sum(weights) for number, weight in enumerate(weights)}
    homes = assign(cells, demands, {})
    split = {model: parts for model, parts in homes.items() if len(parts) > 1}
    assert len(split) < 20
    assert min(min(parts.values()) for parts in split.values()) >= 8
    assert max(spread(demands, cells, homes).values()) <= FULL + 1e-6
    lost = assign(cells[1:], demands, homes, even=False)
    assert len(moves(homes, lost)) < 120
