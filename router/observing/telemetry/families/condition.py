"""In what condition the gateway is: its build, what is ready, the settings in force, how busy slices are; as
Prometheus text."""

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from router.observing.sequence_status import SequenceStatus
from router.observing.telemetry.counting.counts import escape
from router.observing.telemetry.counting.heading import head
from router.observing.telemetry.families.cells import CellsPresent, cell_families
from serving.compiled import is_compiled


@dataclass(frozen=True, slots=True)
class AuthPresent:
    """API keys that count, whether the latest edit of their file does, and refused requests by why."""

    keys: int
    reloaded: bool
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TlsPresent:
    """Handshakes by how they ended and those under way; until when the certificate is valid, in seconds of
    Unix time, and whether the latest edition of its files is in force."""

    handshakes: Mapping[str, int]
    under_way: int
    until_s: float
    reloaded: bool


@dataclass(frozen=True, slots=True)
class ConditionPresent:
    """The gateway's condition, read at a scrape.

    `ready`: whether each served model is ready; `variants`: whether each variant with a replica is ready, by
    (model, variant). `reloaded`: whether the latest edit of the settings is in force, and the Unix time in
    seconds when the file was last found in force. `held`: bytes held for clients, by what they are;
    `held_limit`: the limit of all of them but the cache. To keep within it, the gateway ended `given_up`
    uploads and readers and stopped reading `paused` uploads. `connections`: by edge and kind of place.
    `turned_out`: by edge, idle connections closed to make room, and connections that found no place. `edges`:
    by name, whether each listens, and how often it was started again. `isolation`: by model, worker processes
    that died busy with it, and whether it has some of its own. `lines_dropped`: output lines of the gateway
    that were dropped, as no reader took them in time. `traces_dropped`: None without tracing.
    `rollouts`: the share of each candidate, by model and candidate. `shifts`: by model and kind.
    `auth`: None if no caller needs a key; `tls`: None if
    no port is encrypted. `rehearsed`: by slice, whether its answers are made up. `rates`: requests that
    were over a limit of their tenant, by tenant and limit. `sequences`: of the models that have some.
    `nodes`: whether each is there, `needed`: whether the load takes it. `cells`: None without others.
    """

    ready: Mapping[str, bool] = field(default_factory=dict)
    variants: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    reloaded: tuple[bool, float] = (True, 0.0)
    held: Mapping[str, int] = field(default_factory=dict)
    held_limit: int = 0
    given_up: int = 0
    paused: int = 0
    connections: Mapping[tuple[str, str], int] = field(default_factory=dict)
    turned_out: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    edges: Mapping[str, tuple[bool, int]] = field(default_factory=dict)
    isolation: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    lines_dropped: int = 0
    traces_dropped: int | None = None
    rollouts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    shifts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    auth: AuthPresent | None = None
    rehearsed: Mapping[str, bool] = field(default_factory=dict)
    nodes: Mapping[str, bool] = field(default_factory=dict)
    needed: Mapping[str, bool] = field(default_factory=dict)
    cells: CellsPresent | None = None
    tls: TlsPresent | None = None
    rates: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sequences: Mapping[str, SequenceStatus] = field(default_factory=dict)


def blocks(present: ConditionPresent, busy_us: Mapping[str, int]) -> Iterator[str]:
    """Yield the blocks of the condition. `busy_us`: what each slice has computed."""
    yield _build()
    name = "penstock_model_ready"
    yield head(name, "gauge", "1 where a variant of the model can answer, 0 where none can.")
    for model, ready in present.ready.items():
        yield f'{name}{{model="{escape(model)}"}} {ready:d}\n'
    name = "penstock_variant_ready"
    yield head(name, "gauge", "1 where a replica of the variant can take batches, 0 where none can.")
    for (model, variant), ready in present.variants.items():
        yield f'{name}{{model="{escape(model)}",variant="{escape(variant)}"}} {ready:d}\n'
    yield from _isolation(present.isolation)
    yield from _sequences(present.sequences)
    successful, in_force_s = present.reloaded
    name = "penstock_config_last_reload_successful"
    yield head(name, "gauge", "1 where the latest edit of the settings is in force, 0 where it was refused.")
    yield f"{name} {successful:d}\n"
    name = "penstock_config_last_reload_success_timestamp_seconds"
    yield head(name, "gauge", "Unix time at which the settings were last read and in force.")
    yield f"{name} {in_force_s:.3f}\n"
    yield from _held(present)
    yield from _connections(present)
    yield from _edges(present)
    if present.rollouts:
        yield from _rollouts(present.rollouts)
    if present.shifts:
        yield from _shifts(present.shifts)
    name = "penstock_slice_busy_seconds_total"
    yield head(name, "counter", "Time that batches computed on the slice, from a run's start to its end.")
    yield "".join(f'{name}{{slice="{escape(each)}"}} {us / 1e6}\n' for each, us in busy_us.items())
    yield from _rehearsed(present)
    if present.nodes:
        name = "penstock_node_up"
        yield head(name, "gauge", "1 where the node is there, 0 where it has not joined or is lost.")
        yield "".join(f'{name}{{node="{escape(each)}"}} {up:d}\n' for each, up in present.nodes.items())
        name = "penstock_node_needed"
        yield head(name, "gauge", "1 where the present load needs the node, there or not.")
        yield "".join(f'{name}{{node="{escape(each)}"}} {yes:d}\n' for each, yes in present.needed.items())
    if present.cells is not None:
        yield from cell_families(present.cells)
    if present.auth is not None:
        yield from _auth(present.auth)
    if present.rates:
        yield from _rates(present.rates)
    if present.tls is not None:
        yield from _tls(present.tls)


