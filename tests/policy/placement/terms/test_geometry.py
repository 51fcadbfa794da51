"""What the MIG geometry promises: the hardware's table, all of its layouts, no other, the most room left."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.terms.geometry import (
    A30,
    A100_40,
    A100_80,
    B200_180,
    GH200_96,
    H100_80,
    H100_NVL,
    H100_PCIE,
    H200_141,
    RTX_PRO_6000,
    Geometry,
    Layout,
    MigProfile,
    arrangements,
    known_geometry,
    layouts,
    maximal_layouts,
    maximal_multisets,
    multiset,
    multisets,
    names,
    open_slices,
    place,
    plain,
    room,
    without,
)
from serving.profile.device import gpu_kind
from serving.runtime.slicing.mig.mig_text import geometry as listed
from tests.runtime.slicing.smi import captured, table
from tests.seeds import drawn

BASE = tuple(profile for profile in A100_80 if profile.name != "1g.20gb")
SIZES = {profile.name: profile for profile in A100_80}
wanted = st.lists(st.sampled_from(sorted(SIZES)), max_size=7)


def legal(layout: Layout) -> bool:
    """Memory slice by memory slice, as the hardware would see it."""
    taken = Counter(memory for start, name in layout for memory in range(start, start + SIZES[name].size))
    count = Counter(names(layout))
    return (
        all(start in SIZES[name].starts for start, name in layout)
        and all(held == 1 and memory < 8 for memory, held in taken.items())
        and all(count[name] <= profile.instances_max for name, profile in SIZES.items())
    )


def by_hand(want: list[str]) -> set[Layout]:
    """Every way to place them, one after the other, by trying all starts of each."""
    found: set[Layout] = {()}
    for name in want:
        grown = {tuple(sorted((*layout, (start, name)))) for layout in found for start in range(8)}
        found = {layout for layout in grown if legal(layout)}
    return found


@pytest.mark.parametrize(("geometry", "counts"), [(BASE, (298, 38, 19, 14)), (A100_80, (723, 78, 78, 38))])
def test_there_are_as_many_layouts_as_nvml_allows(geometry: Geometry, counts: tuple[int, ...]) -> None:
    """All, their multisets, those that are full and the multisets of those; the empty one is among the first
    two."""
    lists = layouts(geometry), multisets(geometry), maximal_layouts(geometry), maximal_multisets(geometry)
    assert tuple(len(each) for each in lists) == counts
    assert all(len(set(each)) == len(each) for each in lists)


def test_the_layouts_are_all_legal_and_none_is_missing() -> None:
    """Built up here one instance at a time from the memory slices that each one takes."""
    found: set[Layout] = {()}
    frontier: set[Layout] = {()}
    alone = [(start, name) for name, profile in SIZES.items() for start in profile.starts]
    while frontier:
        grown = {tuple(sorted((*layout, one))) for layout in frontier for one in alone}
        frontier = {layout for layout in grown if legal(layout)} - found
        found |= frontier
    assert set(layouts(A100_80)) == found
    full = {layout for layout in found if not any(set(layout) < set(other) for other in found)}
    assert set(maximal_layouts(A100_80)) == full


@pytest.mark.parametrize(("geometry", "device"), [(A100_40, "a100"), (H100_80, "h100"), (H200_141, "h200")])
def test_the_known_tables_are_what_nvidia_smi_lists(geometry: Geometry, device: str) -> None:
    """All of it but the 1g with the media engines, of which there is only one."""
    assert geometry == tuple(each for each in table(device) if not each.name.endswith("+me"))


@pytest.mark.parametrize(
    ("geometry", "device"), [(A30, "a30"), (H100_PCIE, "h100-pcie"), (GH200_96, "gh200")]
)
def test_further_tables_are_what_nvidia_smi_lists(geometry: Geometry, device: str) -> None:
    placements = captured("a30-lgipp" if device == "a30" else "lgipp")
    assert plain(listed(captured(f"{device}-lgip"), placements, 0)) == geometry


@pytest.mark.parametrize(("device", "geometry"), [("h100-nvl", H100_NVL), ("rtx-pro-6000", RTX_PRO_6000)])
def test_where_drivers_list_unlike_memory_the_table_has_the_least(device: str, geometry: Geometry) -> None:
    placements = captured("rtx-pro-6000-lgipp" if geometry is RTX_PRO_6000 else "lgipp")
    found = plain(listed(captured(f"{device}-lgip"), placements, 0))
    assert [replace(each, memory_gib=0) for each in found] == [
        replace(each, memory_gib=0) for each in geometry
    ]
    assert all(0 <= each.memory_gib - one.memory_gib <= 1 for each, one in zip(found, geometry, strict=True))


def test_of_b200_the_small_profiles_are_what_nvidia_smi_lists() -> None:
    found = plain(listed(captured("b200-lgip"), captured("lgipp"), 0))
    for each, known in zip(found, B200_180, strict=False):
        assert replace(each, memory_gib=known.memory_gib) == known
        assert 0 <= each.memory_gib - known.memory_gib <= 2  # another driver lists less
    assert [each.name for each in B200_180] == [
        "1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb",
    ]  # fmt: skip
    assert B200_180[-1].sms == 148


@pytest.mark.parametrize(("geometry", "counts"), [(A30, (4, 2, 1)), (RTX_PRO_6000, (4, 2, 1))])
def test_a_gpu_of_four_parts_is_halved_or_quartered(geometry: Geometry, counts: tuple[int, ...]) -> None:
    assert tuple(each.instances_max for each in geometry) == counts
    small, half, whole = (each.name for each in geometry)
    assert set(maximal_multisets(geometry)) == {
        (whole,), (half, half), (half, small, small), (small, small, small, small),
    }  # fmt: skip
    assert len(maximal_layouts(geometry)) == 5  # the half first or last


def test_profiles_that_differ_in_media_or_graphics_only_are_left_out() -> None:
    names = ("1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "4g.96gb")
    geometry = tuple(replace(RTX_PRO_6000[0], name=name) for name in names)
    assert [each.name for each in plain(geometry)] == ["1g.24gb", "4g.96gb"]


def test_all_known_tables_place_alike() -> None:
    alike = (A100_40, A100_80, H100_80, H100_PCIE, H100_NVL, GH200_96, B200_180)
    placed = {tuple((each.id, each.starts, each.size) for each in geometry) for geometry in alike}
    assert placed == {tuple((each.id, each.starts, each.size) for each in H200_141)}


@pytest.mark.parametrize(
    ("name", "geometry"),
    [
        ("NVIDIA A100-SXM4-40GB", A100_40),
        ("NVIDIA A100-PCIE-40GB", A100_40),
        ("NVIDIA A100-SXM4-80GB", A100_80),
        ("NVIDIA A100 80GB PCIe", A100_80),
        ("NVIDIA H100 80GB HBM3", H100_80),
        ("NVIDIA H200", H200_141),
        ("NVIDIA A30", A30),
        ("NVIDIA H100 NVL", H100_NVL),
        ("NVIDIA H100 PCIe", H100_PCIE),
        ("NVIDIA GH200 480GB", GH200_96),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", RTX_PRO_6000),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", RTX_PRO_6000),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", RTX_PRO_6000),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H20", None),
        ("NVIDIA B200", B200_180),
        ("NVIDIA GH200 144G HBM3e", None),
        ("Tesla T4", None),
    ],
)
def test_a_device_is_known_by_its_kind(name: str, geometry: Geometry | None) -> None:
    """NVML's names. What is not known for sure is not said."""
    assert known_geometry(gpu_kind(name)) is geometry


