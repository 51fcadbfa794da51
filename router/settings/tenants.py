"""`tenants:` as TenantSpecs: who shares an overloaded gateway, and how."""

from router.settings.findings import Findings
from router.settings.problems import shown
from router.settings.promises import check_tier
from router.settings.schema import TENANT_COUNT_MAX, TenantSection
from serving.specs import TenantSpec


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
        spec = TenantSpec(section.name, section.weight, section.priority, tier)
        tenants.setdefault(section.name, spec)
    return tuple(tenants.values())
