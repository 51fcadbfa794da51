"""The settings that are in force, and the one way to change them: as a whole, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from router.settings import Settings
from serving.control.rollouts.rollout import Progress, RolloutState
from serving.control.state.desired import DesiredState
from serving.profile.curve import Profile
from serving.values.objectives import ScalingSpec
from serving.values.specs import ServedModel

ROLLED_BACK = "an operator rolled it back"

Changed = Callable[[Settings], Settings]
"""Other settings, made of those in force."""

Back = Callable[[], Awaitable[object]]
"""Called when a change is given up."""


class ChangeRefused(Exception):  # noqa: N818  it is no error of the gateway's
    """A change that was not carried out; what was in force before is in force. `reasons`: sentences."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


class Controlled(Protocol):
    """What carries changes out: `serving.runtime.fleet.Fleet`, which says more of it."""

    @property
    def progress(self) -> Progress: ...

    @property
    def movement(self) -> RolloutState: ...

    @property
    def given_up(self) -> tuple[str, ...]: ...

    def know(self, known: Mapping[tuple[str, str, str], Profile]) -> None: ...

    def want(self, wanted: DesiredState, by: Sequence[DesiredState] = ()) -> None: ...

    def scale(self, spec: ScalingSpec) -> None: ...

    def roll_back(self, reason: str) -> None: ...

    async def changed(self) -> None: ...


class Current:
    """`settings`: in force, or on their way. `stored`: reads the stored profiles of settings, from disk."""

    def __init__(
        self,
        settings: Settings,
        fleet: Controlled,
        stored: Callable[[Settings], Mapping[tuple[str, str, str], Profile]],
    ) -> None:
        self.settings = settings
        self._fleet = fleet
        self._stored = stored
        self._alone = asyncio.Lock()
        self._pending = 0
        self._withdrawn = ""  # why a change is given up that has not begun to move anything

    async def change(
        self,
        settings: Settings | Changed,
        by: Sequence[DesiredState] = (),
        turning_back: Back | None = None,
    ) -> None:
        """Carry out other slices and models; return when that is done. Raises ChangeRefused if it cannot be
        done.

        `settings`: the new settings, or a function that makes them of the settings in force when this
        change's turn comes; it may raise ChangeRefused. `by`: states to go through
        (`serving.control.control.Control.want`). `turning_back`: called as soon as the change is given up.
        The change goes on if its caller is cancelled: half of a change is none.
        """
        self._pending += 1
        await asyncio.shield(asyncio.create_task(self._take_turn(settings, by, turning_back)))

    def progress(self) -> Progress:
        """Return how far what is wanted is so."""
        return self._fleet.progress

    def movement(self) -> RolloutState:
        """Return whether what is wanted is so; `progress` also says what is missing."""
        return self._fleet.movement

    def roll_back(self, reason: str = ROLLED_BACK) -> None:
        """Give up a change under way: its `change` is Refused for that reason once all is as before."""
        self._withdrawn = reason if self._pending else ""
        self._fleet.roll_back(reason)

    async def _take_turn(
        self, asked: Settings | Changed, by: Sequence[DesiredState], back: Back | None
    ) -> None:
        async with self._alone:
            try:
                await self._change(asked, by, back)
            finally:
                self._pending -= 1
                self._withdrawn = ""

    async def _change(self, asked: Settings | Changed, by: Sequence[DesiredState], back: Back | None) -> None:
        before = self.settings
        settings = asked if isinstance(asked, Settings) else asked(before)
        if faults := [*_conflicts(before.models, settings.models)]:
            raise ChangeRefused(faults)
        known = await asyncio.get_running_loop().run_in_executor(None, self._stored, settings)
        if self._withdrawn:
            raise ChangeRefused((self._withdrawn,))
        self._fleet.know(known)
        self.settings = settings
        self._fleet.scale(settings.scaling)
        self._fleet.want(DesiredState.of(settings.slices, settings.models), by or _renamed(before, settings))
        while (state := self._fleet.movement) is not RolloutState.STEADY:
            if state is RolloutState.TURNING_BACK and back is not None:
                await back()
                back = None
                continue  # it may have ended meanwhile
            await self._fleet.changed()
        if reasons := self._fleet.given_up:
            self.settings = before
            self._fleet.scale(before.scaling)
            raise ChangeRefused(reasons)


def _renamed(before: Settings, after: Settings) -> Sequence[DesiredState]:
    """Return the states to go through if versions get other names: first under both, so that one always
    answers, and then with all that is new. What goes stays until the rest has come."""
    served = {(each.spec.model_name, each.spec.version) for each in before.models if each.spec.version}
    names = {each.name for each in before.models}
    there = (each for each in after.models if (each.spec.model_name, each.spec.version) in served)
    moved = [each for each in there if each.name not in names]
    if not moved or before.slices != after.slices:
        return ()
    both = DesiredState.of(before.slices, (*before.models, *moved))
    new = {each.name for each in after.models}
    leaving = [each for each in before.models if each.name not in new]
    return both, DesiredState.of(before.slices, (*after.models, *leaving))


def _conflicts(before: Sequence[ServedModel], after: Sequence[ServedModel]) -> Sequence[str]:
    """Return the models that take or give other tensors than those that they have accepted requests for."""
    there = {model.name: model for model in before}
    found = []
    for model in after:
        old = there.get(model.name)
        if old is not None and (old.spec.inputs, old.spec.outputs) != (model.spec.inputs, model.spec.outputs):
            others = f"the inputs or outputs of {model.name} are others than those that it serves"
            found.append(f"{others}; unload it first, or serve it under another name")
    return found
