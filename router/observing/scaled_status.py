"""What `GET /v2/status` and `penstock status` say of models whose replicas follow their load."""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:  # a reader of JSON needs none of it
    from serving.control.scaling.scaling_status import ScalingStatus

_logger: Final = logging.getLogger("penstock.scale")

SHOWN_MAX: Final = 12
"""Models of which it is shown: those first that have not what they are to have."""


class ScaledStatus(TypedDict):
    """The replicas of a scaled model: `wanted` at this moment, of `desired` if all could be had; `held` says
    why not. `ready` get batches, `coming` are being started or loaded, `standing` are loaded without batches.
    `pressure` 1: what is ready is just enough; `why`: the reason for this number, in a sentence."""

    desired: int
    wanted: int
    ready: int
    coming: int
    standing: int
    pressure: float
    why: str
    held: str


def scaled_status(standing: "ScalingStatus") -> ScaledStatus:
    """Return the scaling as control has it."""
    return {
        "desired": standing.desired,
        "wanted": standing.count,
        "ready": standing.ready,
        "coming": standing.coming,
        "standing": standing.standing,
        "pressure": standing.pressure,
        "why": standing.why,
        "held": standing.held,
    }


class ScaleNews:
    """Logs each change of how many replicas a scaled model has."""

    def __init__(self) -> None:
        self._wanted: dict[str, int] = {}

    def look(self, standings: "Mapping[str, ScalingStatus]") -> None:
        """Log what has changed since the last look; a model that is new says nothing."""
        for name, standing in standings.items():
            before = self._wanted.get(name, standing.count)
            if standing.count != before:
                why = f": {standing.why}" if standing.why else ""
                _logger.info("%s gets %d replicas, %d before%s", name, standing.count, before, why)
        self._wanted = {name: standing.count for name, standing in standings.items()}


def scaled_lines(models: Mapping[str, ScaledStatus]) -> Iterator[str]:
    """Yield a line of each model, by name."""
    if not models:
        return
    yield " replicas that follow the load:"
    ranked = sorted(models, key=lambda name: (models[name]["ready"] >= models[name]["desired"], name))
    width = max(len(name) for name in ranked[:SHOWN_MAX])
    for name in ranked[:SHOWN_MAX]:
        yield f"   {name:{width}}   {_line(models[name])}"
    if len(ranked) > SHOWN_MAX:
        yield f"   and {len(ranked) - SHOWN_MAX} more models"


def _line(scaled: ScaledStatus) -> str:
    parts = [f"{scaled['ready']} of {scaled['wanted']} ready"]
    if scaled["coming"]:
        parts.append(f"{scaled['coming']} coming")
    if scaled["standing"]:
        parts.append(f"{scaled['standing']} standing by")
    if scaled["desired"] > scaled["wanted"]:
        held = f" ({scaled['held']})" if scaled["held"] else ""
        parts.append(f"{scaled['desired']} wished{held}")
    return f"{', '.join(parts)}; pressure {scaled['pressure']:.2f}; {scaled['why'] or 'just begun'}"
