"""`penstock.yaml` as frozen settings: the one place where the operator's file becomes values."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from router.settings.door.addresses import url_of
from router.settings.door.admin import AdminSettings, read_admin
from router.settings.door.auth import AuthSettings, read_auth
from router.settings.door.headers import check_headers, with_headers
from router.settings.door.logs import LogSettings, read_logging
from router.settings.door.recording import read_recording
from router.settings.door.tls import TlsSettings, read_tls
from router.settings.door.tracing import TracingSettings, read_tracing
from router.settings.machine.devices import check_domains, read_devices
from router.settings.machine.memory import usable_memory_bytes
from router.settings.machine.nodes import read_nodes
from router.settings.machine.placement import PlacementSettings, read_placement
from router.settings.machine.prices import check_kinds, read_prices
from router.settings.machine.rehearsal import check_rehearsed
from router.settings.machine.slices import read_slices, usable_cores
from router.settings.machine.workers import read_workers
from router.settings.model_file.delays import bounded
from router.settings.repository import RepositorySettings, read_repository
from router.settings.served.cache import read_cache
from router.settings.served.cells import read_cells
from router.settings.served.ends import read_ends
from router.settings.served.entries import check_models, check_name, read_entry
from router.settings.served.floors import check_prices
from router.settings.served.promises import read_tiers
from router.settings.served.rollouts import check_rollouts
from router.settings.served.scaling import check_scaling, read_scaling
from router.settings.served.tenants import read_tenants
from router.settings.values.client_shm import ClientShm, read_client_shm
from router.settings.values.document import Document, read_document
from router.settings.values.findings import Findings
from router.settings.values.problems import SettingsError, SettingsProblem, fault
from router.settings.values.schema import GatewayFile, LimitsSection, ProfilesSection, ServerSection
from router.settings.values.versions import VersionPolicy
from serving.cache.spec import CacheSpec
from serving.runtime.cells.spec import CellsSpec
from serving.values.nodes import NodesSpec
from serving.values.objectives import Needs, ScalingSpec
from serving.values.slice_specs import DeviceSpec, SliceSpec, WorkersSpec
from serving.values.specs import Limits, RecordingSpec, ServedModel, TenantSpec

_PORTS = ("rest_port", "grpc_port", "metrics_port")
HELD_SHARE = 1 / 6
"""Of this machine's or container's memory, what clients may make the gateway hold where `held_mb` is not
stated. Bodies and answers are also in memory that is shared with workers, and copied on their way: 40 clients
that took no answers made the gateway have up to 3.4 times `held_mb`, besides its own 230 MB."""
ROOM_SHARE = 0.5
"""Of that memory, what clients and the cache may take together without a warning."""
GRPCIO: Final = "grpcio"
_UNITS = {"_mb": ("_bytes", 1 << 20), "_kb": ("_bytes", 1 << 10)}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the servers call themselves and where they listen; port 0 picks a free one. `triton_metrics`:
    metrics have Triton's names beside their own. `grpc`: which server takes gRPC calls. `tls`: how all ports
    are encrypted, None where they are not. `client_shm`: what clients may register of their shared memory,
    None for nothing. `forward_headers`: a pattern of the header fields that may state a model's parameters,
    "" for none. `cors`: origins of web pages that may call REST from a browser."""

    name: str = "penstock"
    host: str = "127.0.0.1"
    rest_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    triton_metrics: bool = True
    grpc: str = "ngh2"  # or GRPCIO
    tls: TlsSettings | None = None
    client_shm: ClientShm | None = None
    forward_headers: str = ""
    cors: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Where this machine finds REST, as a URL; "" where the port is any free one."""
        return url_of(self.host, self.rest_port, secure=self.tls is not None)


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole `penstock.yaml`. `models`, `tenants` and `tiers` are in the file's order; all paths are
    absolute.

    `tiers`: as the file lists them; what each means for a model is in that.
    `profiles`: their folder; `remeasure`: those that are no longer right may be measured anew.
    `recording`: None where arrivals are not recorded; `cache`: None where no answers are kept.
    `admin`: where changes are taken.
    `scaling`: how the replicas of models that say so follow the load; `logging`: what the gateway says.
    `placement`: what is done where the desired state cannot be reached.
    `auth`: None where no caller needs a key. `nodes`: where other machines call, None for nowhere.
    `cells`: this gateway among others, None if it is alone.
    `devices`: what a placement may use, () for this machine. `workers`: what processes of slices are given
    and held to. `document`: what the file said, with its places. `rehearse`: every GPU of it is rehearsed.
    """

    server: ServerSettings
    limits: Limits
    slices: tuple[SliceSpec, ...]
    models: tuple[ServedModel, ...]
    profiles: Path
    path: Path
    remeasure: bool = True
    tenants: tuple[TenantSpec, ...] = ()
    tiers: tuple[Needs, ...] = ()
    recording: RecordingSpec | None = None
    cache: CacheSpec | None = None
    admin: AdminSettings = field(default_factory=AdminSettings)
    devices: tuple[DeviceSpec, ...] = ()
    repository: RepositorySettings = field(default_factory=RepositorySettings)
    scaling: ScalingSpec = field(default_factory=ScalingSpec)
    logging: LogSettings = field(default_factory=LogSettings)
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    workers: WorkersSpec = field(default_factory=WorkersSpec)
    tracing: TracingSettings | None = None
    auth: AuthSettings | None = None
    nodes: NodesSpec | None = None
    cells: CellsSpec | None = None
    warnings: tuple[SettingsProblem, ...] = ()
    rehearse: bool = False
    document: Document | None = field(default=None, repr=False, compare=False)


