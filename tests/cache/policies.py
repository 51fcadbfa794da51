"""Replacement as published, in entries of one size: what the memory tier is compared with."""

from collections import OrderedDict
from typing import Protocol


class Policy(Protocol):
    def ask(self, number: int) -> bool:
        """Whether it was kept; it is now, if the policy keeps it."""
        ...


class Lru:
    """Least recently used."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self.kept: OrderedDict[int, None] = OrderedDict()

    def ask(self, number: int) -> bool:
        if number in self.kept:
            self.kept.move_to_end(number)
            return True
        if len(self.kept) == self.entries:
            self.kept.popitem(last=False)
        self.kept[number] = None
        return False


class Arc:
    """Adaptive replacement (Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST
    2003, figure 4): seen once lately and seen more often, each with its ghosts, and a target between them."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self.target = 0.0
        self.once: OrderedDict[int, None] = OrderedDict()
        self.often: OrderedDict[int, None] = OrderedDict()
        self.once_ghosts: OrderedDict[int, None] = OrderedDict()
        self.often_ghosts: OrderedDict[int, None] = OrderedDict()

    def ask(self, number: int) -> bool:
        for kept in (self.once, self.often):
            if number in kept:
                del kept[number]
                self.often[number] = None
                return True
        if number in self.once_ghosts:
            step = max(len(self.often_ghosts) / len(self.once_ghosts), 1)
            self.target = min(self.target + step, self.entries)
            self.replace(False)
            del self.once_ghosts[number]
            self.often[number] = None
        elif number in self.often_ghosts:
            step = max(len(self.once_ghosts) / len(self.often_ghosts), 1)
            self.target = max(self.target - step, 0)
            self.replace(True)
            del self.often_ghosts[number]
            self.often[number] = None
        else:
            self.make_room()
            self.once[number] = None
        return False

    def make_room(self) -> None:
        seen_once = len(self.once) + len(self.once_ghosts)
        known = seen_once + len(self.often) + len(self.often_ghosts)
        if seen_once == self.entries:
            if len(self.once) < self.entries:
                self.once_ghosts.popitem(last=False)
                self.replace(False)
            else:
                self.once.popitem(last=False)
        elif known >= self.entries:
            if known == 2 * self.entries:
                self.often_ghosts.popitem(last=False)
            self.replace(False)

    def replace(self, often_ghost: bool) -> None:
        if len(self.once) + len(self.often) < self.entries:
            return
        count = len(self.once)
        if count and (count > self.target or (often_ghost and count == self.target)):
            self.once_ghosts[self.once.popitem(last=False)[0]] = None
        else:
            self.often_ghosts[self.often.popitem(last=False)[0]] = None
