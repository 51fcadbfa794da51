"""What dividing MIG devices promises: what is wanted stays where it is, first where whole devices can."""

from collections import Counter

import pytest

from serving.policy.placement.assignment.keeping import keep
from serving.policy.placement.assignment.lots import KeptBundles, Lot
from serving.policy.placement.terms.plan import Bundle, Placement, Slot
from serving.policy.placement.terms.problem import Instances
from tests.policy.placement.naming.fleets import SMALL, mig, pool_of


def kept(current: Placement, *bundles: tuple[Slot, ...], homes: str = "") -> KeptBundles:
    pool = pool_of(Instances(SMALL), *(homes or "x" * len(current)))
    return keep(Lot(pool, None, tuple(Bundle("p", slots) for slots in bundles)), pool.devices, current)


def staying(found: KeptBundles) -> set[tuple[str, int, str]]:
    return {(spot.device, spot.start, slots[0].residents[0].model) for _, spot, slots in found.fixed}


def test_the_layout_is_that_in_which_most_of_what_is_wanted_stays() -> None:
    """Two 1g leave 2g room at one end only: at the end where 2g is."""
    current = {"p0": (mig("2g", "a", start=2),), "p1": (mig("2g", "b", start=0),)}
    found = kept(current, (mig("2g", "a"), mig("1g", "c")), (mig("2g", "b"), mig("1g", "c")))
    assert staying(found) == {("p0", 2, "a"), ("p1", 0, "b")}
    assert {spot.device for spot in found.vacant["1g"]} == {"p0", "p1"}


def test_a_device_gets_the_instances_of_which_most_are_there() -> None:
    current = {"p0": (mig("2g", "a", start=0), mig("2g", "b", start=2)), "p1": (mig("4g", "c", start=0),)}
    found = kept(current, (mig("4g", "c"),), (mig("2g", "b"), mig("2g", "a")))
    assert staying(found) == {("p0", 0, "a"), ("p0", 2, "b"), ("p1", 0, "c")}
    assert not any(found.vacant.values())


@pytest.mark.parametrize("wanted", "ab")
def test_what_is_not_wanted_does_not_hold_a_device_back(wanted: str) -> None:
    """One of two can stay 4g: not that with the unwanted model."""
    current = {"p0": (mig("4g", "a", start=0),), "p1": (mig("4g", "b", start=0),)}
    found = kept(current, (mig("4g", wanted),), (mig("2g", "c"),))
    assert staying(found) == {("p0" if wanted == "a" else "p1", 0, wanted)}


@pytest.mark.parametrize("large", [("c", "d"), ("d", "c")])
def test_where_more_run_than_are_wanted_whole_devices_stay_first(large: tuple[str, str]) -> None:
    """One replica of a and of b is wanted: not those beside a model that is gone."""
    beside = (mig("1g", "a", start=0), mig("1g", "b", start=1))
    current = {f"p{n}": (*beside, mig("2g", each, start=2)) for n, each in enumerate(large)}
    found = kept(current, (mig("1g", "a"), mig("2g", "c"), mig("1g", "b")))
    assert {device for device, _, _ in staying(found)} == {f"p{large.index('c')}"}
    assert len(found.fixed) == 3


def test_what_cannot_stay_on_one_device_may_stay_on_another() -> None:
    """Of two replicas of a one is wanted. It is claimed on p0, which is left empty; the other is there."""
    current = {
        "p0": (mig("1g", "a", start=0),),
        "p1": (mig("1g", "a", start=2), mig("2g", "b", start=0), mig("1g", "d", start=3)),
    }
    found = kept(current, (mig("2g", "b"), mig("1g", "a")), homes="xx")
    assert staying(found) == {("p1", 0, "b"), ("p1", 2, "a")}


def test_devices_of_all_domains_are_used() -> None:
    found = kept({}, *([(mig("2g", "a"), mig("1g", "b"))] * 4), homes="xxxxxyyyyyzzzzz")
    domains = Counter(spot.domain for spot in found.vacant["2g"])
    assert sorted(domains.values()) == [1, 1, 2]