def _rollouts(shares: Mapping[tuple[str, str], float]) -> Iterator[str]:
    name = "penstock_rollout_share"
    yield head(name, "gauge", "The share of the model's requests that its candidate gets, 0 to 1.")
    for (model, candidate), share in shares.items():
        yield f'{name}{{model="{escape(model)}",candidate="{escape(candidate)}"}} {share:g}\n'


def _shifts(models: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    name = "penstock_data_shift"
    yield head(name, "gauge", "How far requests of the last hours are from what is usual, 0 to 1.")
    for model, kinds in models.items():
        for kind, far in kinds.items():
            yield f'{name}{{model="{escape(model)}",kind="{kind}"}} {far:.4f}\n'


def _edges(present: ConditionPresent) -> Iterator[str]:
    """Yield what becomes of ports, log lines and traces."""
    name = "penstock_edge_up"
    yield head(name, "gauge", "1 where the edge listens on its port, 0 where it does not.")
    yield "".join(f'{name}{{edge="{each}"}} {up:d}\n' for each, (up, _) in present.edges.items())
    name = "penstock_edge_restarts_total"
    yield head(name, "counter", "Times that the edge ended by itself and was started again on its port.")
    yield "".join(f'{name}{{edge="{each}"}} {count}\n' for each, (_, count) in present.edges.items())
    name = "penstock_log_lines_dropped_total"
    yield head(name, "counter", "Lines that the gateway could not print, as no reader took them in time.")
    yield f"{name} {present.lines_dropped}\n"
    if present.traces_dropped is not None:
        name = "penstock_traces_dropped_total"
        yield head(name, "counter", "Requests that were not traced, as too many waited for the thread.")
        yield f"{name} {present.traces_dropped}\n"


def _isolation(models: Mapping[str, tuple[int, bool]]) -> Iterator[str]:
    name = "penstock_model_worker_deaths_total"
    yield head(name, "counter", "Worker processes that died while they computed, loaded or measured it.")
    for model, (died, _) in models.items():
        yield f'{name}{{model="{escape(model)}"}} {died}\n'
    name = "penstock_model_isolated"
    yield head(name, "gauge", "1 where the model has worker processes of its own, 0 where it shares them.")
    for model, (_, own) in models.items():
        yield f'{name}{{model="{escape(model)}"}} {own:d}\n'


def _sequences(models: Mapping[str, SequenceStatus]) -> Iterator[str]:
    name = "penstock_sequences"
    yield head(name, "gauge", "Sequences of the model: live, with a slot, or waiting for one.")
    for model, each in models.items():
        for state, count in (("live", each["live"]), ("waiting", each["waiting"])):
            yield f'{name}{{model="{escape(model)}",state="{state}"}} {count}\n'
    name = "penstock_sequence_slots"
    yield head(name, "gauge", "Sequences that the model's replicas may have at once.")
    for model, each in models.items():
        yield f'{name}{{model="{escape(model)}"}} {each["slots"]}\n'
    name = "penstock_sequences_started_total"
    yield head(name, "counter", "Sequences that have started.")
    for model, each in models.items():
        yield f'{name}{{model="{escape(model)}"}} {each["started"]}\n'
    name = "penstock_sequences_ended_total"
    yield head(name, "counter", "Sequences that have ended, by how: end, idle or lost.")
    for model, each in models.items():
        for how, count in (("end", each["ended"]), ("idle", each["idle"]), ("lost", each["lost"])):
            yield f'{name}{{model="{escape(model)}",how="{how}"}} {count}\n'


def _rehearsed(present: ConditionPresent) -> Iterator[str]:
    name = "penstock_slice_rehearsed"
    yield head(name, "gauge", "1 where the answers of the slice are made up in a rehearsal, else 0.")
    for each, made_up in present.rehearsed.items():
        yield f'{name}{{slice="{escape(each)}"}} {made_up:d}\n'


def _rates(refused: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    name = "penstock_rate_limited_total"
    yield head(name, "counter", "Requests over a limit of their tenant, by which limit.")
    for tenant, counts in refused.items():
        yield "".join(
            f'{name}{{tenant="{escape(tenant)}",limit="{limit}"}} {count}\n'
            for limit, count in counts.items()
        )


def _tls(present: TlsPresent) -> Iterator[str]:
    name = "penstock_tls_handshakes_total"
    yield head(name, "counter", "TLS handshakes, by how they ended.")
    yield "".join(f'{name}{{result="{how}"}} {count}\n' for how, count in present.handshakes.items())
    name = "penstock_tls_handshakes_under_way"
    yield f"{head(name, 'gauge', 'TLS handshakes at this moment.')}{name} {present.under_way}\n"
    name = "penstock_tls_certificate_expiry_timestamp_seconds"
    yield f"{head(name, 'gauge', 'When the certificate in force ends.')}{name} {present.until_s:.0f}\n"
    name = "penstock_tls_last_reload_successful"
    text = head(name, "gauge", "Whether the latest edition of the certificate files is in force.")
    yield f"{text}{name} {int(present.reloaded)}\n"


def _auth(present: AuthPresent) -> Iterator[str]:
    name = "penstock_auth_refused_total"
    yield head(name, "counter", "Requests refused for their API key, or for want of one, by reason.")
    yield "".join(f'{name}{{reason="{why}"}} {count}\n' for why, count in present.refused.items())
    name = "penstock_auth_keys"
    yield head(name, "gauge", "API keys that count.")
    yield f"{name} {present.keys}\n"
    name = "penstock_auth_last_reload_successful"
    yield head(name, "gauge", "1 where the latest edit of the keys file counts, 0 where it was refused.")
    yield f"{name} {present.reloaded:d}\n"


def _held(present: ConditionPresent) -> Iterator[str]:
    name = "penstock_held_bytes"
    yield head(
        name, "gauge", "Memory held for clients: uploads, messages, bulk work, calls, unsent answers, cache."
    )
    yield "".join(f'{name}{{of="{of}"}} {size}\n' for of, size in present.held.items())
    name = "penstock_held_limit_bytes"
    yield head(
        name, "gauge", "The most that all kinds may hold together, without the cache (limits.held_mb)."
    )
    yield f"{name} {present.held_limit}\n"
    name = "penstock_held_given_up_total"
    yield head(name, "counter", "Uploads and unsent answers ended to keep those within limits.held_mb.")
    yield f"{name} {present.given_up}\n"
    name = "penstock_held_paused_total"
    yield head(name, "counter", "Uploads that were not read on for a while to stay within limits.held_mb.")
    yield f"{name} {present.paused}\n"


def _connections(present: ConditionPresent) -> Iterator[str]:
    name = "penstock_connections"
    yield head(name, "gauge", "Open connections, by edge and kind of place.")
    yield "".join(
        f'{name}{{edge="{edge}",place="{place}"}} {count}\n'
        for (edge, place), count in present.connections.items()
    )
    name = "penstock_connections_pushed_out_total"
    yield head(name, "counter", "Idle connections closed to make room for another.")
    yield "".join(f'{name}{{edge="{edge}"}} {pushed}\n' for edge, (pushed, _) in present.turned_out.items())
    name = "penstock_connections_refused_total"
    yield head(name, "counter", "Connections for which there was no place.")
    yield "".join(f'{name}{{edge="{edge}"}} {refused}\n' for edge, (_, refused) in present.turned_out.items())


def _build() -> str:
    name = "penstock_build_info"
    decisions = "compiled" if is_compiled() else "interpreted"
    labels = f'version="{version("penstock")}",python="{platform.python_version()}",decisions="{decisions}"'
    return f"{head(name, 'gauge', 'Always 1; its labels say what runs.')}{name}{{{labels}}} 1\n"
