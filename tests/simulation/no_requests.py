"""A data plane without requests: nothing is ever busy, and a retired model is done after a while."""

from collections.abc import Collection, Iterable
from heapq import heappop, heappush

from serving.control.commands import Command, RetireModel
from serving.simulation.governed.virtual_workers import Happening
from serving.values.vocabulary import NEVER_US

DRAIN_US = 100_000


class Quiet:
    """A `serving.simulation.governed.controlled.DataPlane`."""

    def __init__(self) -> None:
        self.wake_us = NEVER_US
        self._retired: list[tuple[int, str]] = []

    def carry_out(self, command: Command, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`."""
        if isinstance(command, RetireModel):
            heappush(self._retired, (now_us + DRAIN_US, command.model))
            self.wake_us = self._retired[0][0]
        return ()

    def wake(self, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`."""
        _, model = heappop(self._retired)
        self.wake_us = self._retired[0][0] if self._retired else NEVER_US
        return (("model_retired", model),)

    def settled(self, slice_name: str, happening: Happening, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`."""
        return ()

    def rest_us(self, slice_name: str, now_us: int) -> int:
        """See `DataPlane`."""
        return 0

    def quiet(self, slices: Iterable[str], now_us: int) -> Collection[str]:
        """See `DataPlane`."""
        return [*slices]
