"""MIG geometry: which GPU instances a GPU can be divided into, and where they may lie.

An instance takes memory slices start .. start + size - 1 of its GPU. A GPU has a few hundred legal layouts.
The module lists all of them once, so that every query is an exact look-up with the same answer on every run.
All functions are pure.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A size of GPU instance: its `name` ("3g.71gb") and NVML's `id` for it.

    An instance begins at one of the memory slices `starts` and takes `size` of them. A GPU has at most
    `instances_max` such instances at a time. Each has `memory_gib` of usable memory and `sms`
    multiprocessors.
    """

    id: int
    name: str
    starts: tuple[int, ...]
    size: int
    instances_max: int
    memory_gib: float
    sms: int


Geometry = tuple[MigProfile, ...]

Layout = tuple[tuple[int, str], ...]
"""(first memory slice, profile) of each instance of a GPU, ascending."""
Multiset = tuple[str, ...]
"""Names of profiles, the largest first, in the order of `multiset`."""


def _table(names: Iterable[str], memory_gib: Iterable[float], sms: Iterable[int]) -> Geometry:
    """Return the table of A100, H100, H200 and B200, which differ in names, memory and multiprocessors only.

    The source is NVIDIA's MIG user guide and `nvidia-smi mig -lgipp`. The table leaves out 1g+me, a 1g with
    the media engines.
    """
    return _placed(_EIGHTHS, names, memory_gib, sms)


_Place = tuple[int, tuple[int, ...], int, int]
"""NVML's id of a profile, its starts, its size, and how many there may be."""

_EIGHTHS: tuple[_Place, ...] = (
    (19, (0, 1, 2, 3, 4, 5, 6), 1, 7),
    (15, (0, 2, 4, 6), 2, 4),
    (14, (0, 2, 4), 2, 3),
    (9, (0, 4), 4, 2),
    (5, (0,), 4, 1),
    (0, (0,), 8, 1),
)
_QUARTERS: tuple[_Place, ...] = ((14, (0, 1, 2, 3), 1, 4), (5, (0, 2), 2, 2), (0, (0,), 4, 1))
_TWELFTHS: tuple[_Place, ...] = ((14, (0, 3, 6, 9), 3, 4), (5, (0, 6), 6, 2), (0, (0,), 12, 1))


def _placed(
    places: Iterable[_Place], names: Iterable[str], memory_gib: Iterable[float], sms: Iterable[int]
) -> Geometry:
    return tuple(
        MigProfile(number, name, starts, size, most, gib, count)
        for (number, starts, size, most), name, gib, count in zip(places, names, memory_gib, sms, strict=True)
    )


_AMPERE_SMS = (14, 14, 28, 42, 56, 98)
_HOPPER_SMS = (16, 26, 32, 60, 64, 132)
_NAMES_80 = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")

