"""What `GET /v2/status` and `penstock status` say of models whose replicas follow their load."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:  # a reader of JSON needs none of it
    from serving.control.scaling.scaling_status import ScalingStatus

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
