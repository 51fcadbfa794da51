"""MIG geometry: which GPU instances a GPU can be divided into, and where they may lie. Pure.

An instance takes memory slices start .. start + size - 1 of eight. A GPU has a few hundred legal layouts, so
all of them are listed once, and every question is a look-up: exact, and the same answer on every run.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A size of GPU instance: `name` ("3g.71gb") and NVML's `id`; `starts`: the memory slices that it may
    begin at, `size` of them; at most `instances_max` at a time; `memory_gib` usable, `sms` to compute on."""

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
"""Names of profiles, the largest first, as `multiset` orders them."""


def _table(names: Iterable[str], memory_gib: Iterable[float], sms: Iterable[int]) -> Geometry:
    """The table of A100, H100 and H200, which differ in names, memory and multiprocessors only (NVIDIA, MIG
    user guide; `nvidia-smi mig -lgipp`). Without 1g+me, an 1g with the media engines."""
    places = (
        (19, (0, 1, 2, 3, 4, 5, 6), 1, 7),
        (15, (0, 2, 4, 6), 2, 4),
        (14, (0, 2, 4), 2, 3),
        (9, (0, 4), 4, 2),
        (5, (0,), 4, 1),
        (0, (0,), 8, 1),
    )
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
H200_141 = _table(
    ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    (16.0, 32.25, 32.25, 69.5, 69.5, 139.0),
    _HOPPER_SMS,
)
"""What `nvidia-smi mig -lgip` lists; the memory of A100_80 is as its users report it."""

_KNOWN = (
    (r"gpu-nvidia-a100-(.+-)?40gb(-.+)?", A100_40),
    (r"gpu-nvidia-a100-(.+-)?80gb(-.+)?", A100_80),
    (r"gpu-nvidia-h100-80gb-hbm3", H100_80),
    (r"gpu-nvidia-h200", H200_141),
)


def known_geometry(kind: str) -> Geometry | None:
    """Of a kind of device ("gpu-nvidia-a100-sxm4-80gb"); None where only its driver knows it."""
    return next((geometry for pattern, geometry in _KNOWN if re.fullmatch(pattern, kind)), None)


@cache
def layouts(geometry: Geometry) -> tuple[Layout, ...]:
    """All legal ones, () and those with room left included: 298 of an A100 without its 1g of double memory,
    723 with it."""
    return tuple(sorted(_beside(geometry, 0, ())))


def multisets(geometry: Geometry) -> tuple[Multiset, ...]:
    """What the layouts consist of, wherever it lies, () included: 38, 78 with that 1g."""
    return tuple(_arrangements(geometry))


@cache
def maximal_layouts(geometry: Geometry) -> tuple[Layout, ...]:
    """Those to which nothing can be added: 19, 78 with that 1g."""
    return tuple(layout for layout in layouts(geometry) if not open_slices(geometry, layout))


@cache
def maximal_multisets(geometry: Geometry) -> tuple[Multiset, ...]:
    """What the maximal layouts consist of: 14, 38 with that 1g."""
    found = {multiset(geometry, names(layout)) for layout in maximal_layouts(geometry)}
    return tuple(each for each in multisets(geometry) if each in found)


def names(layout: Layout) -> tuple[str, ...]:
    """The profiles of its instances, by start."""
    return tuple(name for _, name in layout)


def multiset(geometry: Geometry, wanted: Iterable[str]) -> Multiset:
    """The names, the largest first; KeyError where one is no profile of the geometry."""
    rank = _ranks(geometry)
    return tuple(sorted(wanted, key=rank.__getitem__))


def arrangements(geometry: Geometry, wanted: Iterable[str]) -> tuple[Layout, ...]:
    """Every layout of instances of these profiles, that which leaves the most open first; () where there is
    none. KeyError as in `multiset`."""
    return _arrangements(geometry).get(multiset(geometry, wanted), ())


def place(geometry: Geometry, wanted: Iterable[str], kept: Collection[tuple[int, str]] = ()) -> Layout | None:
    """Where instances of these profiles lie when those of `kept` (start, profile), which are among them, stay
    where they are; None where they do not fit. Of all ways that which leaves the most open. KeyError as in
    `multiset`."""
    found = arrangements(geometry, wanted)
    return next((layout for layout in found if all(each in layout for each in kept)), None)


def open_slices(geometry: Geometry, layout: Layout) -> int:
    """What could still be created, weighted by size: 1g in a corner leaves room for 3g and 4g."""
    mask = _taken(geometry, layout)
    there = names(layout)
    return sum(
        profile.size * sum(not mask & _slices(profile, start) for start in profile.starts)
        for profile in geometry
        if there.count(profile.name) < profile.instances_max
    )


def _slices(profile: MigProfile, start: int) -> int:
    """The memory slices that it takes there, as bits."""
    return ((1 << profile.size) - 1) << start


def _taken(geometry: Geometry, layout: Layout) -> int:
    profiles = {profile.name: profile for profile in geometry}
    return sum(_slices(profiles[name], start) for start, name in layout)


def _beside(geometry: Geometry, first: int, before: Layout) -> Iterator[Layout]:
    """The layouts that begin with `before`, which ends before the memory slice `first`."""
    yield before
    for profile in geometry:
        if sum(name == profile.name for _, name in before) < profile.instances_max:
            for start in profile.starts:
                if start >= first:
                    yield from _beside(geometry, start + profile.size, (*before, (start, profile.name)))


@cache
def _ranks(geometry: Geometry) -> Mapping[str, int]:
    """The place of each profile when the largest comes first."""
    ordered = sorted(geometry, key=lambda profile: (-profile.size, -profile.sms, profile.name))
    return {profile.name: rank for rank, profile in enumerate(ordered)}


@cache
def _arrangements(geometry: Geometry) -> Mapping[Multiset, tuple[Layout, ...]]:
    """By multiset; of layouts that leave as much open, first those whose large instances begin early."""
    rank = _ranks(geometry)

    def worth(layout: Layout) -> tuple[int, list[int]]:
        starts = [start for _, start in sorted((rank[name], start) for start, name in layout)]
        return -open_slices(geometry, layout), starts

    found: dict[Multiset, list[Layout]] = {}
    for layout in layouts(geometry):
        found.setdefault(multiset(geometry, names(layout)), []).append(layout)
    by_rank = sorted(found, key=lambda each: [rank[name] for name in each])
    return {each: tuple(sorted(found[each], key=worth)) for each in by_rank}
