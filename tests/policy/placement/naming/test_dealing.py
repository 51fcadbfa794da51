"""What dealing promises: every slice gets a spot of its kind, each model over as many domains as can be."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.assignment.dealing import Room, Spread, Unit, deal, spread_of
from serving.policy.placement.assignment.lots import Slots, Spot
from tests.policy.placement.naming.fleets import MODELS, part
from tests.seeds import drawn


def spots(homes: str) -> list[Spot]:
    return [Spot(f"p{n}", home) for n, home in enumerate(homes)]


def equal(models: str) -> list[list[Slots]]:
    """One slice for each letter, those of one model in one list."""
    return [[(part(1.0, model),)] * models.count(model) for model in sorted(set(models))]


def dealt(homes: str, models: str, **least: int) -> dict[str, set[str]]:
    units = deal({"k": Room(spots(homes))}, {"k": equal(models)}, defaultdict(Counter), least, {})
    return {model: set(there) for model, there in spread_of(units).items()}


@settings(max_examples=drawn(25))
@given(st.lists(st.sampled_from("xyz"), min_size=1, max_size=8), st.data())
def test_all_is_dealt_and_no_spot_twice(homes: list[str], data: st.DataObject) -> None:
    models = data.draw(st.lists(st.sampled_from(MODELS), max_size=len(homes)))
    least = data.draw(st.dictionaries(st.sampled_from(MODELS), st.integers(2, 3)))
    holders = data.draw(st.dictionaries(st.sampled_from(MODELS), st.lists(st.sampled_from(["p0", "p9"]))))
    room = Room(spots("".join(homes)))
    spread: Spread = defaultdict(Counter)
    units = deal({"k": room}, {"k": equal("".join(models))}, spread, least, holders)
    taken = [unit.spot for unit in units]
    assert sorted([*taken, *room.rest()]) == sorted(spots("".join(homes)))
    assert Counter(unit.slots[0].residents[0].model for unit in units) == Counter(models)
    assert spread == spread_of(units)


def test_each_model_is_in_as_many_domains_as_it_has_replicas() -> None:
    assert dealt("xxxyyyzzz", "aaabbbccc") == {model: {"x", "y", "z"} for model in "abc"}
    assert dealt("xxxyyyzzz", "aabb")["a"] == {"x", "y"}


def test_models_that_must_be_in_several_domains_come_first() -> None:
    assert dealt("xxxy", "aabb", b=2)["b"] == {"x", "y"}
    assert dealt("xxxy", "aabb", a=2)["a"] == {"x", "y"}


def test_what_is_there_counts() -> None:
    there = [Unit("other", Spot("q", "x"), (part(1.0, "a"),))]
    units = deal({"k": Room(spots("xy"))}, {"k": equal("a")}, spread_of(there), {}, {})
    assert units[0].spot.domain == "y"


def test_a_device_that_has_the_model_is_preferred_where_the_domain_is_as_good() -> None:
    holders = {"a": ["p1", "p3"]}
    units = deal({"k": Room(spots("xxyy"))}, {"k": equal("aa")}, defaultdict(Counter), {}, holders)
    assert [unit.spot.device for unit in units] == ["p1", "p3"]


def test_where_no_spot_is_free_there_is_none_to_name() -> None:
    with pytest.raises(IndexError, match="no spot is free"):
        Room([]).turn([])
