"""Promises of the cell that leads: when it decides, what it takes for a model's work, and where calls go."""

from collections.abc import Iterable

import pytest

from serving.policy.cells.homes import Homes
from serving.policy.cells.leading import (
    EVEN_US,
    LOOK_US,
    RISE_US,
    S_US,
    SETTLE_US,
    CellReport,
    Leader,
    routes,
)


def decided(leader: Leader, reports: list[CellReport], before: Homes, now_us: int) -> Homes:
    """What a leader decides that has found a map."""
    homes = leader.decide(reports, before, now_us)
    assert homes is not None
    return homes


FILE = frozenset({"m", "n"})


def report(
    name: str, work: dict[str, float] | None = None, slices: float = 4, unfit: Iterable[str] = ()
) -> CellReport:
    work = work or {}
    return CellReport(name, slices, FILE, work, frozenset(work), frozenset(unfit))


def test_a_first_leader_looks_before_it_decides() -> None:
    leader, cells = Leader(), [report("a")]
    assert leader.decide(cells, {}, 0, mapped=False) is None
    both = [report("a"), report("b")]
    assert leader.decide(both, {}, SETTLE_US - 1) is None
    homes = leader.decide(both, {}, SETTLE_US) or {}
    assert {name for parts in homes.values() for name in parts} == {"a", "b"}


def test_a_leader_that_finds_a_map_decides_at_once() -> None:
    before = {"m": {"a": 1.0}, "n": {"b": 1.0}}
    homes = decided(Leader(), [report("a", {"m": 1.0})], before, 0)
    assert [*homes["n"]] == ["a"]


def test_another_leader_begins_anew() -> None:
    leader, cells = Leader(), [report("a")]
    leader.decide(cells, {}, 0, mapped=False)
    leader.rest()
    assert leader.decide(cells, {}, SETTLE_US, mapped=False) is None


def test_work_rises_fast_and_falls_slowly() -> None:
    leader, before = Leader(), {"m": {"a": 0.0}}
    leader.decide([report("a", {"m": 0.0})], before, 0)
    risen = decided(leader, [report("a", {"m": 2.0})], before, RISE_US)["m"]["a"]
    assert risen == pytest.approx(2 * (1 - 2.718281828**-1))
    fallen = decided(leader, [report("a", {"m": 0.0})], before, 2 * RISE_US)["m"]["a"]
    assert 0.9 * risen < fallen < risen


def test_the_work_of_a_model_that_is_nowhere_ready_is_remembered() -> None:
    leader, before = Leader(), {"m": {"a": 3.0}}
    homes = decided(leader, [report("b"), report("c")], before, 0)
    assert sum(homes["m"].values()) == 3.0
    homes = decided(leader, [report("b"), report("c")], homes, 60 * S_US)
    assert sum(homes["m"].values()) == 3.0


def test_a_model_that_no_file_names_is_forgotten() -> None:
    assert "old" not in decided(Leader(), [report("a")], {"old": {"a": 1.0}}, 0)


def test_cells_are_evened_out_only_now_and_then() -> None:
    leader = Leader()
    both = {"m": {"a": 1.0}, "n": {"a": 1.0}}
    alone = [report("a", {"m": 1.0, "n": 1.0})]
    joined = [*alone, report("b")]
    leader.decide(alone, both, 0)
    assert leader.decide(joined, both, EVEN_US - 1) == both
    homes = decided(leader, joined, both, EVEN_US + LOOK_US)
    assert {name for parts in homes.values() for name in parts} == {"a", "b"}


def test_a_leader_looks_again_only_now_and_then_while_no_cell_changes() -> None:
    leader, before = Leader(), {"m": {"a": 1.0}, "n": {"a": 1.0}}
    cells = [report("a", {"m": 1.0, "n": 1.0})]
    assert leader.decide(cells, before, 0) is not None
    assert leader.decide(cells, before, LOOK_US - 1) is None
    assert leader.decide(cells, before, LOOK_US) is not None
    assert leader.decide([*cells, report("b")], before, LOOK_US + 1) is not None


def test_a_cell_that_leaves_or_cannot_serve_a_model_gets_none() -> None:
    before = {"m": {"a": 1.0}, "n": {"a": 1.0}}
    cells = [report("a", {"m": 1.0}, slices=0), report("b", unfit=["m"]), report("c")]
    homes = decided(Leader(), cells, before, 0)
    assert [*homes["m"]] == ["c"]
    assert "a" not in homes["n"]


def test_calls_go_to_homes_that_are_ready() -> None:
    cells = [report("a", {"m": 1.0}), report("b", {"m": 1.0, "n": 0.0}), report("c")]
    assert routes(cells, {"m": {"a": 3.0, "c": 1.0}}) == {"m": {"a": 3.0}, "n": {"b": 1.0}}


def test_calls_go_to_the_old_home_until_the_new_one_is_ready() -> None:
    assert routes([report("a", {"m": 1.0}), report("b")], {"m": {"b": 1.0}}) == {"m": {"a": 1.0}}


def test_versions_of_a_model_are_in_the_same_cells_and_share_its_work() -> None:
    file = frozenset({"m", "m@1", "m@3", "n"})
    work = {"m": 3.0, "m@1": 1.0}
    cells = [CellReport(name, 4, file, work if name == "a" else {}, frozenset(file)) for name in "ab"]
    before = {"m": {"a": 3.0}, "m@1": {"a": 1.0}, "n": {"b": 0.0}}
    homes = decided(Leader(), cells, before, 0)
    assert {*homes["m"]} == {*homes["m@1"]} == {*homes["m@3"]}
    assert sum(homes["m"].values()) == pytest.approx(3.0)
    assert sum(homes["m@1"].values()) == pytest.approx(1.0)
    assert homes.keys() == file


def test_a_cell_without_a_version_is_no_home_of_it() -> None:
    old, new = frozenset({"m", "n"}), frozenset({"m", "m@3", "n"})
    cells = [CellReport("a", 4, old, {}, old), CellReport("b", 4, new, {}, new)]
    homes = decided(Leader(), cells, {"m": {"a": 1.0}, "n": {"b": 1.0}}, 0)
    assert "a" in homes["m"]
    assert "a" not in homes["m@3"]