def load_settings(path: Path, rehearse: bool = False) -> Settings:
    """Return the settings in the file at `path`. SettingsError with everything that is wrong with it.

    `rehearse`: every GPU that the file names is rehearsed.
    """
    return read_settings(path, rehearse)[0]


def read_settings(path: Path, rehearse: bool = False) -> tuple[Settings, Findings]:
    """Return the settings as load_settings does, with the findings, which know the place of every value."""
    findings = Findings(read_document(path), rehearse)
    file = findings.parse(GatewayFile)
    if not isinstance(findings.document.value, dict):
        findings.stop_if_any()
    server, limits, prices = _read_server(findings), _read_limits(findings), read_prices(findings)
    admin, tiers, tenants = _read_door(findings, server), read_tiers(findings), read_tenants(findings)
    _look_at_messages(findings, limits, server.grpc)
    devices = findings.devices = read_devices(findings, prices)
    slices = read_slices(findings, usable_cores(), prices)
    check_kinds(findings, prices, devices, slices)
    nodes, cache = _read_nodes(findings, slices, server, admin), _read_cache(findings, limits)
    cells, profiles = _read_cells(findings, cache, server, admin), _read_profiles(findings)
    logging, repository, tracing = read_logging(findings), read_repository(findings), read_tracing(findings)
    workers, auth = read_workers(findings, slices), _read_auth(findings, server, admin)
    scaling, placement, recording = read_scaling(findings), read_placement(findings), read_recording(findings)
    models = _read_models(findings, tiers, slices, scaling)
    check_domains(findings, models, devices)
    folder = Path(os.path.abspath(path)).parent / profiles.folder
    check_rehearsed(findings, models, slices, folder)
    if file is None or findings.problems:
        raise SettingsError(findings.problems, findings.warnings)
    return Settings(
        server,
        limits,
        slices,
        models=tuple(with_headers(bounded(each, limits), server.forward_headers) for each in models if each),
        profiles=folder,
        remeasure=profiles.remeasure,
        path=Path(os.path.abspath(path)),
        tenants=tenants,
        tiers=tiers,
        recording=recording,
        cache=cache,
        admin=admin,
        devices=devices,
        repository=repository,
        scaling=scaling,
        logging=logging,
        placement=placement,
        workers=replace(workers, owner=os.path.abspath(path)),
        tracing=tracing,
        auth=auth,
        nodes=nodes,
        cells=cells,
        warnings=tuple(sorted(findings.warnings)),
        rehearse=rehearse,
        document=findings.document,
    ), findings


