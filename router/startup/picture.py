"""What status and metrics show of control's records, read at one moment."""

from collections import Counter

from router.http.fastpath import RestServer
from router.management.devices import kind_named
from router.observing.status import ReplicaBody
from router.observing.telemetry import AuthPresent, MetricsServer, ScalePresent, demand
from router.security.auth.following import KeyWatch
from router.security.auth.guard import KeyGuard
from serving.control.control import Control
from serving.control.state.replicas import why_absent
from serving.policy.estimates.freshness import Freshness
from serving.runtime.calls.gateway import Gateway


def replicas_of(control: Control, gateway: Gateway) -> list[ReplicaBody]:
    """Return what the status says of each replica."""
    judged = {(each.slice, each.model, each.variant): each for each in gateway.judgements()}
    found: list[ReplicaBody] = []
    for name, record in control.slices.items():
        for each in record.replicas.values():
            said = judged.get((name, each.model, each.variant))
            found.append(
                {
                    "model": each.model,
                    "variant": each.variant,
                    "slice": name,
                    "state": each.status.value,
                    "profile": said.freshness.value if said else Freshness.FRESH.value,
                    "profile_ratio": said.ratio if said else 1.0,
                    "renewing": each.sweep.renewing,
                }
            )
            if reason := why_absent(record, each):
                found[-1]["reason"] = reason
    return found


def scaling_of(control: Control, gateway: Gateway) -> ScalePresent:
    """Return what metrics show of scaled models."""
    scaling, slices = control.scaling, control.slices
    standings = scaling.standings()
    demands = {name: (each.pressure, each.desired) for name, each in standings.items()}
    for name in gateway.models.keys() - standings.keys():
        load, count = gateway.load(name)
        if count:
            demands[name] = demand(load, count)
    held = control.scaling.held()
    resident: dict[str, set[str]] = {name: set() for name in held}
    for record in slices.values():
        resident.get(record.spec.place, set()).update(each.model for each in record.replicas.values())
    return ScalePresent(
        demands,
        scaling.changes,
        resident,
        Counter((kind_named(spec), spec.spot) for spec in held.values()),
        scaling.cost_max,
    )


def connections_of(rest: RestServer, admin: RestServer, metrics: MetricsServer) -> dict[tuple[str, str], int]:
    """Return how many connections each edge has, by edge and kind of place."""
    found: dict[tuple[str, str], int] = {}
    for name, edge in (("rest", rest), ("admin", admin)):
        found[name, "regular"], found[name, "reserved"] = edge.connection_counts
    return {**found, ("metrics", "regular"): metrics.connection_count}


def auth_of(watch: KeyWatch | None, guard: KeyGuard) -> AuthPresent | None:
    """Return what metrics show of API keys; None if no caller needs one."""
    return None if watch is None else AuthPresent(len(guard.keys.specs), not watch.refused, guard.refused)