A100_40 = _table(
    ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    (4.75, 9.62, 9.62, 19.5, 19.5, 39.25),
    _AMPERE_SMS,
)
A100_80 = _table(_NAMES_80, (9.5, 19.5, 19.5, 39.25, 39.25, 78.75), _AMPERE_SMS)
H100_80 = _table(_NAMES_80, (9.75, 19.62, 19.62, 39.5, 39.5, 79.25), _HOPPER_SMS)
H100_PCIE = _table(_NAMES_80, (9.75, 19.62, 19.62, 39.5, 39.5, 79.25), (14, 14, 30, 46, 62, 114))
H100_NVL = _table(
    ("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    (10.62, 21.5, 21.5, 46.12, 46.12, 92.62),
    _HOPPER_SMS,
)
GH200_96 = _table(
    ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    (11.0, 23.0, 23.0, 46.5, 46.5, 93.0),
    _HOPPER_SMS,
)
H200_141 = _table(
    ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    (16.0, 32.25, 32.25, 69.5, 69.5, 139.0),
    _HOPPER_SMS,
)
B200_180 = _table(
    ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    (20.5, 44.25, 44.25, 89.0, 89.0, 178.5),
    (18, 30, 36, 70, 72, 148),
)
A30 = _placed(_QUARTERS, ("1g.6gb", "2g.12gb", "4g.24gb"), (5.81, 11.69, 23.44), (14, 28, 56))
RTX_PRO_6000 = _placed(_TWELFTHS, ("1g.24gb", "2g.48gb", "4g.96gb"), (23.12, 46.5, 95.0), (46, 94, 188))
"""The values that `nvidia-smi mig -lgip` lists. Where drivers differ, the memory is the least that they list.

The memory of A100_80 is as its users report it. Of RTX_PRO_6000 the profiles without suffix are here: those
with "+gfx", "+me", "+me.all" and "-me" have the same places. Names, fractions and counts are as in "Supported
MIG Profiles" of NVIDIA's MIG user guide. Of B200_180 the memory and multiprocessors up to 2g are as in
NVIDIA/gpu-operator#1351, the others as an owner lists them. H20, H200 NVL and GH200 with 144 GB are not here:
the guide names their profiles, but no full list of memory and multiprocessors was found. Their drivers tell.
"""

_KNOWN = (
    (r"gpu-nvidia-a30", A30),
    (r"gpu-nvidia-a100-(.+-)?40gb(-.+)?", A100_40),
    (r"gpu-nvidia-a100-(.+-)?80gb(-.+)?", A100_80),
    (r"gpu-nvidia-h100-80gb-hbm3", H100_80),
    (r"gpu-nvidia-h100-pcie", H100_PCIE),
    (r"gpu-nvidia-h100-nvl", H100_NVL),
    (r"gpu-nvidia-gh200-480gb", GH200_96),
    (r"gpu-nvidia-h200", H200_141),
    (r"gpu-nvidia-b200", B200_180),
    (r"gpu-nvidia-rtx-pro-6000-blackwell-(.+-)?edition", RTX_PRO_6000),
)
_PLAIN = re.compile(r"\d+g\.\d+gb", re.ASCII)


def known_geometry(kind: str) -> Geometry | None:
    """Return the geometry of a device kind ("gpu-nvidia-a100-sxm4-80gb").

    Return None if only the device's driver knows it.
    """
    return next((geometry for pattern, geometry in _KNOWN if re.fullmatch(pattern, kind)), None)


def plain(geometry: Geometry) -> Geometry:
    """Return the profiles that differ in computing: without those that add or leave out media or graphics."""
    return tuple(each for each in geometry if _PLAIN.fullmatch(each.name))


@cache
def layouts(geometry: Geometry) -> tuple[Layout, ...]:
    """Return all legal layouts, including () and layouts with room left.

    An A100 has 298 without its 1g of double memory, and 723 with it.
    """
    return tuple(sorted(_beside(geometry, 0, ())))


def multisets(geometry: Geometry) -> tuple[Multiset, ...]:
    """Return the multisets of instances that form a legal layout, wherever they lie, including ().

    An A100 has 38 without its 1g of double memory, and 78 with it.
    """
    return tuple(_arrangements(geometry))


@cache
def maximal_layouts(geometry: Geometry) -> tuple[Layout, ...]:
    """Return the layouts to which no instance can be added: 19 for an A100, 78 with that 1g."""
    return tuple(layout for layout in layouts(geometry) if not open_slices(geometry, layout))


@cache
def maximal_multisets(geometry: Geometry) -> tuple[Multiset, ...]:
    """Return the multisets of the maximal layouts: 14 for an A100, 38 with that 1g."""
    found = {multiset(geometry, names(layout)) for layout in maximal_layouts(geometry)}
    return tuple(each for each in multisets(geometry) if each in found)


def names(layout: Layout) -> tuple[str, ...]:
    """Return the profiles of the layout's instances, in the order of their starts."""
    return tuple(name for _, name in layout)


def multiset(geometry: Geometry, wanted: Iterable[str]) -> Multiset:
    """Return the names, the largest first; raise KeyError if one is no profile of the geometry."""
    rank = _ranks(geometry)
    return tuple(sorted(wanted, key=rank.__getitem__))


def arrangements(geometry: Geometry, wanted: Iterable[str]) -> tuple[Layout, ...]:
    """Return every layout of instances of these profiles, the one that leaves the most open first.

    Return () if there is none. Raise KeyError as `multiset` does.
    """
    return _arrangements(geometry).get(multiset(geometry, wanted), ())


def place(geometry: Geometry, wanted: Iterable[str], kept: Collection[tuple[int, str]] = ()) -> Layout | None:
    """Return the layout of instances of these profiles in which all instances of `kept` stay where they are.

    `kept`: (start, profile) of some of the wanted instances. Of several layouts, return the one that leaves
    the most open. Return None if the instances do not fit. Raise KeyError as `multiset` does.
    """
    found = arrangements(geometry, wanted)
    return next((layout for layout in found if all(each in layout for each in kept)), None)


def without(geometry: Geometry, lost: Layout) -> Geometry:
    """Return the profiles that still fit beside these instances, with the places where they do. Nothing is
    created where a lost instance lies. Raise KeyError if `lost` has an unknown profile."""
    mask = _taken(geometry, lost)
    found = (
        replace(profile, starts=tuple(each for each in profile.starts if not mask & _slices(profile, each)))
        for profile in geometry
    )
    return tuple(each for each in found if each.starts)


def open_slices(geometry: Geometry, layout: Layout) -> int:
    """Return how much could still be created, weighted by size.

    For example, a 1g in a corner leaves room for 3g and 4g.
    """
    return sum(profile.size * len(starts) for profile, starts in _room(geometry, layout))


def room(geometry: Geometry, layout: Layout) -> dict[str, tuple[int, ...]]:
    """Return where one more instance of each profile could begin; the largest profile first, and none
    without a place. Raise KeyError if `layout` has an unknown profile."""
    rank = _ranks(geometry)
    found = {profile.name: tuple(starts) for profile, starts in _room(geometry, layout) if starts}
    return {name: found[name] for name in sorted(found, key=rank.__getitem__)}


def _room(geometry: Geometry, layout: Layout) -> Iterator[tuple[MigProfile, list[int]]]:
    mask = _taken(geometry, layout)
    there = names(layout)
    for profile in geometry:
        if there.count(profile.name) < profile.instances_max:
            yield profile, [start for start in profile.starts if not mask & _slices(profile, start)]


def _slices(profile: MigProfile, start: int) -> int:
    """Return the memory slices that an instance takes from `start` on, as bits."""
    return ((1 << profile.size) - 1) << start


def _taken(geometry: Geometry, layout: Layout) -> int:
    profiles = {profile.name: profile for profile in geometry}
    return sum(_slices(profiles[name], start) for start, name in layout)


def _beside(geometry: Geometry, first: int, before: Layout) -> Iterator[Layout]:
    """Yield the layouts that begin with `before`, which ends before the memory slice `first`."""
    yield before
    for profile in geometry:
        if sum(name == profile.name for _, name in before) < profile.instances_max:
            for start in profile.starts:
                if start >= first:
                    yield from _beside(geometry, start + profile.size, (*before, (start, profile.name)))


@cache
def _ranks(geometry: Geometry) -> Mapping[str, int]:
    """Return the place of each profile in the order that has the largest first."""
    ordered = sorted(geometry, key=lambda profile: (-profile.size, -profile.sms, profile.name))
    return {profile.name: rank for rank, profile in enumerate(ordered)}


@cache
def _arrangements(geometry: Geometry) -> Mapping[Multiset, tuple[Layout, ...]]:
    """Return the layouts of each multiset, the ones that leave the most open first.

    Of layouts that leave the same open, those with large instances at early starts come first.
    """
    rank = _ranks(geometry)

    def worth(layout: Layout) -> tuple[int, list[int]]:
        starts = [start for _, start in sorted((rank[name], start) for start, name in layout)]
        return -open_slices(geometry, layout), starts

    found: dict[Multiset, list[Layout]] = {}
    for layout in layouts(geometry):
        found.setdefault(multiset(geometry, names(layout)), []).append(layout)
    by_rank = sorted(found, key=lambda each: [rank[name] for name in each])
    return {each: tuple(sorted(found[each], key=worth)) for each in by_rank}