def _read_models(
    findings: Findings, tiers: Sequence[Needs], slices: Sequence[SliceSpec], scaling: ScalingSpec
) -> list[ServedModel | None]:
    """Return `models:`, each checked alone and beside the others; None for a faulty model."""
    entries = findings.document.at(("models",))
    count = len(entries) if isinstance(entries, list) else 0
    models: list[ServedModel | None] = []
    seen: dict[str, int] = {}
    others: list[tuple[int, ServedModel | None]] = []  # versions, behind all entries
    ends = read_ends(Path(os.path.abspath(findings.document.file)))
    for index in range(count):
        first, *versions = read_entry(findings, index, tiers, ends)
        models.append(first)
        others += [(index, each) for each in versions]
        check_name(findings, models, seen)
    models += [each for _, each in others]
    findings.entries = [*range(count), *(index for index, _ in others)]
    check_models(findings, models, slices)
    check_scaling(findings, models, slices, scaling)
    check_headers(findings, models)
    if findings.sound(("slices",)):
        check_prices(findings, models, slices)
    return models


def read_served(document: Document, index: int, policy: VersionPolicy | None = None) -> list[ServedModel]:
    """Return the model of the entry `models[index]` of a document that was sound, and its other versions.
    `policy`: in place of what the file says.

    The model folder is read again. SettingsError with all that is wrong with that folder, or with the entry
    because of it."""
    findings = Findings(document)
    ends = read_ends(Path(os.path.abspath(document.file)))
    models = read_entry(findings, index, read_tiers(findings), ends, policy)
    findings.entries = [index] * (index + len(models))
    read = [each for each in models if each is not None]
    if any(each.rollout and each.rollout.of == read[0].name for each in read):
        check_rollouts(findings, [*([None] * index), *models])
    if len(read) < len(models) or findings.problems:
        raise SettingsError(findings.problems)
    limits, pattern = _read_limits(findings), _read_server(findings).forward_headers
    return [with_headers(bounded(each, limits), pattern) for each in read]


def read_server(document: Document) -> ServerSettings:
    """Return `server:` of a sound document: what the file says, whatever the command line did."""
    return _read_server(Findings(document))


def read_door(document: Document) -> AdminSettings:
    """Return `admin:` of a sound document: what the file says."""
    findings = Findings(document)
    return _read_door(findings, _read_server(findings))


def read_logs(document: Document) -> LogSettings:
    """Return `logging:` of a sound document: what the file says."""
    return read_logging(Findings(document))


def _read_server(findings: Findings) -> ServerSettings:
    section = None
    if isinstance(findings.document.at(("server",)), dict):
        section = findings.parse(ServerSection, ("server",))
    values = section.model_dump(exclude_none=True, exclude={"tls"}) if section else {}
    client_shm = read_client_shm(findings, values.pop("client_shm", None))
    server = ServerSettings(**values, tls=read_tls(findings), client_shm=client_shm)
    owners: dict[int, str] = {}
    for key, port in _ports(server).items():
        if port in owners:
            expected = "a port of its own (0 picks a free one)"
            findings.add(("server", key), fault(f"the same port as {owners[port]}", port, expected))
        elif port:
            owners[port] = key
    return server


def _read_door(findings: Findings, server: ServerSettings) -> AdminSettings:
    admin = read_admin(findings, _ports(server))
    return replace(admin, secure=server.tls is not None and admin.socket is None)