def test_no_cpu_has_mig_instances() -> None:
    assert known_geometry("cpu-amd-epyc-f25m17") is None


@settings(max_examples=drawn(50))
@given(wanted)
def test_instances_are_placed_where_nothing_overlaps_or_are_refused_rightly(want: list[str]) -> None:
    placed = place(A100_80, want)
    possible = by_hand(want)
    if placed is None:
        assert not possible
    else:
        assert placed in possible
        assert set(arrangements(A100_80, want)) == possible
        assert open_slices(A100_80, placed) == max(open_slices(A100_80, each) for each in possible)


@settings(max_examples=drawn(50))
@given(st.sampled_from(layouts(A100_80)), st.sets(st.integers(0, 7)), wanted)
def test_instances_that_stay_keep_their_start(have: Layout, stay: set[int], more: list[str]) -> None:
    kept = tuple(each for each in have if each[0] in stay)
    want = [*names(kept), *more]
    placed = place(A100_80, want, kept)
    possible = {layout for layout in by_hand(want) if set(kept) <= set(layout)}
    if placed is None:
        assert not possible
    else:
        assert placed in possible
        assert open_slices(A100_80, placed) == max(open_slices(A100_80, each) for each in possible)


@pytest.mark.parametrize(
    ("want", "kept"),
    [
        (["3g.40gb", "1g.10gb"], [(4, "3g.40gb"), (6, "1g.10gb")]),
        (["4g.40gb", "1g.10gb"], [(0, "4g.40gb"), (2, "1g.10gb")]),
        (["2g.20gb"], [(1, "2g.20gb")]),
        (["7g.80gb", "1g.10gb"], []),
        (["4g.40gb", "3g.40gb", "1g.10gb"], []),
        (["1g.10gb"] * 8, []),
        (["1g.10gb"], [(0, "1g.10gb"), (1, "1g.10gb")]),
    ],
)
def test_what_the_hardware_refuses_is_refused(want: list[str], kept: list[tuple[int, str]]) -> None:
    assert place(A100_80, want, kept) is None


