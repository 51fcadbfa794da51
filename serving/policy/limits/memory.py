"""What is to be done as the memory that clients hold comes near its limit: pause, refuse, cut, end.

The shares are those that Envoy's overload manager suggests for its heap ("Configuring Envoy as an edge
proxy", envoyproxy.io): bulk work stops at 80 %, new work at 90 %, what is under way is ended at 95 %.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

SMALL_BYTES: Final = 1 << 16
"""A request or an answer up to here is neither counted nor refused for memory: limits on connections, calls
and queues bound what all of them hold together."""

PAUSE_SHARE: Final = 0.80
REFUSE_SHARE: Final = 0.90
CUT_SHARE: Final = 0.95
RESUME_SHARE: Final = 0.75
"""Below PAUSE_SHARE by more than one read, so that an upload does not stop and go with each."""


class Level(IntEnum):
    """How full the account is; each level does what those below it do."""

    EASY = 0
    PAUSE = 1  # the largest upload is not read on, and no bulk work begins
    REFUSE = 2  # no large request is taken any more
    CUT = 3  # the client that holds most loses its slowest reader
    FULL = 4  # it loses the largest of its uploads and unsent answers


def level_of(held_bytes: int, limit_bytes: int) -> Level:
    """Return the level of the held bytes: FULL begins beyond the limit, each other level at its share."""
    if held_bytes > limit_bytes:
        return Level.FULL
    if held_bytes >= CUT_SHARE * limit_bytes:
        return Level.CUT
    if held_bytes >= REFUSE_SHARE * limit_bytes:
        return Level.REFUSE
    return Level.PAUSE if held_bytes >= PAUSE_SHARE * limit_bytes else Level.EASY


class HeldMemory:
    """An upload, or the unsent answers of a connection. `growing`: an upload that is read on."""

    __slots__ = ("address", "answer", "growing", "size_bytes")

    def __init__(self, address: str, size_bytes: int, growing: bool, answer: bool) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.growing = growing
        self.answer = answer


class Relief:
    """What is to be done, by places among the holdings: these are ended, and that upload is not read on (-1:
    none)."""

    __slots__ = ("ended", "paused")

    def __init__(self, ended: list[int], paused: int) -> None:
        self.ended = ended
        self.paused = paused


def relieve(observed: Sequence[HeldMemory], besides_bytes: int, limit_bytes: int) -> Relief:
    """Return what to end and what to pause now.

    `observed`: uploads and unsent answers, those with the longest stalled reader first. `besides_bytes`: what
    is held that no client can be made to give back, such as accepted calls.

    Only the address that holds most loses anything. The last upload that is read on is not paused: as it
    ends, it makes room for the others.
    """
    held_bytes = besides_bytes
    totals: dict[str, int] = {}
    places: dict[str, list[int]] = {}
    growing = 0
    for place, each in enumerate(observed):
        held_bytes += each.size_bytes
        growing += each.growing
        totals[each.address] = totals.get(each.address, 0) + each.size_bytes
        places.setdefault(each.address, []).append(place)
    ended: list[int] = []
    while totals:
        level = level_of(held_bytes, limit_bytes)
        heaviest = max(totals, key=totals.__getitem__)
        victim = _victim(observed, places[heaviest], level)
        if victim < 0:
            break
        ended.append(victim)
        places[heaviest].remove(victim)
        growing -= observed[victim].growing
        held_bytes -= observed[victim].size_bytes
        totals[heaviest] -= observed[victim].size_bytes
        if not places[heaviest]:
            del totals[heaviest]
    if growing < 2 or level_of(held_bytes, limit_bytes) < Level.PAUSE:
        return Relief(ended, -1)
    heaviest = max(totals, key=totals.__getitem__)
    return Relief(ended, _largest(observed, [each for each in places[heaviest] if observed[each].growing]))


def _victim(observed: Sequence[HeldMemory], places: Sequence[int], level: Level) -> int:
    """Return the place of what its address loses at that level; -1: nothing."""
    if level is Level.FULL:
        return _largest(observed, places)
    if level is Level.CUT:
        return next((place for place in places if observed[place].answer), -1)
    return -1


def _largest(observed: Sequence[HeldMemory], places: Sequence[int]) -> int:
    return max(places, key=lambda place: observed[place].size_bytes, default=-1)
