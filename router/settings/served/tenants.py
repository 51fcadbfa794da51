"""`tenants:` as TenantSpecs: who shares an overloaded gateway, and how."""

from typing import Annotated

from pydantic import Field

from router.settings.served.promises import check_tier
from router.settings.values.fields import Name
from router.settings.values.findings import Findings
from router.settings.values.problems import shown
from router.settings.values.schema import TENANT_COUNT_MAX, Section
from serving.values.objectives import RateSpec
from serving.values.specs import TenantSpec

_Rate = Annotated[float, Field(ge=0.001, le=1e9, allow_inf_nan=False)]


class RateSection(Section):
    """`rate:` of a tenant; the defaults are those of RateSpec."""

    requests_per_s: _Rate | None = None
    rows_per_s: _Rate | None = None
    burst_s: Annotated[float, Field(ge=0.01, le=3600, allow_inf_nan=False)] | None = None
    concurrent: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class TenantSection(Section):
    """An entry of `tenants:`; the defaults are those of TenantSpec."""

    name: Name
    weight: Annotated[float, Field(ge=0.001, le=1_000_000, allow_inf_nan=False)] = 1.0
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    tier: Name | None = None
    rate: RateSection | None = None


def read_tenants(findings: Findings) -> tuple[TenantSpec, ...]:
    """Return the tenants that are sound, in the order of the file; none without `tenants:`."""
    entries = findings.document.at(("tenants",))
    count = min(len(entries), TENANT_COUNT_MAX) if isinstance(entries, list) else 0
    tenants: dict[str, TenantSpec] = {}
    for index in range(count):
        section = findings.parse(TenantSection, ("tenants", index))
        if section is None:
            continue
        if section.name in tenants:
            message = f"{shown(section.name)} is listed twice; list each tenant once"
            findings.add(("tenants", index, "name"), message)
        tier = section.tier or ""
        if tier:
            check_tier(findings, ("tenants", index, "tier"), tier)
        rate = _read_rate(findings, index, section.rate)
        spec = TenantSpec(section.name, section.weight, section.priority, tier, rate)
        tenants.setdefault(section.name, spec)
    return tuple(tenants.values())


def _read_rate(findings: Findings, index: int, section: RateSection | None) -> RateSpec | None:
    """Return a tenant's limits; None where it states none."""
    if section is None:
        return None
    stated = section.model_dump(exclude_none=True)
    if not stated.keys() - {"burst_s"}:
        message = "there is no limit in it; expected requests_per_s, rows_per_s or concurrent"
        findings.add(("tenants", index, "rate"), message)
        return None
    if "burst_s" in stated and not stated.keys() & {"requests_per_s", "rows_per_s"}:
        message = "a burst needs a rate; expected requests_per_s or rows_per_s beside it"
        findings.add(("tenants", index, "rate", "burst_s"), message)
    return RateSpec(**stated)


def rate_text(rate: RateSpec | None) -> str:
    """Return a tenant's limits in words."""
    if rate is None:
        return "none"
    told = [f"{rate.requests_per_s:g} requests/s"] if rate.requests_per_s else []
    told += [f"{rate.rows_per_s:g} rows/s"] if rate.rows_per_s else []
    told += [f"{rate.concurrent} at a time"] if rate.concurrent else []
    burst = f" (bursts of {rate.burst_s:g} s)" if rate.burst_s != RateSpec().burst_s else ""
    return ", ".join(told) + burst
