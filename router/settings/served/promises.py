"""`tiers:` and what entries of `models:` promise, as Needs: each of its own and over the other."""

from collections.abc import Sequence
from dataclasses import replace

from router.settings.values.document import Document
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, shown, unknown_name
from router.settings.values.schema import TIER_COUNT_MAX, NeedsSection, ServedSection, TierSection
from serving.values.objectives import Needs

_LOC = ("tiers",)

FLOORS = ("accuracy_min", "tolerance")
CHOOSING = (*FLOORS, "cost_max", "optimize")
"""The keys of which any one has the gateway choose the variant that answers."""


def read_tiers(findings: Findings) -> tuple[Needs, ...]:
    """Return the tiers that are sound, in the order of the file; none without `tiers:`."""
    entries = findings.document.at(_LOC)
    count = min(len(entries), TIER_COUNT_MAX) if isinstance(entries, list) else 0
    tiers: dict[str, Needs] = {}
    for index in range(count):
        loc = (*_LOC, index)
        section = findings.parse(TierSection, loc)
        if section is None:
            continue
        if section.name in tiers:
            findings.add((*loc, "name"), f"{shown(section.name)} is listed twice; list each tier once")
        tiers.setdefault(section.name, _needs(findings, loc, section, section.name))
    return tuple(tiers.values())


def check_tier(findings: Findings, loc: Loc, name: str, *, at_key: bool = False) -> None:
    """Check that `tiers:` lists the tier that is named at `loc`, even if it lists it with faults."""
    entries = findings.document.at(_LOC)
    if entries is not None and not isinstance(entries, list):
        return
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries or ()]
    known = {each: None for each in names if isinstance(each, str)}
    if name in known or not all(isinstance(each, str) for each in names):
        return
    expected = "one that `tiers:` lists, a key beside `models:`"
    message = unknown_name("unknown tier", name, known) if known else fault("unknown tier", name, expected)
    findings.add(loc, message, at_key=at_key)


def read_needs(
    findings: Findings, loc: Loc, section: ServedSection, tiers: Sequence[Needs]
) -> tuple[Needs, tuple[Needs, ...]]:
    """Return (the needs of the model with its entry at `loc`, every tier as it is for this model). The SLO of
    the model itself is no part of them."""
    stated: dict[str, Needs] = {}
    for name, value in section.tiers.items():
        place = (*loc, "tiers", name)
        check_tier(findings, place, name, at_key=True)
        found = findings.parse(NeedsSection, place) if value is not None else None
        if found is not None:
            stated[name] = _needs(findings, place, found, name)
    own = replace(_needs(findings, loc, section), slo_us=None)
    return own, tuple(stated[each.tier].over(each) if each.tier in stated else each for each in tiers)


def _needs(findings: Findings, loc: Loc, section: NeedsSection, tier: str = "") -> Needs:
    tolerance = section.tolerance
    if tolerance is not None and section.accuracy_min is not None:
        message = fault("a floor beside that of accuracy_min", tolerance, "one of the two keys")
        findings.add((*loc, "tolerance"), message, at_key=True)
        tolerance = None
    return Needs(
        tier,
        None if section.slo_ms is None else round(section.slo_ms * 1000),
        section.percentile,
        section.accuracy_min,
        tolerance,
        section.cost_max,
        section.optimize or "",
        section.slo_rows,
    )


def stated_at(findings: Findings, index: int, tier: str, keys: Sequence[str]) -> Loc | None:
    """Return where the first of these keys is stated of `models[index]`, in the tier or ("") for itself; None
    where it is not: a tier has what it leaves open from the model."""
    document = findings.document
    places: list[Loc] = [findings.place(("models", index))]
    if tier:
        places = [findings.place(("models", index, "tiers", tier)), *_entry(document, tier)]
    stated = ((*place, key) for place in places for key in keys)
    return next((loc for loc in stated if document.at(loc) is not None), None)


def _entry(document: Document, tier: str) -> list[Loc]:
    """Return where `tiers:` lists the tier."""
    entries = document.at(_LOC)
    count = len(entries) if isinstance(entries, list) else 0
    places: list[Loc] = [(*_LOC, at) for at in range(count) if document.at((*_LOC, at, "name")) == tier]
    return places[:1]
