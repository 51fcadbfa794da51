"""`placement:` and `mig:`: what the gateway may do by itself to reach a desired state."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from router.settings.values.fields import known
from router.settings.values.findings import Findings
from router.settings.values.schema import Section

REPLAN = ("off", "advise", "apply")
"""What a gateway does if it cannot reach its desired state: only log why, show another plan, or apply it."""

_PLACEMENT, _MIG = ("placement",), ("mig",)


def _read_off(value: object) -> object:
    return "off" if value is False else value  # YAML 1.1 reads a bare `off` as false


class PlacementSection(Section):
    """`placement:`; the defaults are those of PlacementSettings."""

    replan: (
        Annotated[str, BeforeValidator(_read_off), AfterValidator(known("way to replan", REPLAN))] | None
    ) = None


class MigSection(Section):
    """`mig:`; by default the gateway leaves the layout of a GPU alone."""

    recut: bool = False


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """What the gateway may do by itself.

    `replan`: `off` logs why the desired state cannot be reached, `advise` shows another plan too, `apply`
    carries that out. `recut`: it may create MIG instances, and destroy those that no slice has.
    """

    replan: str = "advise"
    recut: bool = False


def read_placement(findings: Findings) -> PlacementSettings:
    """Return both sections, with the defaults for what they leave out."""
    found = PlacementSettings()
    if isinstance(findings.document.at(_PLACEMENT), dict):
        section = findings.parse(PlacementSection, _PLACEMENT)
        if section is not None and section.replan is not None:
            found = replace(found, replan=section.replan)
    if isinstance(findings.document.at(_MIG), dict):
        mig = findings.parse(MigSection, _MIG)
        found = replace(found, recut=mig is not None and mig.recut)
    return found
