"""`placement:` as PlacementSettings: what the gateway does where it cannot reach its desired state."""

from dataclasses import dataclass

from router.settings.findings import Findings
from router.settings.schema import PlacementSection

_LOC = ("placement",)


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """`replan`: `off` logs why, `advise` shows another plan too, `apply` carries that out."""

    replan: str = "advise"


def read_placement(findings: Findings) -> PlacementSettings:
    """Return the section, with the defaults for what it leaves out."""
    if not isinstance(findings.document.at(_LOC), dict):
        return PlacementSettings()
    section = findings.parse(PlacementSection, _LOC)
    return PlacementSettings(**section.model_dump(exclude_none=True)) if section else PlacementSettings()