@pytest.mark.parametrize(
    "small", [["1g.10gb"], ["1g.10gb"] * 3, ["1g.10gb", "2g.20gb"], ["1g.20gb", "1g.10gb"]]
)
def test_small_instances_leave_room_for_a_large_one(small: list[str]) -> None:
    placed = place(A100_80, small)
    assert placed is not None
    assert place(A100_80, [*small, "4g.40gb"], placed) is not None


@given(wanted)
def test_the_order_of_names_does_not_matter(want: list[str]) -> None:
    assert multiset(A100_80, want) == multiset(A100_80, reversed(want))
    assert place(A100_80, want) == place(A100_80, sorted(want))
    assert sorted(multiset(A100_80, want)) == sorted(want)
    sizes = [SIZES[name].size for name in multiset(A100_80, want)]
    assert sizes == sorted(sizes, reverse=True)


def test_a_profile_that_the_geometry_has_not_is_an_error() -> None:
    with pytest.raises(KeyError):
        place(A100_80, ["3g.71gb"])


def test_nothing_has_nowhere_to_lie_and_everything_open() -> None:
    assert place(A100_80, []) == ()
    assert open_slices(A100_80, ()) == sum(each.size * len(each.starts) for each in A100_80)
    assert layouts(()) == ((),)


def test_a_profile_that_is_used_up_leaves_nothing_of_it_open() -> None:
    once = (MigProfile(1, "1g", (0, 1, 2), 1, 1, 1.0, 1),)
    assert layouts(once) == ((), ((0, "1g"),), ((1, "1g"),), ((2, "1g"),))
    assert maximal_layouts(once) == (((0, "1g"),), ((1, "1g"),), ((2, "1g"),))


@given(st.sampled_from(layouts(A100_80)), wanted)
def test_beside_lost_instances_fits_exactly_what_would_fit_beside_them(lost: Layout, want: list[str]) -> None:
    left = without(A100_80, lost)
    known = {each.name for each in left}
    room = known.issuperset(want) and bool(arrangements(left, want))
    both = arrangements(A100_80, [*want, *names(lost)])
    assert room == any(set(lost) <= set(layout) for layout in both)


def test_without_anything_lost_a_geometry_is_the_same_and_a_whole_gpu_leaves_nothing() -> None:
    assert without(H200_141, ()) == H200_141
    assert without(H200_141, ((0, "7g.141gb"),)) == ()


@settings(max_examples=drawn(200))
@given(wanted)
def test_room_names_each_instance_that_could_be_added_and_no_other(want: list[str]) -> None:
    layout = place(A100_80, want)
    if layout is None:
        return
    found = {(start, name) for name, starts in room(A100_80, layout).items() for start in starts}
    possible = {(start, name) for name, profile in SIZES.items() for start in profile.starts}
    assert found == {each for each in possible if legal(tuple(sorted((*layout, each))))}


def test_the_largest_instance_with_room_is_named_first() -> None:
    assert [*room(H200_141, ((0, "3g.71gb"),))] == ["3g.71gb", "2g.35gb", "1g.35gb", "1g.18gb"]
    assert room(H200_141, ((0, "7g.141gb"),)) == {}
