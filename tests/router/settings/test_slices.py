"""Dealing cores to slices, over all small machines and wishes."""

from hypothesis import given
from hypothesis import strategies as st

from router.settings.slices import Cores, deal_cores

machines = st.sets(st.integers(0, 7), min_size=1, max_size=6).map(sorted)


@st.composite
def wishes(draw: st.DrawFn) -> tuple[list[Cores], list[int]]:
    usable = draw(machines)
    owners = draw(st.lists(st.sampled_from(["-", "a", "b"]), min_size=len(usable), max_size=len(usable)))
    named = [tuple(core for core, owner in zip(usable, owners, strict=True) if owner == x) for x in "ab"]
    counted: list[Cores] = draw(st.lists(st.one_of(st.none(), st.integers(1, 5)), max_size=4))
    wanted: list[Cores] = [cores for cores in named if cores]
    return draw(st.permutations(wanted + counted)), usable


@given(wishes())
def test_named_cores_are_given_as_named_and_none_means_not_pinned(
    case: tuple[list[Cores], list[int]],
) -> None:
    wanted, usable = case
    for cores, dealt in zip(wanted, deal_cores(wanted, usable), strict=True):
        if not isinstance(cores, int):
            assert dealt == (cores or ())


@given(wishes())
def test_a_count_gets_that_many_distinct_usable_cores_or_all_that_are_free(
    case: tuple[list[Cores], list[int]],
) -> None:
    wanted, usable = case
    named = {core for cores in wanted if isinstance(cores, tuple) for core in cores}
    free = [core for core in usable if core not in named]
    for cores, dealt in zip(wanted, deal_cores(wanted, usable), strict=True):
        if isinstance(cores, int):
            assert len(set(dealt)) == len(dealt) == min(cores, len(free or usable))
            assert set(dealt) <= set(free or usable)


@given(wishes())
def test_no_core_is_shared_while_one_is_free(case: tuple[list[Cores], list[int]]) -> None:
    wanted, usable = case
    named = {core for cores in wanted if isinstance(cores, tuple) for core in cores}
    counted = sum(cores for cores in wanted if isinstance(cores, int))
    dealt = [core for cores in deal_cores(wanted, usable) for core in cores]
    if counted + len(named) <= len(usable):
        assert len(set(dealt)) == len(dealt)
    elif len(named) < len(usable):
        assert set(dealt) == set(usable)


def test_counts_take_cores_in_order_from_those_that_nobody_names() -> None:
    assert deal_cores([2, (1,), 1, None], [0, 1, 2, 3]) == [(0, 2), (1,), (3,), ()]
    assert deal_cores([1, 2], [4, 5]) == [(4,), (4, 5)]
