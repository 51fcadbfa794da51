"""Every way to divide a device, and none that another outdoes."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.placement.formulation.division import WAYS_MAX, divide
from serving.policy.placement.terms.geometry import A100_80, H200_141, Geometry
from serving.policy.placement.terms.problem import Instances, Parts, Pool
from serving.values.slice_specs import Share
from tests.policy.placement.builders import devices, mig_pool, mps_pool, option

CLASSIC = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


def parts_pool(total: float, slices_max: int, memory_bytes: int = 0) -> Pool:
    return Pool("gpu", "gpu", Parts("mps", total, slices_max), devices("gpu", 1), 1.0, memory_bytes)


def test_an_a100_has_twelve_ways_that_none_outdoes() -> None:
    """As multisets of compute slices (NVIDIA, MIG user guide)."""
    found = divide(mig_pool(1), [Share.parse(f"mig:{name}") for name in CLASSIC])
    sizes = (1, 2, 3, 4, 7)
    ways = {
        tuple(size for size, count in zip(sizes, way, strict=True) for _ in range(int(count)))
        for way in found.gives
    }
    assert ways == {
        (7,), (3, 4), (1, 2, 4), (1, 1, 1, 4), (3, 3), (2, 2, 3), (1, 1, 2, 3), (1, 1, 1, 1, 3),
        (1, 2, 2, 2), (1, 1, 1, 2, 2), (1, 1, 1, 1, 1, 2), (1,) * 7,
    }  # fmt: skip


def test_sizes_that_nobody_uses_are_left_out() -> None:
    found = divide(mig_pool(1), [Share.parse("mig:3g.40gb"), Share.parse("mig:1g.10gb")])
    assert set(found.gives) == {(2.0, 0.0), (1.0, 4.0), (0.0, 7.0)}


@pytest.mark.parametrize("geometry", [A100_80, H200_141])
def test_no_way_outdoes_another(geometry: Geometry) -> None:
    pool = Pool("gpu", "gpu", Instances(geometry), devices("gpu", 1))
    gives = divide(pool, [Share.parse(f"mig:{each.name}") for each in geometry]).gives
    assert not any(
        one != other and all(left <= right for left, right in zip(one, other, strict=True))
        for one, other in product(gives, gives)
    )


def filled(amounts: Sequence[float], total: float, slices_max: int) -> Iterator[tuple[float, ...]]:
    """The ways to which nothing can be added, by trying all."""
    ranges = [range(int(total / amount) + 1) for amount in amounts]
    for way in product(*ranges):
        left = total - sum(count * amount for count, amount in zip(way, amounts, strict=True))
        room = not slices_max or sum(way) < slices_max
        if left >= 0 and (not slices_max or sum(way) <= slices_max) and not (room and left >= min(amounts)):
            yield tuple(map(float, way))


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True), st.integers(9, 14), st.integers(0, 4)
)
def test_amounts_are_cut_in_every_way_that_leaves_no_room(
    amounts: list[int], total: int, slices_max: int
) -> None:
    shares = [Share("mps", float(amount)) for amount in amounts]
    found = divide(parts_pool(total, slices_max), shares).gives
    assert sorted(found) == sorted(filled(amounts, total, slices_max))


def test_tenths_come_to_a_whole() -> None:
    assert divide(parts_pool(1.0, 0), [Share("mps", 0.1)]).gives == ((10.0,),)


def test_memory_is_a_resource_where_it_is_shared_and_limited() -> None:
    way = option("mps:50", 1.0, memory_bytes=5)
    found = divide(mps_pool(1, memory_bytes=20), [way.share])
    assert (found.gives, found.taken(way).resources) == (((2.0, 1.0),), ((0, 1.0), (1, 0.25)))
    heavy = option("mig:3g.40gb", 1.0, memory_bytes=5)
    alone = divide(mig_pool(1), [heavy.share])
    assert (alone.gives, alone.taken(heavy).resources) == (((2.0,),), ((0, 1.0),))


@pytest.mark.parametrize("slices_max", [0, 4])
def test_too_many_ways_are_one_way_to_give_the_whole_amount(slices_max: int) -> None:
    shares = [Share("mps", float(amount)) for amount in range(1, 101)]
    assert len(shares) < WAYS_MAX
    found = divide(parts_pool(100, slices_max, memory_bytes=10), shares)
    taken = found.taken(option("mps:30", 1.0, memory_bytes=5)).resources
    if slices_max:
        assert (found.gives, taken) == (((1.0, 1.0, 1.0),), ((0, 0.3), (1, 0.25), (2, 0.5)))
    else:
        assert (found.gives, taken) == (((1.0, 1.0),), ((0, 0.3), (1, 0.5)))


def test_the_part_of_a_device_is_by_memory_slices_or_by_amount() -> None:
    mig, mps = option("mig:3g.40gb", 1.0), option("mps:30", 1.0)
    assert divide(mig_pool(1), [mig.share]).taken(mig).part == 0.5
    assert divide(mps_pool(1), [mps.share]).taken(mps).part == 0.3
