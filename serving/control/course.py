"""The way from what was wanted to what is: states to go through one after the other, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from serving.control.wanted import Wanted, union


class Movement(StrEnum):
    """Whether what is wanted is so."""

    STEADY = "steady"
    MOVING = "moving"
    TURNING_BACK = "turning back"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a move is: `step` of `steps`, from 1. `reasons`: sentences, why the last move was given up, or
    why what is wanted cannot be; `waiting`: what the present step waits for."""

    state: Movement
    step: int
    steps: int
    reasons: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class Course:
    """`aim`: what is to be so at present. `home`: the last of all that was wanted that has been so, or else
    the first; None while that is still on its way."""

    def __init__(self, first: Wanted) -> None:
        self.home: Wanted | None = None
        self.movement = Movement.MOVING
        self.reasons: tuple[str, ...] = ()
        self._states = [first]
        self._place = 0

    @property
    def aim(self) -> Wanted:
        """The state that is to be reached next, or kept."""
        return self._states[self._place]

    @property
    def goal(self) -> Wanted:
        """The last of the states."""
        return self._states[-1]

    @property
    def passed(self) -> tuple[Wanted, ...]:
        """The states that a way back would lead through, and the present one."""
        return (*([self.home] if self.home else []), *self._states[: self._place + 1])

    @property
    def step(self) -> tuple[int, int]:
        """(which state is to be reached, from 1; how many there are)."""
        return self._place + 1, len(self._states)

    def set(self, wanted: Wanted, by: Sequence[Wanted] = ()) -> None:
        """Go there, through `by`; without, through a state in which all of both is there."""
        first = by or (union(self.aim, wanted),)
        self.home = self.home or self.goal
        self._states = [*first, *([wanted] if first[-1] != wanted else [])]
        self._place = 0
        self.movement, self.reasons = Movement.MOVING, ()

    def reached(self) -> bool:
        """The present state is so: go on to the next. False where it was the last."""
        if self._place + 1 < len(self._states):
            self._place += 1
            return True
        self._states, self._place = [self.aim], 0
        self.home, self.movement = self.aim, Movement.STEADY
        return False

    def turn_back(self, reason: str) -> bool:
        """Go home through the states that were passed. False where there is no way to give up."""
        if self.home is None or self.movement is not Movement.MOVING:
            return False
        self._states = [*reversed(self._states[: self._place]), self.home]
        self._place = 0
        self.movement, self.reasons = Movement.TURNING_BACK, (reason,)
        return True
