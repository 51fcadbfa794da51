"""`penstock.yaml` as frozen settings: the one place where the operator's file becomes values."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from router.settings.cache import read_cache, read_model_cache
from router.settings.devices import check_domains, read_devices
from router.settings.document import Document, read_document
from router.settings.findings import Findings
from router.settings.models import MODEL_FILE, load_model, missing_model
from router.settings.problems import Loc, Problem, SettingsError, fault, one_of, shown, unknown_name
from router.settings.recording import read_recording
from router.settings.repository import RepositorySettings, read_repository
from router.settings.schema import (
    BatchingSection,
    GatewayFile,
    LimitsSection,
    ProfilesSection,
    ServedSection,
    ServerSection,
)
from router.settings.slices import read_slices, slice_names, usable_cores
from router.settings.tenants import read_tenants
from serving.policy.batching.catalogue import POLICIES
from serving.specs import (
    BatchingSpec,
    CacheSpec,
    DeviceSpec,
    Limits,
    ModelSpec,
    RecordingSpec,
    ServedModel,
    SliceSpec,
    TenantSpec,
)

_EVERYWHERE = ("0.0.0.0", "::", "")  # a server that listens there is reached at this machine's own address
_UNITS = {"_mb": ("_bytes", 1 << 20), "_kb": ("_bytes", 1 << 10)}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the servers call themselves and where they listen; port 0 picks a free one."""

    name: str = "penstock"
    host: str = "127.0.0.1"
    rest_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002

    @property
    def address(self) -> str:
        """Where this machine finds REST, as a URL; "" where the port is any free one."""
        if not self.rest_port:
            return ""
        host = "127.0.0.1" if self.host in _EVERYWHERE else self.host
        return f"http://{f'[{host}]' if ':' in host else quote(host)}:{self.rest_port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole `penstock.yaml`. `models` and `tenants` are in the file's order; all paths are absolute.

    `profiles`: their folder; `remeasure`: those that are no longer right may be measured anew.
    `recording`: None where arrivals are not recorded; `cache`: None where no answers are kept.
    `devices`: what a placement may use, () for this machine. `document`: what the file said, with its places.
    """

    server: ServerSettings
    limits: Limits
    slices: tuple[SliceSpec, ...]
    models: tuple[ServedModel, ...]
    profiles: Path
    path: Path
    remeasure: bool = True
    tenants: tuple[TenantSpec, ...] = ()
    recording: RecordingSpec | None = None
    cache: CacheSpec | None = None
    devices: tuple[DeviceSpec, ...] = ()
    repository: RepositorySettings = field(default_factory=RepositorySettings)
    warnings: tuple[Problem, ...] = ()
    document: Document | None = field(default=None, repr=False, compare=False)


def load_settings(path: Path) -> Settings:
    """The settings in the file at `path`. SettingsError with everything that is wrong with it."""
    return read_settings(path)[0]


def read_settings(path: Path) -> tuple[Settings, Findings]:
    """As load_settings, with the findings, which know the place of every value."""
    findings = Findings(read_document(path))
    file = findings.parse(GatewayFile)
    if not isinstance(findings.document.value, dict):
        findings.stop_if_any()
    server = _read_server(findings)
    limits = _read_limits(findings)
    slices = read_slices(findings, usable_cores())
    devices = read_devices(findings)
    tenants = read_tenants(findings)
    recording = read_recording(findings)
    repository = read_repository(findings)
    cache = read_cache(findings)
    profiles = _read_profiles(findings)
    entries = findings.document.at(("models",))
    count = len(entries) if isinstance(entries, list) else 0
    models = [_read_model(findings, index) for index in range(count)]
    _check_models(findings, models, slices)
    check_domains(findings, models, devices)
    if file is None or findings.problems:
        raise SettingsError(findings.problems, findings.warnings)
    path = Path(os.path.abspath(path))
    settings = Settings(
        server=server,
        limits=limits,
        slices=slices,
        models=tuple(model for model in models if model is not None),
        profiles=path.parent / profiles.folder,
        remeasure=profiles.remeasure,
        path=path,
        tenants=tenants,
        recording=recording,
        cache=cache,
        devices=devices,
        repository=repository,
        warnings=tuple(sorted(findings.warnings)),
        document=findings.document,
    )
    return settings, findings


def read_served(document: Document, index: int) -> ServedModel:
    """The entry `models[index]` of a document that was sound, with its model folder read anew. SettingsError
    with all that is wrong with that folder, or with the entry because of it."""
    findings = Findings(document)
    model = _read_model(findings, index)
    if model is None or findings.problems:
        raise SettingsError(findings.problems)
    return model


def read_server(document: Document) -> ServerSettings:
    """`server:` of a sound document: what the file says, whatever the command line did."""
    return _read_server(Findings(document))


def _read_server(findings: Findings) -> ServerSettings:
    section = None
    if isinstance(findings.document.at(("server",)), dict):
        section = findings.parse(ServerSection, ("server",))
    server = ServerSettings(**section.model_dump(exclude_none=True)) if section else ServerSettings()
    owners: dict[int, str] = {}
    for key in ("rest_port", "grpc_port", "metrics_port"):
        port: int = getattr(server, key)
        if port in owners:
            expected = "a port of its own (0 picks a free one)"
            findings.add(("server", key), fault(f"the same port as {owners[port]}", port, expected))
        elif port:
            owners[port] = key
    return server


def _read_profiles(findings: Findings) -> ProfilesSection:
    value = findings.document.at(("profiles",))
    if isinstance(value, str) and findings.sound(("profiles",)):
        return ProfilesSection(folder=value)
    section = findings.parse(ProfilesSection, ("profiles",)) if isinstance(value, dict) else None
    return section or ProfilesSection()


def _read_limits(findings: Findings) -> Limits:
    section = None
    if isinstance(findings.document.at(("limits",)), dict):
        section = findings.parse(LimitsSection, ("limits",))
    if section is None:
        return Limits()
    values: dict[str, float] = section.model_dump(exclude_none=True)
    if stall_s := values.pop("stall_s", None):
        values["stall_us"] = round(stall_s * 1_000_000)
    for suffix, (unit, size_bytes) in _UNITS.items():
        for key in [key for key in values if key.endswith(suffix)]:
            values[key.removesuffix(suffix) + unit] = round(values.pop(key) * size_bytes)
    return Limits(**values)  # type: ignore[arg-type]  # the schema gave whole numbers to the int fields


def _read_model(findings: Findings, index: int) -> ServedModel | None:
    loc = ("models", index)
    section = findings.parse(ServedSection, loc)
    if section is None:
        return None
    spec = _read_spec(findings, loc, section)
    known = slice_names(findings)
    for place, name in enumerate(section.slices):
        if known and name not in known:
            findings.add((*loc, "slices", place), unknown_name("unknown slice", name, known))
    if spec is None:
        return None
    slo_us = spec.slo_us if section.slo_ms is None else round(section.slo_ms * 1000)
    return ServedModel(
        spec=spec,
        slo_us=slo_us,
        variants=tuple(section.variants) or tuple(variant.name for variant in spec.variants),
        slices=tuple(section.slices or known),
        batching=_read_batching(findings, (*loc, "batching"), section.batching, spec, slo_us),
        default_variant=_read_default(findings, loc, section, spec),
        cache=read_model_cache(findings, loc, section, spec),
        domains_min=section.domains,
    )


def _read_spec(findings: Findings, loc: Loc, section: ServedSection) -> ModelSpec | None:
    folder = findings.document.file.parent / section.path
    if not os.path.isfile(folder / MODEL_FILE):  # unlike Path.is_file, never an OSError
        findings.add((*loc, "path"), missing_model(folder))
        return None
    try:
        return load_model(folder)
    except SettingsError as error:
        findings.absorb(error)
        return None


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


def _read_default(findings: Findings, loc: Loc, section: ServedSection, spec: ModelSpec) -> str:
    """The variant that answers, "" for the spec's own; checks all variant names on the way."""
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
    elif not default and spec.default_variant not in served:
        if len(served) == 1:
            return served[0]
        message = f"the model's default {shown(spec.default_variant)} is not listed; expected it here, or"
        findings.add((*loc, "variants"), f"{message} default_variant: {one_of(served)}")
    return default


def _check_models(
    findings: Findings, models: Sequence[ServedModel | None], slices: Sequence[SliceSpec]
) -> None:
    seen: dict[str, int] = {}
    for index, model in enumerate(models):
        if model is None:
            continue
        if model.name in seen:
            message = (
                f"models[{seen[model.name]}] has the same name, {shown(model.name)}; serve each model once"
            )
            findings.add(("models", index, "path"), message)
        seen.setdefault(model.name, index)
    used = {name for model in models if model for name in model.slices}
    if None not in models:
        for index, each in enumerate(slices):
            if each.name not in used:
                findings.warn(("slices", index), f"no model uses the slice {shown(each.name)}; it stays idle")
