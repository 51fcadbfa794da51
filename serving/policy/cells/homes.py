"""Which cell serves which model: in one while that carries it, else in as few as carry it.

A slice belongs to one gateway, so a model that is split over cells loses the pooling of its slices. Parts of
8 slices or more lose nothing: at 0.95 of what 32 slices carry, all requests are in time, as with one owner.
In parts of 4 slices 0.1 % are late, in parts of 1 slice 9 % (`python -m loadtests.virtual.cells --pooling`).
Symphony (Chen et al., 2023) also gives each model to one scheduler.

`assign` moves no model without need: a move loads it somewhere else. It first keeps what is, then finds homes
for models that lack one, then relieves cells that are too full, and at last evens cells out, if it may.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

FULL: Final = 0.8
"""Of a cell's slices, the share that work may take. Above that, queues grow, and no lost slice is carried."""
EMPTY: Final = 0.5
"""A model leaves one of its homes when the others would be filled to this share of FULL."""
GAP: Final = 0.15
"""Two cells are even enough while their shares of work differ by less."""
EVEN_MOVES: Final = 8
"""Moves for evenness at a time: each loads a model."""
LEAST: Final = 0.05
"""Slices that a model without work counts for: so cells without work share models too."""

Homes = Mapping[str, Mapping[str, float]]
"""The slices' worth of work that a model has in each of its cells, by model and cell."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`slices`: how many it has; `unfit`: models that it cannot serve."""

    name: str
    slices: float
    unfit: Set[str] = field(default_factory=frozenset)


def assign(cells: Sequence[Cell], demands: Mapping[str, float], before: Homes, *, even: bool = True) -> Homes:
    """Return the homes of all models in `demands`.

    `demands`: by model, the slices that its work keeps busy. `before`: the homes so far. `even`: whether
    models may move only to even cells out. A model that no cell can serve has no home.
    """
    board = _Board([each for each in cells if each.slices > 0], demands)
    board.keep(before)
    for model in sorted(demands, key=lambda name: (-demands[name], name)):
        board.house(model)
    board.relieve()
    if even:
        board.even_out()
    return board.homes()


def moves(before: Homes, after: Homes) -> list[tuple[str, str]]:
    """Return the loads that come of other homes, as models and cells."""
    return [
        (model, name) for model, parts in after.items() for name in parts if name not in before.get(model, {})
    ]


def _split(demand: float, names: Sequence[str]) -> dict[str, float]:
    return dict.fromkeys(names, demand / len(names)) if names else {}


class _Board:
    """The cells while models get their homes. `_load`: by cell, the slices' worth of work there."""

    def __init__(self, cells: Sequence[Cell], demands: Mapping[str, float]) -> None:
        self._cells = {each.name: each for each in cells}
        self._demands = demands
        self._load = dict.fromkeys(self._cells, 0.0)
        self._homes: dict[str, list[str]] = {}
        self._there: dict[str, set[str]] = {name: set() for name in self._cells}

    def homes(self) -> dict[str, dict[str, float]]:
        """Return the homes, with the work in each."""
        return {model: _split(self._demands[model], names) for model, names in sorted(self._homes.items())}

    def keep(self, before: Homes) -> None:
        """Keep the homes that are still there, without those that a model needs no longer."""
        for model, parts in before.items():
            if model not in self._demands:
                continue
            names = [name for name in parts if self._fits(model, name)]
            while len(names) > 1 and self._demands[model] <= EMPTY * FULL * self._size(names[:-1]):
                names.pop()
            self._settle(model, names)

    def house(self, model: str) -> None:
        """Give a model the homes that it lacks."""
        names = [*self._homes.get(model, ())]
        least = max(1, self._needed(model))
        while len(names) < least:
            free = [each for each in self._cells if each not in names and self._fits(model, each)]
            if not free:
                break
            part = self._part(model, len(names) + 1)
            names.append(min(free, key=lambda name: (self._share(name, part), name)))
            self._settle(model, names)

    def relieve(self) -> None:
        """Move models out of cells that are too full, while another cell is less full after it."""
        for name in sorted(self._cells, key=lambda each: (-self._share(each), each)):
            while self._share(name) > FULL and self._move_from(
                name, self._load[name] - FULL * self._slices(name)
            ):
                pass

    def even_out(self) -> None:
        """Move models from the fullest cell to the emptiest, a few at a time."""
        for _ in range(EVEN_MOVES):
            if len(self._cells) < 2:
                return
            full = max(self._cells, key=lambda each: (self._share(each), each))
            spare = min(self._cells, key=lambda each: (self._share(each), each))
            gap = self._share(full) - self._share(spare)
            sizes = self._slices(full), self._slices(spare)
            if gap < GAP or not self._move_from(full, gap * sizes[0] * sizes[1] / sum(sizes), spare):
                return

    def _move_from(self, name: str, wanted: float, spare: str = "") -> bool:
        """Move the model whose work is nearest to `wanted` slices; return whether there is one to move.

        `spare`: where to, "" for wherever the share of work is least.
        """
        best: tuple[float, str, str] | None = None
        for model in self._there[name]:
            part = self._part(model, len(self._homes[model]))
            others = [spare] if spare else [*self._cells]
            free = [
                each
                for each in others
                if each not in self._homes[model]
                and self._fits(model, each)
                and self._share(each, part) < self._share(name)
            ]
            if free:
                to = min(free, key=lambda each: (self._share(each, part), each))
                best = min(best or (inf, "", ""), (abs(part - wanted), model, to))
        if best is None:
            return False
        _, model, to = best
        self._settle(model, [to if each == name else each for each in self._homes[model]])
        return True

    def _settle(self, model: str, names: Sequence[str]) -> None:
        """Let these be the model's homes from now on."""
        old = self._homes.pop(model, [])
        for name in old:
            self._load[name] -= self._part(model, len(old))
            self._there[name].discard(model)
        for name in names:
            self._load[name] += self._part(model, len(names))
            self._there[name].add(model)
        if names:
            self._homes[model] = [*names]

    def _needed(self, model: str) -> int:
        """Return in how many cells a model has to be: as many of the largest as carry its work."""
        demand, found = self._demands[model], 0.0
        sizes = sorted((self._slices(each) for each in self._cells if self._fits(model, each)), reverse=True)
        for count, size in enumerate(sizes, 1):
            found += FULL * size
            if demand <= found:
                return min(len(sizes), max(count, ceil(demand / (FULL * size))))
        return len(sizes)

    def _part(self, model: str, homes: int) -> float:
        return max(self._demands[model], LEAST) / homes

    def _share(self, name: str, more: float = 0.0) -> float:
        return (self._load[name] + more) / self._slices(name)

    def _size(self, names: Sequence[str]) -> float:
        return sum(self._slices(name) for name in names)

    def _slices(self, name: str) -> float:
        return self._cells[name].slices

    def _fits(self, model: str, name: str) -> bool:
        return name in self._cells and model not in self._cells[name].unfit
