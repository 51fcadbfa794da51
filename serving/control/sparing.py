"""A loaded spare beside the worker of a slice that something outside kills.

An operator, a flaky driver or the kernel may end a worker without any fault of its models.
Its slice then has no answer until the next worker has started and loaded. So the slice gets a second process
on the same cores (`cpu-a+spare`), with the same replicas loaded and no batches. If the worker ends again, the
spare gets its batches at once, and gives them back once the next worker is ready.

A spare takes as much memory again. So a slice gets one only in these cases:
- A kill from outside has just ended its worker, and this is not long ago.
- No other slice has the same model.
- The machine has room for it twice: for the spare, and for the worker that is started again.
"""

from collections.abc import Mapping
from dataclasses import replace

from serving.control.state.desired import DesiredSlice, DesiredState
from serving.control.state.replicas import ReplicaStatus, SliceRecord, WorkerStatus
from serving.control.state.timeouts import ANSWERED_US
from serving.values.slice_specs import own_process, place_of
from serving.values.vocabulary import NEVER_US

SPARE = "spare"
KEPT_US = 600_000_000
"""For how long a spare stays after the last kill: repeated kills come within minutes."""
ROOM = 2
"""How many times a slice's memory must be free."""
_ANSWERS = (ReplicaStatus.STANDING, ReplicaStatus.READY)


class Sparing:
    """The spares of all slices."""

    def __init__(self, slices: Mapping[str, SliceRecord]) -> None:
        self._slices = slices
        self._until_us: dict[str, int] = {}  # by slice, when its spare ends

    @property
    def due_us(self) -> int:
        """When the next spare ends; NEVER_US without spares."""
        return min(self._until_us.values(), default=NEVER_US)

    def is_spare(self, slice_name: str) -> bool:
        """Return whether a process is a spare."""
        place = place_of(slice_name)
        return place in self._until_us and slice_name == own_process(place, SPARE)

    def killed(self, record: SliceRecord, free_bytes: int, now_us: int) -> None:
        """Take the end of a worker from outside, before its replicas are marked as gone.

        `free_bytes`: the memory that the machine has left, 0 if unknown.
        """
        spec = record.spec
        lived_us = now_us - record.since_us if record.status is WorkerStatus.READY else 0
        apart = spec.name != spec.place or spec.device != "cpu" or spec.memory_bytes > 0
        if apart or lived_us < ANSWERED_US:
            return
        needed = ROOM * _memory_bytes(record)
        if spec.name in self._until_us or (0 < needed <= free_bytes):
            self._until_us[spec.name] = now_us + KEPT_US

    def failed(self, slice_name: str) -> None:
        """Give up the spare that could not be started or loaded."""
        self._until_us.pop(place_of(slice_name), None)

    def expire(self, now_us: int) -> None:
        """End the spares that have run out of time."""
        self._until_us = {name: until_us for name, until_us in self._until_us.items() if until_us > now_us}

    def added(self, current: DesiredState) -> DesiredState:
        """Return the desired state with the spares."""
        if not self._until_us:
            return current
        names = {each.spec.name for each in current.slices}
        spares = []
        for each in current.slices:
            name = own_process(each.spec.name, SPARE)
            if each.spec.name not in self._until_us or name in names or not _is_alone(each, current):
                continue
            routed = {(one.model, one.variant) for one in each.replicas if one.routed}
            missing = routed - self._answered(each.spec.name)
            if missing and name not in self._slices:
                continue  # the worker itself comes first
            replicas = tuple(
                replace(one, routed=(one.model, one.variant) in missing) for one in each.replicas
            )
            spares.append(DesiredSlice(replace(each.spec, name=name), replicas))
        return replace(current, slices=(*current.slices, *spares)) if spares else current

    def _answered(self, slice_name: str) -> set[tuple[str, str]]:
        """Return the variants for which a slice's own worker gets batches, or will at this event."""
        record = self._slices.get(slice_name)
        if record is None or record.status is not WorkerStatus.READY:
            return set()
        return {(one.model, one.variant) for one in record.replicas.values() if one.status in _ANSWERS}


def _is_alone(each: DesiredSlice, current: DesiredState) -> bool:
    """Return whether a slice has a model that no other slice answers for."""
    others = {one.model for other in current.slices if other is not each for one in other.replicas}
    return any(one.routed and one.model not in others for one in each.replicas)


def _memory_bytes(record: SliceRecord) -> int:
    """Return what a slice's replicas hold, with what their imports hold once a process."""
    profiles = [each.profile for each in record.replicas.values() if each.profile is not None]
    imports = max((each.import_bytes or 0 for each in profiles), default=0)
    return imports + sum(each.memory_bytes for each in record.replicas.values())
