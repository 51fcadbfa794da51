"""`slices:` as SliceSpecs with real cores: named ones as they are, counted ones dealt from the rest."""

import os
from collections.abc import Sequence

from router.settings.findings import Findings
from router.settings.problems import fault, shown
from router.settings.schema import SliceSection
from serving.specs import SliceSpec

Cores = int | tuple[int, ...] | None
"""What a slice asks for: a count, named cores, or None for no pinning."""

_DEFAULT_NAME = "cpu"


def usable_cores() -> tuple[int, ...]:
    """The cores that this process may run on, ascending (a container's or taskset's share)."""
    return tuple(sorted(os.sched_getaffinity(0)))


def deal_cores(wanted: Sequence[Cores], usable: Sequence[int]) -> list[tuple[int, ...]]:
    """The cores of each slice, in the order of `wanted`; empty for one that asks for none.

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


def read_slices(findings: Findings, usable: Sequence[int]) -> tuple[SliceSpec, ...]:
    """The slices that are sound; without `slices:`, one named `cpu` on one core."""
    entries = findings.document.at(("slices",))
    if not isinstance(entries, list) or not entries:
        return (SliceSpec(_DEFAULT_NAME, deal_cores([1], usable)[0]),)
    sections = [findings.parse(SliceSection, ("slices", index)) for index in range(len(entries))]
    _check_names(findings, sections)
    _check_cores(findings, sections, usable)
    sound = [section for section in sections if section is not None]
    dealt = deal_cores([section.cores for section in sound], usable)
    return tuple(
        SliceSpec(
            section.name,
            cores,
            section.threads,
            memory_bytes=round((section.memory_mb or 0) * (1 << 20)),
            price=section.price,
        )
        for section, cores in zip(sound, dealt, strict=True)
    )


def slice_names(findings: Findings) -> list[str]:
    """The names that a model may use, those of faulty slices too; empty where they cannot be told."""
    entries = findings.document.at(("slices",))
    if entries is None:
        return [_DEFAULT_NAME]
    entries = entries if isinstance(entries, list) else []
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
    known = [name for name in names if isinstance(name, str)]
    return known if len(known) == len(names) else []


def _check_names(findings: Findings, sections: Sequence[SliceSection | None]) -> None:
    seen: set[str] = set()
    for index, section in enumerate(sections):
        if section is None:
            continue
        if section.name in seen:
            findings.add(
                ("slices", index, "name"), f"{shown(section.name)} is used twice; name each slice once"
            )
        seen.add(section.name)


def _check_cores(findings: Findings, sections: Sequence[SliceSection | None], usable: Sequence[int]) -> None:
    owners: dict[int, str] = {}
    counted = 0
    for index, section in enumerate(sections):
        loc = ("slices", index, "cores")
        if section is None:
            continue
        if isinstance(section.cores, tuple):
            for core in section.cores:
                if core not in usable:
                    findings.add(loc, fault("no such core here", core, f"cores from {_ranges(usable)}"))
                elif core in owners:
                    findings.add(
                        loc, f"core {core} is slice {shown(owners[core])}'s already; expected another"
                    )
                owners.setdefault(core, section.name)
            _check_threads(findings, index, section, len(section.cores))
        elif section.cores is not None:
            counted += section.cores
            _check_threads(findings, index, section, section.cores)
    named = [section.cores for section in sections if section]
    free = [core for core in usable if core not in owners]
    if counted > len(free):
        message = (
            f"the slices ask for {counted} cores by count, but only {len(free)} are free here; "
            f"they will share cores {_ranges(_free(named, usable))}"
        )
        findings.warn(("slices",), message)


def _check_threads(findings: Findings, index: int, section: SliceSection, core_count: int) -> None:
    if section.threads > core_count:
        message = f"{section.threads} threads on {core_count} of the machine's cores will take turns"
        findings.warn(("slices", index, "threads"), message)


def _ranges(cores: Sequence[int]) -> str:
    """`0-3, 6`: cores as people list them."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
