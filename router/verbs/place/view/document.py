"""A decision as JSON: all that the tables have, and every device by name.

holds             whether what is asked is carried and predicted to be in time
sentence, refused what to see; why it does not hold, in sentences
taken, reason     whether the plan takes the place of what is there, and why; if not, nothing changes
method, optimal   how the plan was found; whether none can cost less
cost_per_hour, bound_per_hour, gap, priced
                  of the placement; what any plan costs at least, and by how much it is dearer, relative
                  to that; priced is false where each device counts as 1
devices, devices_used
                  how many there are, and have a slice in the placement
placement, before, plan
                  what is to be from now on (or would be, if it held), what is in place, what was found
                  where that stays instead (else null): by device a list of slices, each with share
                  (KIND:AMOUNT), start (MIG's memory slice or null), residents: model, variant, rows (of a
                  batch), processes, batch_ms (without neighbours), capacity_rows_per_s, profiled_capacity
                  (rows_per_s, batch_rows: alone, two batches within the SLO; null where none fits)
models            by name: asked_rows_per_s, rate_rows_per_s (with the reserve), slo_ms, variants,
                  replicas, capacity_rows_per_s, short_rows_per_s, headroom, domains, domains_min,
                  attainment, p99_ms (both predicted)
busy              by slice (DEVICE/SHARE@START), the share of its time in which it is predicted to compute
moves             by model: started, ended, kept; and where: device, share, start, model, variant
steps             lists of what is done at once: action, device, share, start, model, variant
premises, notes   what it was decided from, as texts
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from router.verbs.place.view import words
from router.verbs.place.view.figures import ModelFigures, used
from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.steps import ShownStep
from serving.policy.placement.terms.moves import ReplicaPlace
from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot

_DIGITS = 6


def document(shown: PlaceReport) -> dict[str, Any]:
    """Return the report in plain values, as above; unknown values are null, and figures have six digits."""
    plain: dict[str, Any] = _finite(
        {
            "holds": not shown.refused,
            "sentence": words.sentence(shown),
            "refused": list(shown.refused),
            "taken": shown.taken,
            "reason": shown.reason,
            "method": shown.plan.method,
            "optimal": shown.plan.optimal,
            "cost_per_hour": shown.cost,
            "bound_per_hour": shown.bound or None,
            "gap": shown.gap if shown.bound else None,
            "priced": shown.priced,
            "devices": sum(len(pool.devices) for pool in shown.problem.pools),
            "devices_used": used(shown.after),
            "placement": _placement(shown.after),
            "before": _placement(shown.before),
            "plan": _placement(shown.plan.placement) if shown.kept else None,
            "models": {each.model: _model(each) for each in shown.models},
            "busy": dict(shown.busy),
            "moves": _moves(shown),
            "steps": [[_step(each) for each in stage] for stage in shown.steps],
            "premises": dict(shown.premises),
            "notes": list(shown.notes),
        }
    )
    return plain


def _placement(placement: Placement) -> dict[str, Any]:
    return {device: [_slot(slot) for slot in slots] for device, slots in sorted(placement.items()) if slots}


def _slot(slot: Slot) -> dict[str, Any]:
    return {
        "share": str(slot.share),
        "start": _start(slot.start),
        "residents": [_resident(each) for each in slot.residents],
    }


def _resident(resident: PlacedReplica) -> dict[str, Any]:
    profiled = resident.option.profiled
    return {
        "model": resident.model,
        "variant": resident.option.variant,
        "rows": resident.rows,
        "processes": resident.option.processes,
        "batch_ms": resident.option.latency_us(resident.rows) / 1000,
        "capacity_rows_per_s": resident.capacity,
        "profiled_capacity": profiled and {"rows_per_s": profiled.rate, "batch_rows": profiled.rows},
    }


def _start(start: int) -> int | None:
    return start if start >= 0 else None


def _model(each: ModelFigures) -> dict[str, Any]:
    return {
        "asked_rows_per_s": each.asked,
        "rate_rows_per_s": each.demand.rate,
        "slo_ms": each.slo_ms,
        "variants": list(each.variants),
        "replicas": each.replicas,
        "capacity_rows_per_s": each.capacity,
        "short_rows_per_s": each.short,
        "headroom": each.headroom,
        "domains": each.domains,
        "domains_min": each.demand.domains_min,
        "attainment": each.attainment,
        "p99_ms": each.p99_ms,
    }


def _moves(shown: PlaceReport) -> dict[str, Any]:
    return {
        "models": {
            model: {"started": started, "ended": ended, "kept": kept}
            for model, (started, ended, kept) in shown.moves.by_model.items()
        },
        "started": _places(shown.moves.started),
        "ended": _places(shown.moves.ended),
    }


def _places(places: Sequence[ReplicaPlace]) -> list[dict[str, Any]]:
    return [
        {
            "device": each.device,
            "share": str(each.slot.share),
            "start": _start(each.slot.start),
            "model": each.resident.model,
            "variant": each.resident.option.variant,
        }
        for each in places
    ]


def _step(step: ShownStep) -> dict[str, Any]:
    return {
        "action": step.action,
        "device": step.device,
        "share": str(step.share),
        "start": _start(step.start),
        "model": step.model or None,
        "variant": step.variant or None,
    }


def _finite(value: Any) -> Any:  # walks plain JSON values of any shape
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if isfinite(value) else None
    return value
