"""What happened to each tenant's requests, of all models together."""

from collections.abc import Sequence
from typing import TypedDict

from router.observing.telemetry.counting.counts import FlowCounts, ModelCounts
from router.observing.telemetry.counting.windows import BUDGET_MIN, WINDOWS_S


class TenantCounters(TypedDict):
    """The counters of a tenant since the start, as `Counters` has them of a model. Its `burn` is what missed
    over what may miss: each model's requests have the budget of that model."""

    requests: int
    offered: int
    good: int
    rows: int
    goodput_rows: int
    burn: dict[str, float]


def tenant_counters(models: Sequence[ModelCounts], now_us: int) -> dict[str, TenantCounters]:
    """Return the counters of each tenant that has had requests."""
    found: dict[str, TenantCounters] = {}
    budgets: dict[str, list[list[float]]] = {}  # by tenant: (missed, may miss) of each window
    for model in models:
        budget = max(1 - model.objective, BUDGET_MIN)
        for tenant, flow in list(model.flows.items()):
            _add(found, tenant, flow)
            windows = budgets.setdefault(tenant, [[0.0, 0.0] for _ in WINDOWS_S])
            for sums, (offered, good) in zip(windows, flow.window_counts(now_us), strict=True):
                sums[0] += offered - good
                sums[1] += offered * budget
    for tenant, windows in budgets.items():
        burn = {name: sums[0] / sums[1] for name, sums in zip(WINDOWS_S, windows, strict=True) if sums[1]}
        found[tenant]["burn"] = burn
    return found


def _add(found: dict[str, TenantCounters], tenant: str, flow: FlowCounts) -> None:
    if tenant not in found:
        found[tenant] = {"requests": 0, "offered": 0, "good": 0, "rows": 0, "goodput_rows": 0, "burn": {}}
    each = found[tenant]
    each["requests"] += flow.completed + sum(flow.others.values())
    each["offered"] += flow.offered
    each["good"] += flow.good
    each["rows"] += flow.rows
    each["goodput_rows"] += flow.good_rows
