"""The rollout from the observed to the desired state: states to reach one after the other, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from serving.control.rollouts.breaking import way
from serving.control.state.desired import DesiredState


class RolloutState(StrEnum):
    """Whether the desired state is reached."""

    STEADY = "steady"
    MOVING = "moving"
    TURNING_BACK = "rolling back"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rollout is: `step` of `steps`, from 1.

    `reasons`: sentences that say why the last rollout was given up, or why the desired state cannot be
    reached. `waiting`: what the present step waits for.
    """

    state: RolloutState
    step: int
    steps: int
    reasons: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class Rollout:
    """The states of the rollout. `current`: the state to reach now, or to keep.

    `last_good`: the last desired state that was reached, or else the first. None until a first state is
    reached.
    """

    def __init__(self, first: DesiredState) -> None:
        self.last_good: DesiredState | None = None
        self.movement = RolloutState.MOVING
        self.reasons: tuple[str, ...] = ()
        self._states = [first]
        self._place = 0

    @property
    def current(self) -> DesiredState:
        """The state to reach next, or to keep."""
        return self._states[self._place]

    @property
    def target(self) -> DesiredState:
        """The last of the states."""
        return self._states[-1]

    @property
    def passed(self) -> tuple[DesiredState, ...]:
        """The states that a rollback would go through, and the present one."""
        return (*([self.last_good] if self.last_good else []), *self._states[: self._place + 1])

    @property
    def step(self) -> tuple[int, int]:
        """(The number of the state to reach, from 1; how many there are)."""
        return self._place + 1, len(self._states)

    def set(self, desired: DesiredState, by: Sequence[DesiredState] = ()) -> None:
        """Begin a rollout to `desired`, through the states `by`; without `by`, through the union of both.

        A GPU that cannot have what both states have there is drained in between.
        """
        first = way(self.current, desired, by)
        self.last_good = self.last_good or self.target
        self._states = [*first, *([desired] if first[-1] != desired else [])]
        self._place = 0
        self.movement, self.reasons = RolloutState.MOVING, ()

    def reached(self) -> bool:
        """Go on to the next state, because the present one is reached; return False if it was the last."""
        if self._place + 1 < len(self._states):
            self._place += 1
            return True
        self._states, self._place = [self.current], 0
        self.last_good, self.movement = self.current, RolloutState.STEADY
        return False

    def roll_back(self, reason: str) -> bool:
        """Go back through the states that were passed; return False if there is no rollout to give up."""
        if self.last_good is None or self.movement is not RolloutState.MOVING:
            return False
        self._states = [*reversed(self._states[: self._place]), self.last_good]
        self._place = 0
        self.movement, self.reasons = RolloutState.TURNING_BACK, (reason,)
        return True
