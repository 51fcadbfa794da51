"""`slices:` as SliceSpecs with real cores: named ones as they are, counted ones dealt from the rest."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from router.settings.machine.cgroups import quota
from router.settings.machine.gpus import (
    SlicedDevice,
    check_devices,
    check_processes,
    device_names,
    means_several,
    read_share,
    sliced_devices,
)
from router.settings.machine.interpreters import read_interpreter
from router.settings.machine.nodes import far_slices, on_nodes
from router.settings.machine.prices import Prices, machine_kind, share_price, slice_price
from router.settings.machine.rehearsal import check_layouts
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, shown
from router.settings.values.schema import SLICE_COUNT_MAX, SliceSection
from serving.values.slice_specs import PROCESS_COUNT_MAX, Share, SliceSpec

Cores = int | tuple[int, ...] | None
"""What a slice asks for: a count, named cores, or None for no pinning."""

_DEFAULT_NAME = "cpu"


def usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may run on, ascending (a container's or taskset's share)."""
    return tuple(sorted(os.sched_getaffinity(0)))


def default_slices(usable: Sequence[int] | None = None, allowed: float | None = None) -> tuple[str, ...]:
    """Return the names of the slices where `slices:` is left out: one of a core each for every usable core,
    so that none stands idle. The gateway has no core to itself then: it takes its time from the first idle
    one.

    A quota (`docker run --cpus 2`) counts whole cores of it: more slices than that would be stopped in the
    midst of their batches.
    """
    cores = len(usable_cores() if usable is None else usable)
    if allowed is None:
        allowed = quota()
    count = cores if allowed is None else max(1, min(cores, int(allowed)))
    return _names(_DEFAULT_NAME, None if count == 1 else count)


