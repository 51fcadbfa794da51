"""Entries of `models:` as ServedModels."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from router.settings.machine.slices import named_slices, slice_entries
from router.settings.model_file.folders import MODEL_FILE
from router.settings.model_file.models import load_model, missing_model
from router.settings.model_file.revisions import revision_of
from router.settings.served.cache import read_model_cache
from router.settings.served.ends import Ends
from router.settings.served.floors import check_floors
from router.settings.served.guards import read_guards
from router.settings.served.promises import CHOOSING, read_needs
from router.settings.served.rollouts import check_rollouts, read_rollout
from router.settings.served.scaling import check_replicas, read_replicas
from router.settings.served.selection import read_selection
from router.settings.served.versions import choose_versions, settle
from router.settings.values.fields import HOUR_MS
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, SettingsError, fault, one_of, shown, unknown_name
from router.settings.values.schema import BatchingSection, ServedSection
from router.settings.values.versions import VersionPolicy
from serving.policy.batching.catalogue import POLICIES
from serving.values.objectives import Needs
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ISOLATE, BatchingSpec, ModelSpec, ServedModel
from serving.values.versions import version_name

_NOT_ALWAYS = [each for each in ISOLATE if each != "always"]


def read_entry(
    findings: Findings, index: int, tiers: Sequence[Needs], ends: Ends, policy: VersionPolicy | None = None
) -> list[ServedModel | None]:
    """Return the model of the entry `models[index]`, and then its other versions, if it serves several.

    [None] where its key `path` or the model folder is faulty. `tiers`: those that `tiers:` lists; `ends`: how
    rollouts of versions ended. `policy`: of versions, in place of what the files say.
    """
    loc = ("models", index)
    section = findings.parse(ServedSection, loc)
    if section is None:
        return [None]
    versions = choose_versions(findings, loc, section, policy)
    if not os.path.isfile(versions.home / MODEL_FILE):  # unlike Path.is_file, never an OSError
        findings.add((*loc, "path"), missing_model(findings.document.file.parent / section.path))
    read: dict[int, ServedModel | None] = {}

    def one(version: int) -> ServedModel | None:
        if version not in read:
            spec = _read_spec(findings, loc, versions.home, version)
            read[version] = _read_model(findings, index, section, tiers, spec)
        return read[version]

    top = one(versions.candidate) if versions.candidate else None
    if top is not None:
        versions = settle(versions, top.name, ends, lambda version: _revision(one(version)))
    present = one(versions.present)
    if present is not None and section.rollout is not None and section.rollout.of is None:
        present = replace(present, rollout=None)  # it is of the highest version, until that is promoted
    return [present, *(_beside(one(each), each == versions.candidate) for each in versions.others)]


def _revision(model: ServedModel | None) -> str:
    return "" if model is None else revision_of(model)


def _beside(model: ServedModel | None, candidate: bool) -> ServedModel | None:
    """Return the model under the name of a version beside the present one."""
    if model is None:
        return None
    spec = replace(model.spec, name=version_name(model.name, model.spec.version))
    return replace(model, spec=spec, rollout=model.rollout if candidate else None)


def _read_model(
    findings: Findings, index: int, section: ServedSection, tiers: Sequence[Needs], spec: ModelSpec | None
) -> ServedModel | None:
    loc = ("models", index)
    slices = _read_slices(findings, loc, section)
    needs, own_tiers = read_needs(findings, loc, section, tiers)
    if spec is None:
        return None
    if needs.slo_rows is None:
        needs = replace(needs, slo_rows=spec.slo_rows or None)
    spec = read_guards(findings, (*loc, "guards"), section.guards, spec)
    slo_us = _read_slo_us(findings, loc, section, spec)
    model = ServedModel(
        spec=spec,
        slo_us=slo_us,
        variants=tuple(section.variants) or tuple(variant.name for variant in spec.variants),
        slices=slices,
        batching=_read_batching(findings, (*loc, "batching"), section.batching, spec, slo_us),
        default_variant=_read_default(findings, loc, section, spec, needs),
        cache=read_model_cache(findings, loc, section, spec),
        domains_min=section.domains,
        needs=needs,
        tiers=own_tiers,
        replicas=read_replicas(findings, (*loc, "replicas"), section.replicas),
        required=section.required,
        isolate=section.isolate,
        rollout=read_rollout(findings, (*loc, "rollout"), section.rollout, spec.name),
    )
    check_replicas(findings, loc, model)
    if findings.sound((*loc, "variants")):
        selection = read_selection(findings, (*loc, "selection"), section.selection, model)
        model = replace(model, selection=selection)
        if findings.sound((*loc, "selection")):
            check_floors(findings, index, model)
    return model


def _read_slo_us(findings: Findings, loc: Loc, section: ServedSection, spec: ModelSpec) -> int:
    """Return the entry's own SLO, else the SLO of model.yaml. If neither states it, return the longest there
    is, against which nothing else in the entry is wrong."""
    if section.slo_ms is not None:
        return round(section.slo_ms * 1000)
    if not spec.slo_us and findings.sound((*loc, "slo_ms")):
        what = f"how soon is {shown(spec.name)} to answer? Neither this entry nor its {MODEL_FILE} says"
        findings.add((*loc, "slo_ms"), f"{what}; expected slo_ms: 100, say, in one of them")
    return spec.slo_us or round(HOUR_MS * 1000)


def _read_slices(findings: Findings, loc: Loc, section: ServedSection) -> tuple[str, ...]:
    """Return those that the model may use: what it names, or all."""
    entries = slice_entries(findings)
    known = [*dict.fromkeys((*entries, *(name for names in entries.values() for name in names)))]
    for place, name in enumerate(section.slices):
        if known and name not in known:
            among = known if name.rpartition("-")[0] in entries else entries
            findings.add((*loc, "slices", place), unknown_name("unknown slice", name, among))
    return named_slices(entries, section.slices)


def _read_spec(findings: Findings, loc: Loc, home: Path, version: int) -> ModelSpec | None:
    if not os.path.isfile(home / MODEL_FILE):
        return None
    try:
        spec = load_model(home, version)
    except SettingsError as error:
        findings.absorb(error)
        return None
    application = spec.application
    if application is not None and application.tokenizers and application.tokenizer is None:
        where = one_of(application.tokenizers)
        message = f"the tokenizer of {spec.name} is not there ({where}): tokens are estimated"
        findings.warn((*loc, "path"), f"{message}, no text is refused as too long, and token ids are refused")
    return spec


def _read_batching(
    findings: Findings, loc: Loc, section: BatchingSection, spec: ModelSpec, slo_us: int
) -> BatchingSpec:
    policy, entry = section.policy, POLICIES[section.policy]
    for key in sorted(section.model_fields_set - {"policy", *entry.keys}):
        takers = one_of([name for name, each in POLICIES.items() if key in each.keys])
        default = "" if "policy" in section.model_fields_set else ", which is the default"
        what, expected = f"no key of policy {policy}{default}", f"policy: {takers} beside it"
        findings.add((*loc, key), fault(what, getattr(section, key), expected), at_key=True)
    if entry.modes and "mode" in section.model_fields_set and section.mode not in entry.modes:
        findings.add((*loc, "mode"), unknown_name(f"no mode of policy {policy}", section.mode, entry.modes))
    delay_us = round(section.delay_ms * 1000)
    if findings.sound((*loc, "size")) and section.size is not None and section.size > spec.batch_max:
        expected = f"at most the batch_max of {spec.name}, {spec.batch_max}"
        findings.add((*loc, "size"), fault("too large", section.size, expected))
    if findings.sound((*loc, "delay_ms")) and delay_us >= slo_us:
        expected = f"less than the SLO of {slo_us / 1000:g} ms, which a waiting request would miss"
        findings.add((*loc, "delay_ms"), fault("too long", section.delay_ms, expected))
    return BatchingSpec(
        policy=policy,
        mode=section.mode,
        admission=section.admission,
        size=section.size,
        delay_us=delay_us,
        weight=section.weight,
    )


def _read_default(findings: Findings, loc: Loc, section: ServedSection, spec: ModelSpec, needs: Needs) -> str:
    """Return the variant that answers, "" for the spec's own, or where the gateway chooses; checks all
    variant names on the way."""
    known = [variant.name for variant in spec.variants]
    for place, name in enumerate(section.variants):
        if name not in known:
            findings.add((*loc, "variants", place), unknown_name("unknown variant", name, known))
    served = section.variants or known
    default = section.default_variant
    if not (findings.sound((*loc, "variants")) and findings.sound((*loc, "default_variant"))):
        return ""
    if default and default not in known:
        findings.add((*loc, "default_variant"), unknown_name("unknown variant", default, known))
    elif default and default not in served:
        expected = f"one that `variants` lists: {one_of(served)}"
        findings.add((*loc, "default_variant"), fault("a variant that is not served", default, expected))
    elif default and needs.chooses:
        keys = [key for key in CHOOSING if getattr(section, key) is not None]
        what = f"with {' and '.join(keys)} the gateway chooses which variant answers"
        expected = f"{one_of(['no default_variant', f'no {one_of(keys)}'])}"
        findings.add((*loc, "default_variant"), fault(what, default, expected), at_key=True)
    elif not default and not needs.chooses and spec.default_variant not in served:
        if len(served) == 1:
            return served[0]
        message = f"the model's default {shown(spec.default_variant)} is not listed; expected it here, or"
        findings.add((*loc, "variants"), f"{message} default_variant: {one_of(served)}")
    return default


def check_name(findings: Findings, models: Sequence[ServedModel | None], seen: dict[str, int]) -> None:
    """Check that the last of the models so far has a name of its own. `seen`: the entry of each name."""
    index, model = len(models) - 1, models[-1]
    if model is None:
        return
    first = seen.setdefault(model.name, index)
    if first != index:
        message = f"models[{first}] has the same name, {shown(model.name)}; serve each model once"
        findings.add(("models", index, "path"), message)


def check_models(
    findings: Findings, models: Sequence[ServedModel | None], slices: Sequence[SliceSpec]
) -> None:
    """Check that every model can be isolated as it says, and that every slice is used."""
    check_rollouts(findings, models)
    if None not in models:
        _check_used(findings, [model for model in models if model])
    if findings.sound(("slices",)):
        _check_isolation(findings, models, slices)
        _check_compile(findings, models, slices)


def _check_isolation(
    findings: Findings, models: Sequence[ServedModel | None], slices: Sequence[SliceSpec]
) -> None:
    """Check that models that need their own process can have it: not beside others within `memory_mb`."""
    limited = {each.name for each in slices if each.memory_bytes}
    for index, model in enumerate(models):
        if model is None or model.isolate != "always":
            continue
        if on := [name for name in model.slices if name in limited]:
            what = f"{one_of(on)} has memory_mb, within which one process holds all models of the slice"
            expected = f"slices without memory_mb for {model.name}, or isolate: {one_of(_NOT_ALWAYS)}"
            findings.add(("models", index, "isolate"), f"{what}; expected {expected}")


def _check_compile(
    findings: Findings, models: Sequence[ServedModel | None], slices: Sequence[SliceSpec]
) -> None:
    """Warn of variants with a `compile` setting for GPUs whose model runs on no GPU."""
    on_gpu = {each.name for each in slices if each.device != "cpu"}
    for index, model in enumerate(models):
        if model is None or on_gpu & {*model.slices}:
            continue
        asked = [
            each for each in model.spec.variants if each.name in model.variants and each.compile != "none"
        ]
        for each in asked:
            message = f"{model.name} {each.name} has compile: {each.compile}, and runs on no GPU"
            findings.warn(("models", index), f"{message}; there it does nothing")


def _check_used(findings: Findings, models: Sequence[ServedModel]) -> None:
    used = {name for model in models for name in model.slices}
    for index, (entry, names) in enumerate(slice_entries(findings).items()):
        idle = [name for name in names if name not in used]
        if names == (entry,) and idle:
            findings.warn(("slices", index), f"no model uses the slice {shown(entry)}; it stays idle")
        elif idle:
            message = f"no model uses {len(idle)} of the {len(names)} slices {shown(entry)}; they stay idle"
            findings.warn(("slices", index), message)
