"""What changing places promises: models come into the domains that they need, and none loses one."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.placement.assignment.dealing import Unit, spread_of
from serving.policy.placement.assignment.lots import Spot
from serving.policy.placement.assignment.swapping import repair
from serving.policy.placement.terms.plan import Slot
from tests.policy.placement.naming.fleets import MODELS, part

LEAST = {"a": 3, "b": 2}
units = st.lists(st.tuples(st.sampled_from("xyz"), st.sets(st.sampled_from(MODELS), max_size=2)), max_size=8)


def made(homes: list[tuple[str, set[str]]]) -> list[Unit]:
    return [
        Unit("kind", Spot(f"p{n}", home), (part(1.0, *sorted(models)),) if models else ())
        for n, (home, models) in enumerate(homes)
    ]


def short(spread: dict[str, Counter[str]]) -> dict[str, int]:
    return {model: max(0, least - len(spread.get(model, ()))) for model, least in LEAST.items()}


def nothing_stays(spot: Spot, slots: tuple[Slot, ...]) -> float:
    return 0.0


@given(units)
def test_no_model_is_worse_off_and_the_books_are_kept(homes: list[tuple[str, set[str]]]) -> None:
    there = made(homes)
    spread = spread_of(there)
    before = short(spread)
    everything = sorted(str(unit.slots) for unit in there)
    repair(there, spread, LEAST, nothing_stays)
    assert all(after <= before[model] for model, after in short(spread).items())
    assert {model: +each for model, each in spread.items() if each} == dict(spread_of(there))
    assert sorted(str(unit.slots) for unit in there) == everything


def test_two_change_places_where_that_helps() -> None:
    there = made([("x", {"b"}), ("x", {"b"}), ("y", {"c"}), ("y", {"d"})])
    spread = spread_of(there)
    repair(there, spread, {"b": 2}, nothing_stays)
    assert set(spread["b"]) == {"x", "y"}


def test_a_free_spot_is_as_good_as_another_s() -> None:
    there = made([("x", {"b"}), ("x", {"b"}), ("y", set())])
    spread = spread_of(there)
    repair(there, spread, {"b": 2}, nothing_stays)
    assert [len(unit.slots) for unit in there].count(0) == 1
    assert set(spread["b"]) == {"x", "y"}


def test_of_the_changes_that_help_that_is_made_which_starts_least() -> None:
    there = made([("x", {"b"}), ("x", {"b"}), ("y", {"c"}), ("y", {"d"})])
    running = {unit.spot: unit.slots for unit in there if unit.spot.device != "p3"}

    def stays(spot: Spot, slots: tuple[Slot, ...]) -> float:
        return float(running.get(spot) == slots)

    repair(there, spread_of(there), {"b": 2}, stays)
    assert there[2].slots == (part(1.0, "c"),)
    assert there[3].slots == (part(1.0, "b"),)


def test_no_change_takes_a_domain_from_a_model_that_needs_it() -> None:
    """The first slice of the other domain is of a model that would be in one domain only."""
    there = made([("x", {"b"}), ("x", {"b"}), ("y", {"a"}), ("y", {"c"}), ("x", {"a"})])
    repair(there, spread_of(there), {"a": 2, "b": 2}, nothing_stays)
    assert set(spread_of(there)["a"]) == set(spread_of(there)["b"]) == {"x", "y"}
    alone = made([("x", {"b"}), ("x", {"b"}), ("y", {"a"}), ("x", {"a"})])
    repair(alone, spread_of(alone), {"a": 2, "b": 2}, nothing_stays)
    assert set(spread_of(alone)["a"]) == {"x", "y"}


def test_slices_of_other_kinds_do_not_change_places() -> None:
    there = made([("x", {"b"}), ("x", {"b"}), ("y", {"c"})])
    there[2].kind = "other"
    spread = spread_of(there)
    repair(there, spread, {"b": 2}, nothing_stays)
    assert set(spread["b"]) == {"x"}