def deal_cores(wanted: Sequence[Cores], usable: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the cores of each slice, in the order of `wanted`; empty for one that asks for none.

    Counted cores are taken in order from those that no slice names. Where they run out the deal
    starts again, so that slices share cores; a slice never holds a core twice.
    """
    free = _free(wanted, usable)
    dealt: list[tuple[int, ...]] = []
    taken = 0
    for cores in wanted:
        if isinstance(cores, int):
            count = min(cores, len(free))
            dealt.append(tuple(sorted(free[(taken + step) % len(free)] for step in range(count))))
            taken += count
        else:
            dealt.append(cores or ())
    return dealt


def _free(wanted: Sequence[Cores], usable: Sequence[int]) -> list[int]:
    named = {core for cores in wanted if isinstance(cores, tuple) for core in cores}
    return [core for core in usable if core not in named] or list(usable)


def read_slices(findings: Findings, usable: Sequence[int], prices: Prices) -> tuple[SliceSpec, ...]:
    """Return the slices that are sound; without `slices:`, those of `default_slices`."""
    entries = findings.document.at(("slices",))
    if not isinstance(entries, list) or not entries:
        price = slice_price(prices, 1, spot=False)
        names = default_slices(usable)
        each_core = zip(names, deal_cores([1] * len(names), usable), strict=True)
        return tuple(SliceSpec(name, cores, price=price) for name, cores in each_core)
    sections = [findings.parse(SliceSection, ("slices", index)) for index in range(len(entries))]
    _check_names(findings, sections)
    _check_cores(findings, _local(sections), usable)
    _check_spot(findings, sections, prices)
    far = far_slices(findings, sections, prices)
    on_cores = [section for section in _local(sections) if section and section.device is None]
    each_one = [(name, section) for section in on_cores for name in _names(section.name, section.count)]
    dealt = iter(deal_cores([section.cores for _, section in each_one], usable))
    found: list[SliceSpec] = []
    asked: list[tuple[Loc, SlicedDevice, Share]] = []
    for index, section in enumerate(sections):
        if section is None:
            continue
        before = len(found)
        _check_keys(findings, ("slices", index), section)
        if section.node is not None:
            found += far[index]
        elif section.device is not None:
            found += _gpu_slices(findings, ("slices", index), section, prices, asked)
        else:
            names = _names(section.name, section.count)
            found += [_slice(name, section, next(dealt), prices) for name in names]
        python = _python(findings, index, section)
        found[before:] = [replace(spec, python=python) for spec in found[before:]]
    check_devices(findings, asked)
    check_layouts(findings, asked)
    return tuple(found)


def _local(sections: Sequence[SliceSection | None]) -> list[SliceSection | None]:
    """Return the entries at their indices, None for those of nodes and for faulty ones."""
    return [section if section and section.node is None else None for section in sections]


def _python(findings: Findings, index: int, section: SliceSection) -> str:
    """Return the interpreter of an entry's workers; of a node's, only the node can say whether it is
    there."""
    loc = ("slices", index, "python")
    if section.node is None:
        return read_interpreter(findings, loc, section.python)
    if section.python is not None and not os.path.isabs(section.python):
        findings.add(loc, fault("no absolute path", section.python, "a path as it is on the node"))
    return section.python or ""


def _slice(name: str, section: SliceSection, cores: tuple[int, ...], prices: Prices) -> SliceSpec:
    """Return a slice of cores. A slice without cores of its own costs what its threads can keep busy."""
    price = section.price
    if price is None:
        price = slice_price(prices, len(cores) or section.threads, spot=section.spot)
    return SliceSpec(
        name,
        cores,
        section.threads,
        memory_bytes=round((section.memory_mb or 0) * (1 << 20)),
        price=price,
        spot=section.spot,
    )


def _gpu_slices(
    findings: Findings,
    loc: Loc,
    section: SliceSection,
    prices: Prices,
    asked: list[tuple[Loc, SlicedDevice, Share]],
) -> list[SliceSpec]:
    """Return the slices of an entry on GPUs, device by device. Enter into `asked` what they ask for.

    Without `price` a slice costs its part of the GPU's price.
    """
    share, text = read_share(findings, loc, section.share), section.device or ""
    devices = sliced_devices(findings, loc, text)
    if share is None or not devices:
        return []
    if not check_processes(findings, loc, section, share):
        return []
    cores = section.cores if isinstance(section.cores, tuple) else ()
    part = share.with_processes(section.processes)
    names = iter(_entry_names(findings, section.name, text, section.count, section.processes))
    memory_bytes = round((section.memory_mb or 0) * (1 << 20))
    found: list[SliceSpec] = []
    for device in devices:
        whole_price = share_price(prices, device.kind, share, spot=section.spot)
        price = whole_price / section.processes if section.price is None else section.price
        for number in range(section.count or 1):
            asked.append((loc, device, share))
            instance = f"{section.name} {device.name} {number}" if section.processes > 1 else ""
            spec = SliceSpec("", cores, section.threads, device.name, part, memory_bytes, price, section.spot)
            spec = replace(spec, kind=device.kind, rehearsed=device.rehearsed, instance=instance)
            spec = replace(spec, rehearsal=device.rehearsal)
            found += [replace(spec, name=next(names)) for _ in range(section.processes)]
    return found


def _entry_names(
    findings: Findings, name: str, device: str | None, count: int | None, processes: int = 1
) -> tuple[str, ...]:
    """Return the names of an entry's slices: of one that may mean several devices they are numbered."""
    if device is None:
        return _names(name, count)
    if count is None and processes == 1 and not means_several(findings, device):
        return (name,)
    return _names(name, len(device_names(findings, device)) * (count or 1) * processes)


def _check_keys(findings: Findings, loc: Loc, section: SliceSection) -> None:
    """Add keys that only a slice on a GPU, or on a node, may have."""
    gpu_keys = ("share", section.share is not None), ("processes", section.processes > 1)
    for key, stated in gpu_keys if section.device is None else ():
        if stated:
            message = (
                f"`{key}` is of a GPU, and the entry names none; expected `device: cuda:0`, say, beside it"
            )
            findings.add((*loc, key), message, at_key=True)
    if section.kind is not None and section.node is None:
        message = "`kind` is of a node's device, and the entry names no node; expected `node:` beside it"
        findings.add((*loc, "kind"), message, at_key=True)
    if section.node_count is not None and section.node is None:
        message = "the entry names no node to count; expected `node:` beside `node_count`"
        findings.add((*loc, "node_count"), message, at_key=True)


def _names(name: str, count: int | None) -> tuple[str, ...]:
    """Return those of an entry: its own, or with `count` as many with a number behind it."""
    return (name,) if count is None else tuple(f"{name}-{number}" for number in range(1, count + 1))


def slice_entries(findings: Findings) -> Mapping[str, tuple[str, ...]]:
    """Return the slices of each entry, by its name, in the order of the file; those of faulty ones too. Empty
    where the names cannot be told."""
    entries = findings.document.at(("slices",))
    if entries is None:
        return {_DEFAULT_NAME: default_slices()}
    entries = entries if isinstance(entries, list) else []
    found: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            return {}
        processes, device = entry.get("processes"), entry.get("device")
        count, nodes = _stated(entry.get("count")), _stated(entry.get("node_count"))
        found.setdefault(
            name,
            _entry_names(
                findings,
                name,
                device if isinstance(device, str) else None,
                on_nodes(count, nodes),
                processes if type(processes) is int and 1 <= processes <= PROCESS_COUNT_MAX else 1,
            ),
        )
    return found


def _stated(count: object) -> int | None:
    return count if type(count) is int and 1 <= count <= SLICE_COUNT_MAX else None


def named_slices(entries: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> tuple[str, ...]:
    """Return the slices that a model names: single slices, or all of an entry by its name; all slices of all
    entries if it names none. A name that no entry has stays."""
    if not names:
        names = [*entries]
    return tuple(dict.fromkeys(each for name in names for each in entries.get(name, (name,))))


def _check_names(findings: Findings, sections: Sequence[SliceSection | None]) -> None:
    seen: set[str] = set()
    for index, section in enumerate(sections):
        if section is None:
            continue
        count = on_nodes(section.count, section.node_count)
        names = _entry_names(findings, section.name, section.device, count, section.processes)
        own = {section.name, *names}
        if twice := sorted(own & seen):
            findings.add(("slices", index, "name"), f"{shown(twice[0])} is used twice; name each slice once")
        seen |= own


def _check_cores(findings: Findings, sections: Sequence[SliceSection | None], usable: Sequence[int]) -> None:
    owners: dict[int, str] = {}
    counted = 0
    for index, section in enumerate(sections):
        if section is None:
            continue
        if section.device is not None:
            _check_gpu_cores(findings, index, section, usable)
        elif isinstance(section.cores, tuple):
            _check_named_cores(findings, index, section, owners, usable)
            _check_threads(findings, index, section, len(section.cores))
        elif section.cores is not None:
            counted += section.cores * (section.count or 1)
            _check_threads(findings, index, section, section.cores)
    named = [section.cores for section in sections if section and section.device is None]
    free = [core for core in usable if core not in owners]
    if counted > len(free):
        message = (
            f"the slices ask for {counted} cores by count, but only {len(free)} are free here; "
            f"they will share cores {_ranges(_free(named, usable))}"
        )
        findings.warn(("slices",), message)


def _check_named_cores(
    findings: Findings, index: int, section: SliceSection, owners: dict[int, str], usable: Sequence[int]
) -> None:
    loc = ("slices", index, "cores")
    named = section.cores if isinstance(section.cores, tuple) else ()
    if section.count is not None:
        expected = "a number of cores, that each of them has to itself"
        findings.add(loc, fault(f"the same cores for {section.count} slices", [*named], expected))
    for core in named:
        if core not in usable:
            findings.add(loc, fault("no such core here", core, f"cores from {_ranges(usable)}"))
        elif core in owners:
            findings.add(loc, f"core {core} is slice {shown(owners[core])}'s already; expected another")
        owners.setdefault(core, section.name)


def _check_gpu_cores(findings: Findings, index: int, section: SliceSection, usable: Sequence[int]) -> None:
    """Check the host cores of a GPU's workers: named ones only, which several slices may have."""
    loc = ("slices", index, "cores")
    if isinstance(section.cores, int):
        expected = "core numbers such as [0, 1], or no such key: the cores near the GPU"
        findings.add(loc, fault("a number of cores for a slice on a GPU", section.cores, expected))
    elif section.cores and (missing := [core for core in section.cores if core not in usable]):
        findings.add(loc, fault("no such core here", missing[0], f"cores from {_ranges(usable)}"))


def _check_threads(findings: Findings, index: int, section: SliceSection, core_count: int) -> None:
    if section.threads > core_count:
        message = f"{section.threads} threads on {core_count} of the machine's cores will take turns"
        findings.warn(("slices", index, "threads"), message)


def _check_spot(findings: Findings, sections: Sequence[SliceSection | None], prices: Prices) -> None:
    tariff = prices.get(machine_kind())
    if tariff is None or tariff.spot is not None:
        return
    for index in _spot_without_price(sections):
        message = (
            f"`prices:` has no spot price of {machine_kind()}; {tariff.on_demand:g} counts, that on demand"
        )
        findings.warn(("slices", index, "spot"), message)


def _spot_without_price(sections: Sequence[SliceSection | None]) -> Iterator[int]:
    for index, section in enumerate(sections):
        if section is not None and section.spot and section.price is None:
            yield index


def _ranges(cores: Sequence[int]) -> str:
    """Return cores as people list them, for example `0-3, 6`."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
