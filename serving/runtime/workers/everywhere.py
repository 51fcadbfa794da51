"""The workers of all slices: those of this machine and, where nodes may join, those on nodes."""

from collections.abc import Awaitable, Callable, Collection

from serving.runtime.workers.contract import Workers
from serving.runtime.workers.ends import STOP_GRACE_S
from serving.values.slice_specs import SliceSpec


class WorkersEverywhere:
    """A `Workers` that asks the right one, by the slice. `far`: None if no node may join. `wait_to_start`:
    returns once a slice is this gateway's own."""

    def __init__(self, here: Workers) -> None:
        self.far: Workers | None = None
        self.wait_to_start: Callable[[str], Awaitable[None]] | None = None
        self._here = here
        self._far_slices: set[str] = set()

    async def start(self, spec: SliceSpec) -> None:
        """See `Workers`."""
        if spec.node:
            self._far_slices.add(spec.name)
        else:
            self._far_slices.discard(spec.name)
        if self.wait_to_start is not None:
            await self.wait_to_start(spec.name)
        await self._of(spec.name).start(spec)

    def release(self, slice_name: str) -> None:
        """See `Workers`."""
        self._of(slice_name).release(slice_name)

    def kill(self, slice_name: str, reason: str) -> None:
        """See `Workers`."""
        self._of(slice_name).kill(slice_name, reason)

    def end_all(self, reason: str) -> None:
        """See `Workers`."""
        if self.far is not None:
            self.far.end_all(reason)
        self._here.end_all(reason)

    async def check(self, slice_name: str, pid: int) -> None:
        """See `Workers`."""
        await self._of(slice_name).check(slice_name, pid)

    async def ended(self, slice_name: str) -> None:
        """See `Workers`."""
        await self._of(slice_name).ended(slice_name)

    async def let_go(self, slices: Collection[str]) -> None:
        """See `Workers`."""
        if self.far is not None:
            await self.far.let_go(self._far_slices.intersection(slices))
        await self._here.let_go([name for name in slices if name not in self._far_slices])

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """See `Workers`. Those on nodes end first: an end takes a trip there."""
        if self.far is not None:
            await self.far.stop(grace_s)
        await self._here.stop(grace_s)

    def _of(self, slice_name: str) -> Workers:
        far = self.far if slice_name in self._far_slices else None
        return self._here if far is None else far
