"""The way from what was wanted to what is: states to go through one after the other, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from serving.control.desired import DesiredState, union


class RolloutState(StrEnum):
    """Whether what is wanted is so."""

    STEADY = "steady"
    MOVING = "moving"
    TURNING_BACK = "turning back"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a move is: `step` of `steps`, from 1. `reasons`: sentences, why the last move was given up, or
    why what is wanted cannot be; `waiting`: what the present step waits for."""

    state: RolloutState
    step: int
    steps: int
    reasons: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class Rollout:
    """`current`: what is to be so at present. `last_good`: the last of all that was wanted that has been so,
    or else the first; None while that is still on its way."""

    def __init__(self, first: DesiredState) -> None:
        self.last_good: DesiredState | None = None
        self.movement = RolloutState.MOVING
        self.reasons: tuple[str, ...] = ()
        self._states = [first]
        self._place = 0

    @property
    def current(self) -> DesiredState:
        """The state that is to be reached next, or kept."""
        return self._states[self._place]

    @property
    def target(self) -> DesiredState:
        """The last of the states."""
        return self._states[-1]

    @property
    def passed(self) -> tuple[DesiredState, ...]:
        """The states that a way back would lead through, and the present one."""
        return (*([self.last_good] if self.last_good else []), *self._states[: self._place + 1])

    @property
    def step(self) -> tuple[int, int]:
        """(which state is to be reached, from 1; how many there are)."""
        return self._place + 1, len(self._states)

    def set(self, desired: DesiredState, by: Sequence[DesiredState] = ()) -> None:
        """Go there, through `by`; without, through a state in which all of both is there."""
        first = by or (union(self.current, desired),)
        self.last_good = self.last_good or self.target
        self._states = [*first, *([desired] if first[-1] != desired else [])]
        self._place = 0
        self.movement, self.reasons = RolloutState.MOVING, ()

    def reached(self) -> bool:
        """The present state is so: go on to the next. False where it was the last."""
        if self._place + 1 < len(self._states):
            self._place += 1
            return True
        self._states, self._place = [self.current], 0
        self.last_good, self.movement = self.current, RolloutState.STEADY
        return False

    def roll_back(self, reason: str) -> bool:
        """Go home through the states that were passed. False where there is no way to give up."""
        if self.last_good is None or self.movement is not RolloutState.MOVING:
            return False
        self._states = [*reversed(self._states[: self._place]), self.last_good]
        self._place = 0
        self.movement, self.reasons = RolloutState.TURNING_BACK, (reason,)
        return True
