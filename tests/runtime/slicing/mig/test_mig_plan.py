"""What a MIG plan promises, against the whole table: no overlap, no illegal start, nothing lost in vain."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.placement.terms.geometry import Geometry
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.mig.mig import MigGpu
from serving.runtime.slicing.mig.mig_plan import MigPlan, plan
from serving.runtime.slicing.mig.mig_text import Instance
from tests.runtime.slicing.smi import Smi, table

Placed = tuple[tuple[str, int], ...]

H200 = table("h200")
BASE = tuple(
    profile for profile in H200 if profile.name in ("1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")
)
DOUBLED = (*BASE, *(profile for profile in H200 if profile.name == "1g.35gb"))
names = st.sampled_from([profile.name for profile in H200])
multisets = st.lists(names, max_size=7)


def legal_sets(geometry: Geometry) -> frozenset[Placed]:
    """Every set of placements without overlap, by brute force over subsets of all placements."""
    memory = {
        (profile.name, start): frozenset(range(start, start + profile.size))
        for profile in geometry
        for start in profile.starts
    }
    found: set[Placed] = {()}
    frontier: set[Placed] = {()}
    while frontier:
        frontier = {
            tuple(sorted((*placed, one)))
            for placed in frontier
            for one in memory
            if all(memory[one].isdisjoint(memory[other]) for other in placed)
        } - found
        found |= frontier
    most = {profile.name: profile.instances_max for profile in geometry}
    return frozenset(
        placed
        for placed in found
        if all(n <= most[name] for name, n in Counter(name for name, _ in placed).items())
    )


LEGAL = legal_sets(H200)
ORDERED = sorted(LEGAL)
MULTISETS = {tuple(sorted(name for name, _ in placed)) for placed in LEGAL}


def maximal(sets: frozenset[Placed], geometry: Geometry) -> list[Placed]:
    alone = [(profile.name, start) for profile in geometry for start in profile.starts]
    return [placed for placed in sets if not any(tuple(sorted((*placed, one))) in sets for one in alone)]


@pytest.mark.parametrize(("geometry", "counts"), [(BASE, (298, 38, 19, 14)), (DOUBLED, (723, 78, 78, 38))])
def test_the_table_has_as_many_layouts_as_the_hardware(geometry: Geometry, counts: tuple[int, ...]) -> None:
    """Layouts, their multisets, those to which nothing can be added and the multisets of those: as enumerated
    over NVML's placements. A table with a wrong start or size has other counts."""
    sets = legal_sets(geometry)
    full = maximal(sets, geometry)

    def multiset(placed: Placed) -> tuple[str, ...]:
        return tuple(sorted(name for name, _ in placed))

    assert (len(sets), len(set(map(multiset, sets))), len(full), len(set(map(multiset, full)))) == counts


def placed_after(have: list[Instance], planned: MigPlan) -> Placed:
    left = [(each.profile, each.start) for each in have if each not in planned.destroy]
    return tuple(sorted(left + [(each.profile.name, each.start) for each in planned.create]))


def listed(placed: Placed) -> list[Instance]:
    sizes = {profile.name: profile.size for profile in H200}
    return [Instance(start, sizes[name], name, number) for number, (name, start) in enumerate(placed)]


@pytest.mark.slow
@given(st.sampled_from(ORDERED), multisets)
def test_a_plan_is_legal_exact_and_destroys_no_more_than_it_must(have: Placed, want: list[str]) -> None:
    instances = listed(have)
    wanted = tuple(sorted(want))
    if wanted not in MULTISETS:
        with pytest.raises(SlicingError, match="no layout has the MIG instances"):
            plan(H200, instances, want)
        return
    planned = plan(H200, instances, want)
    after = placed_after(instances, planned)
    assert after in LEGAL
    assert tuple(sorted(name for name, _ in after)) == wanted
    kept = len(have) - len(planned.destroy)
    for bigger in combinations(have, kept + 1) if kept < len(have) else ():
        reachable = any(set(bigger) <= set(one) for one in LEGAL if sorted(n for n, _ in one) == list(wanted))
        assert not reachable, f"{bigger} could have stayed"


@given(st.sampled_from(ORDERED), multisets)
def test_busy_instances_stay(have: Placed, want: list[str]) -> None:
    instances = listed(have)
    busy = [each.id for each in instances if each.start % 2]
    try:
        planned = plan(H200, instances, want, busy)
    except SlicingError:
        stay = {(each.profile, each.start) for each in instances if each.id in busy}
        assert not any(stay <= set(one) and sorted(n for n, _ in one) == sorted(want) for one in LEGAL)
    else:
        assert not {each.id for each in planned.destroy} & set(busy)


@pytest.mark.slow
@given(multisets, multisets)
def test_applying_plans_and_listing_gives_what_was_asked(first: list[str], second: list[str]) -> None:
    """On a GPU that refuses what the hardware refuses, from the text of its lists to commands and back."""
    smi = Smi()
    device = MigGpu(0, smi, dry_run=False)
    for want in (first, second, []):
        if tuple(sorted(want)) in MULTISETS:
            device.apply(plan(device.geometry(), device.instances(), want))
            assert sorted(each.profile for each in device.instances()) == sorted(want)
            assert smi.computing == set(smi.placed)


@pytest.mark.parametrize(
    "small", [["1g.18gb"], ["1g.18gb"] * 3, ["1g.18gb", "2g.35gb"], ["1g.35gb", "1g.18gb"]]
)
def test_small_instances_leave_room_for_a_large_one(small: list[str]) -> None:
    placed = placed_after([], plan(H200, [], small))
    assert tuple(sorted((*placed, ("4g.71gb", 0)))) in LEGAL


def test_the_commands_end_compute_instances_first_and_name_every_start_the_largest_first() -> None:
    have = [Instance(0, 8, "7g.141gb", 0)]
    planned = plan(H200, have, ["1g.18gb", "2g.35gb", "4g.71gb"])
    assert planned.commands(3) == (
        ("nvidia-smi", "mig", "-i", "3", "-dci", "-gi", "0"),
        ("nvidia-smi", "mig", "-i", "3", "-dgi", "-gi", "0"),
        ("nvidia-smi", "mig", "-i", "3", "-cgi", "5:0,14:4,19:6", "-C"),
    )


@pytest.mark.parametrize(
    "want",
    [
        ["7g.141gb", "1g.18gb"],
        ["4g.71gb", "3g.71gb", "1g.18gb"],
        ["4g.71gb", "4g.71gb"],
        ["1g.18gb+me", "1g.18gb+me"],
        ["2g.35gb"] * 4,
    ],
)
def test_what_no_layout_holds_is_refused(want: list[str]) -> None:
    with pytest.raises(SlicingError, match="no layout has the MIG instances"):
        plan(H200, [], want)


def test_a_profile_that_the_gpu_has_not_is_named_with_those_it_has() -> None:
    with pytest.raises(SlicingError, match=r"no MIG profile 3g\.40gb; there are 1g\.18gb, "):
        plan(H200, [], ["3g.40gb"])