def _read_auth(findings: Findings, server: ServerSettings, admin: AdminSettings) -> AuthSettings | None:
    """Return `auth:`; where clients need a certificate, no key is missed."""
    closed = server.tls is not None and server.tls.requires
    return read_auth(findings, "localhost" if closed else server.host, AdminSettings() if closed else admin)


def _read_nodes(
    findings: Findings, slices: Sequence[SliceSpec], server: ServerSettings, admin: AdminSettings
) -> NodesSpec | None:
    return read_nodes(findings, slices, server.tls, [*_ports(server).values(), admin.port])


def _read_cells(
    findings: Findings, cache: CacheSpec | None, server: ServerSettings, admin: AdminSettings
) -> CellsSpec | None:
    return read_cells(findings, cache, server.tls, [*_ports(server).values(), admin.port])


def _ports(server: ServerSettings) -> dict[str, int]:
    return {key: getattr(server, key) for key in _PORTS}


def _read_profiles(findings: Findings) -> ProfilesSection:
    value = findings.document.at(("profiles",))
    if isinstance(value, str) and findings.sound(("profiles",)):
        return ProfilesSection(folder=value)
    section = findings.parse(ProfilesSection, ("profiles",)) if isinstance(value, dict) else None
    return section or ProfilesSection()


def _read_cache(findings: Findings, limits: Limits) -> CacheSpec | None:
    """Return `cache:`; warn if the cache and clients may take more than leaves room for all else."""
    cache = read_cache(findings)
    usable_bytes = usable_memory_bytes()
    kept_bytes = 0 if cache is None else cache.memory_bytes
    if usable_bytes and limits.held_bytes + kept_bytes > usable_bytes * ROOM_SHARE:
        keys = ("cache", "memory_mb") if kept_bytes > limits.held_bytes else ("limits", "held_mb")
        findings.warn(
            keys,
            f"clients may make the gateway hold {limits.held_bytes >> 20} MB and the cache "
            f"{kept_bytes >> 20} MB, over half of the {usable_bytes >> 20} MB that this machine or container "
            "has; workers need memory too, and a body passes through two more places: expected less, or a "
            "larger container",
        )
    return cache


def _look_at_messages(findings: Findings, limits: Limits, rpc_server: str) -> None:
    """Warn if the file limits gRPC's calls, or allows larger bodies than by default, and grpc's core may then
    exceed the memory.

    The other server counts messages in the account.
    """
    if rpc_server != GRPCIO:
        return
    key = "body_mb" if limits.body_bytes > Limits().body_bytes else "grpc_call_count"
    usable_bytes, count, size = usable_memory_bytes(), limits.grpc_call_count, limits.body_bytes
    if findings.document.at(("limits", key)) is not None and 0 < usable_bytes < count * size:
        findings.warn(
            ("limits", key),
            f"clients may make gRPC hold {count} (grpc_call_count) unfinished messages of {size >> 20} MB "
            f"(body_mb), and this machine or container has {usable_bytes >> 20} MB: expected at most "
            f"{usable_bytes // size} calls, smaller messages, or a proxy that bounds both",
        )


def _read_limits(findings: Findings) -> Limits:
    section = None
    if isinstance(findings.document.at(("limits",)), dict):
        section = findings.parse(LimitsSection, ("limits",))
    values: dict[str, float] = section.model_dump(exclude_none=True) if section else {}
    if "held_mb" not in values:
        most, usable_bytes = Limits().held_bytes, usable_memory_bytes()
        values["held_bytes"] = min(most, int(usable_bytes * HELD_SHARE)) if usable_bytes else most
    if stall_s := values.pop("stall_s", None):
        values["stall_us"] = round(stall_s * 1_000_000)
    for suffix, (unit, size_bytes) in _UNITS.items():
        for key in [key for key in values if key.endswith(suffix)]:
            values[key.removesuffix(suffix) + unit] = round(values.pop(key) * size_bytes)
    return Limits(**values)  # type: ignore[arg-type]  # the schema gave whole numbers to the int fields
