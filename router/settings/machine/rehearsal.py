"""What is rehearsed: `rehearse:` of devices, `--rehearse` for all GPUs, and what no rehearsal may be."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from router.settings.machine.gpus import SlicedDevice
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, one_of
from router.settings.values.schema import RehearseSection
from serving.policy.placement.terms.geometry import arrangements, known_geometry
from serving.profile.files.store import ProfileStore
from serving.values.disturbance import check_apart, read_disturbances
from serving.values.rehearsal import EXACT, RehearsalSpec
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import ServedModel

LISTED_MAX = 4
"""Of what has no profile, as many are listed."""


def read_rehearsal(findings: Findings, loc: Loc, stated: object) -> RehearsalSpec:
    """Return what `rehearse:` says at `loc`; nothing departs from the profiles where it says only `true`."""
    section = findings.parse(RehearseSection, loc) if isinstance(stated, dict) else None
    if section is None:
        return EXACT
    if section.disturb is not None:
        try:
            check_apart(read_disturbances(section.disturb))
        except ValueError as error:
            findings.add((*loc, "disturb"), f"no disturbance: {error}")
            return EXACT
    return RehearsalSpec(
        section.noise, section.outliers, section.interference, section.crash_every_s or 0.0,
        section.stall_every_s or 0.0, section.stall_s, section.disturb or "", section.seed,
        section.beside_real,
    )  # fmt: skip


def check_layouts(findings: Findings, asked: Sequence[tuple[Loc, SlicedDevice, Share]]) -> None:
    """Add MIG instances that a rehearsed GPU could not have. Of a real one its driver says that."""
    by_device: dict[str, list[tuple[Loc, SlicedDevice, Share]]] = {}
    for each in asked:
        if each[1].rehearsed and each[2].kind == "mig":
            by_device.setdefault(each[1].name, []).append(each)
    told: set[str] = set()
    for on_device in by_device.values():
        loc, device = on_device[-1][:2]
        wanted = [share.profile for _, _, share in on_device]
        if (problem := _layout_problem(device, wanted)) and problem not in told:
            told.add(problem)
            findings.add((*loc, "share"), problem)


def _layout_problem(device: SlicedDevice, wanted: Sequence[str]) -> str:
    geometry = known_geometry(device.kind)
    if geometry is None:
        return f"no MIG instances are known of {device.kind}; expected another kind, or an mps: share"
    known = [each.name for each in geometry]
    if unknown := [name for name in wanted if name not in known]:
        return fault(f"no MIG instance of {device.kind}", unknown[0], one_of(known))
    if not arrangements(geometry, wanted):
        return f"{' + '.join(wanted)} do not fit on one {device.kind}; expected fewer or smaller instances"
    return ""


def check_rehearsed(
    findings: Findings, models: Sequence[ServedModel | None], slices: Sequence[SliceSpec], profiles: Path
) -> None:
    """Add models that would be rehearsed beside real replicas, or without a profile to rehearse by."""
    rehearsed = {each.name: each for each in slices if each.rehearsed}
    if not rehearsed or not findings.sound(("slices",)):
        return
    store = ProfileStore(profiles)
    for index, model in enumerate(models):
        if model is None:
            continue
        made_up = [rehearsed[name] for name in model.slices if name in rehearsed]
        real = [name for name in model.slices if name not in rehearsed]
        if real and not all(each.rehearsal.beside_real for each in made_up):
            findings.add(("models", index, "path"), _mixed(model, made_up[0].name, real[0]))
        missing = [*_missing(store, model, made_up)]
        if missing:
            what = "; ".join(missing[:LISTED_MAX])
            more = f" and {len(missing) - LISTED_MAX} more" if len(missing) > LISTED_MAX else ""
            cure = "`penstock profile --import FILE.csv` brings one"
            findings.add(("models", index, "path"), f"no profile to rehearse {what}{more}; {cure}")


def _mixed(model: ServedModel, made_up: str, real: str) -> str:
    what = f"{model.name} would be rehearsed on slice {made_up} and real on slice {real}"
    return f"{what}; expected one of both, or `rehearse: {{beside_real: true}}` of the device"


def _missing(store: ProfileStore, model: ServedModel, slices: Sequence[SliceSpec]) -> Iterator[str]:
    places = dict.fromkeys((each.kind, each.share) for each in slices)
    for variant in model.variants:
        for kind, share in places:
            if store.read(kind, model.name, variant, share) is None:
                yield f"{model.name} {variant} on {share} of {kind}"
