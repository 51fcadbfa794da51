"""Which requests of a model its candidate answers: a share, with a caller kept where it is."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final
from zlib import crc32

from serving.ports import Call
from serving.values.rollouts import STICKY
from serving.values.specs import DEFAULT_TENANT, ServedModel

TENANT, REQUEST, _ = STICKY
PLACES: Final = 10_000
"""Callers are spread over so many places; a candidate gets the first."""


@dataclass(frozen=True, slots=True)
class Split:
    """`share` (0..1) of the requests go to `candidate`. `sticky`: one of `serving.values.rollouts.STICKY`."""

    candidate: ServedModel
    share: float
    sticky: str


class Splits:
    """All of them, by model. A call that pins a variant stays; so does one whose tier the candidate lacks."""

    def __init__(self, seed: int | None = None) -> None:
        self.by_model: dict[str, Split] = {}
        self._draw: Callable[[], float] = Random(seed).random  # noqa: S311  # who is asked is no secret

    def route(self, call: Call) -> Call:
        """Return the call, or one for the candidate."""
        split = self.by_model.get(call.model.name)
        if split is None or call.variant or not self._is_chosen(split, call):
            return call
        tier = call.objective.tier
        if tier and tier not in split.candidate.by_tier:
            return call
        return _for(call, split.candidate)

    def _is_chosen(self, split: Split, call: Call) -> bool:
        if split.share >= 1:
            return True
        key = call.tenant if split.sticky == TENANT else call.name if split.sticky == REQUEST else ""
        if not key or key == DEFAULT_TENANT:  # callers that are not told apart
            return self._draw() < split.share
        return crc32(f"{call.model.name} {key}".encode()) % PLACES < split.share * PLACES


def _for(call: Call, model: ServedModel) -> Call:
    """Return the same call of another model with the same inputs."""
    made = Call(model, call.inputs, call.rows)
    promised, tier = call.objective, call.objective.tier
    own = call.model.by_tier[tier] if tier else call.model.own
    made.objective = model.objective(
        tier, promised.accuracy_min if promised.accuracy_min > own.accuracy_min else 0
    )
    made.size, made.timeout_us, made.tenant, made.parameters = (
        call.size, call.timeout_us, call.tenant, call.parameters
    )  # fmt: skip
    made.arrived_us, made.max_age_us, made.store, made.priority = (
        call.arrived_us, call.max_age_us, call.store, call.priority
    )  # fmt: skip
    made.name, made.trace = call.name, call.trace
    return made
