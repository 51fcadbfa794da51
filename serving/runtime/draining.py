"""Lets the sequences of a replica end before it goes.

Control unroutes, replaces and unloads replicas. Where one has live sequences, these commands wait: the
replica takes no new sequence, until its last has ended or the gateway waits no longer.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from serving.control.commands import Command, Route, UnloadReplica, Unroute, Withdraw
from serving.runtime.clocks.alarm import Alarm
from serving.runtime.clocks.clock import now_us

logger = logging.getLogger(__name__)

LOOK_US: Final = 100_000
Place = tuple[str, str, str]
"""Slice, model and variant."""


class SequencePlaces(Protocol):
    """Of `serving.runtime.calls.gateway.Gateway` what is asked here."""

    sequence_drain_s: float
    """How long a replica that is to go may wait for its sequences."""

    def close_place(self, slice_name: str, model: str, variant: str) -> int:
        """Let a replica take no new sequence. Return how many it has."""
        ...

    def replica_of(self, slice_name: str, model: str, variant: str) -> int:
        """Return the replica that has sequences there; 0 if none has slots for any."""
        ...


class _Leaving:
    """A replica that is to go: the commands that wait for its last sequence, until `due_us`."""

    __slots__ = ("commands", "due_us", "replica")

    def __init__(self, replica: int, due_us: int) -> None:
        self.replica = replica
        self.due_us = due_us
        self.commands: list[Command] = []


class Draining:
    """Holds commands back. `carry_out`: does later what was held back."""

    def __init__(self, places: SequencePlaces, carry_out: Callable[[Sequence[Command]], None]) -> None:
        self._places = places
        self._carry_out = carry_out
        self._leaving: dict[Place, _Leaving] = {}
        self._alarm = Alarm(self._look)

    def holds(self, command: Command) -> bool:
        """Return whether a command is held back, to be carried out later."""
        match command:
            case Route(slice=name, replica=replica, model=model, variant=variant):
                return self._hold((name, model, variant), command, replica)
            case Unroute(slice=name, model=model, variant=variant):
                return self._hold((name, model, variant), command, 0)
            case UnloadReplica(slice=name, replica=replica):
                return self._hold_unload(name, command, replica)
            case Withdraw(slice=name):
                self._leaving = {place: each for place, each in self._leaving.items() if place[0] != name}
        return False

    def close(self) -> None:
        """Wait for nothing any more."""
        self._alarm.close()
        self._leaving.clear()

    def _hold(self, place: Place, command: Command, replica: int) -> bool:
        """Hold a command back if a replica with sequences goes by it. `replica` comes in its place; 0 for
        none."""
        leaving = self._leaving.get(place)
        if leaving is not None and leaving.replica == replica:
            del self._leaving[place]  # it stays after all
            return False
        if leaving is not None:
            leaving.commands.append(command)
            return True
        there = self._places.replica_of(*place)
        if there in (0, replica) or not self._places.close_place(*place):
            return False
        now = now_us()
        leaving = self._leaving[place] = _Leaving(there, now + int(self._places.sequence_drain_s * 1e6))
        leaving.commands.append(command)
        self._alarm.set(now + LOOK_US, now)
        return True

    def _hold_unload(self, slice_name: str, command: Command, replica: int) -> bool:
        """Hold back the unload of a replica that is still in use. One that was to come does not come."""
        for place, leaving in self._leaving.items():
            if place[0] == slice_name and leaving.replica == replica:
                leaving.commands.append(command)
                return True
            if place[0] == slice_name:
                leaving.commands = [each for each in leaving.commands if not _routes(each, replica)]
        return False

    def _look(self, now: int) -> None:
        for place, leaving in [*self._leaving.items()]:
            left = self._places.close_place(*place)
            if left and now < leaving.due_us:
                continue
            if left:
                name, model, variant = place
                logger.warning(
                    "%s %s leaves %s with %d live sequences, as they did not end in %g s",
                    model, variant, name, left, self._places.sequence_drain_s,
                )  # fmt: skip
            del self._leaving[place]
            self._carry_out(leaving.commands)
        if self._leaving:
            self._alarm.set(now + LOOK_US, now)


def _routes(command: Command, replica: int) -> bool:
    return isinstance(command, Route) and command.replica == replica
