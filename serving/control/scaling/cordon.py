"""Slices that are the last choice for scaled models: they will be lost, or a model fails to load."""

from collections.abc import Mapping

from serving.control.reconciling import LOAD_TRIES, START_TRIES
from serving.control.scaling.scaling_state import ScalingState
from serving.control.state.replicas import SliceRecord, WorkerStatus, on_slice
from serving.values.slice_specs import SliceSpec, own_process

CORDON_US = 60_000_000
"""How long a slice is the last choice after a model or its worker failed to come up there."""


class Cordon:
    """The cordoned slices. `leaving`: domains that will be lost soon, and why."""

    def __init__(self) -> None:
        self.leaving: dict[str, str] = {}
        self._barred: dict[tuple[str, str], int] = {}  # (slice, model) -> until when

    def is_cordoned(self, spec: SliceSpec, model: str, now_us: int) -> bool:
        """Return whether a slice is the last choice of a model."""
        leaves = bool(self.leaving) and spec.domain in self.leaving
        return leaves or self._barred.get((spec.name, model), 0) > now_us

    def bar(self, models: Mapping[str, ScalingState], slices: Mapping[str, SliceRecord], now_us: int) -> bool:
        """Cordon the slices on which a model fails; return whether there are new ones."""
        found = [
            (name, model)
            for model, scaled in models.items()
            for name in (*scaled.slices, *scaled.standby)
            if self._barred.get((name, model), 0) <= now_us and _fails(slices, name, model)
        ]
        self._barred |= dict.fromkeys(found, now_us + CORDON_US)
        return bool(found)


def _fails(slices: Mapping[str, SliceRecord], slice_name: str, model: str) -> bool:
    own = slices.get(own_process(slice_name, model), slices.get(slice_name))
    if own is not None and own.status is not WorkerStatus.READY and own.failures >= START_TRIES:
        return True
    return any(each.failures >= LOAD_TRIES for _, each in on_slice(slices, slice_name, model))
