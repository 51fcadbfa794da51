"""Other rules for the homes of models, to compare the cells' leader with.

`Hashed` needs no leader, as Swayam (Gujarati et al., Middleware 2017) needs none: each gateway finds the same
homes by itself, from what all of them report. Highest random weight (Thaler and Ravishankar, 1998) orders the
cells for each model. `Anew` plans all homes from the present work alone, once a minute, as Shepherd's planner
(Zhang et al., NSDI 2023) makes its groups: it keeps no home for the sake of a load that is saved.
"""

from collections.abc import Sequence
from hashlib import blake2b
from math import ceil
from typing import Final

from serving.policy.cells.homes import FULL, Cell, Homes, assign
from serving.policy.cells.leading import S_US, CellReport, Leader

PLAN_US: Final = 60 * S_US


class Hashed:
    """Homes by hash; each model has as many as carry it beside others."""

    def __init__(self) -> None:
        self._leader = Leader()  # for its estimate of work alone

    def decide(
        self, reports: Sequence[CellReport], before: Homes, now_us: int, *, mapped: bool = True
    ) -> Homes | None:
        """See `Leader.decide`."""
        if self._leader.decide(reports, before, now_us, mapped=mapped) is None:
            return None
        size = FULL * sum(each.slices for each in reports) / max(len(reports), 1)
        names = [each.name for each in reports if each.slices]
        return {
            model: dict.fromkeys(chosen, demand / len(chosen))
            for model, demand in _demands(self._leader, reports).items()
            if (chosen := _ordered(model, names)[: max(1, ceil(2 * demand / size))])
        }


def _demands(leader: Leader, reports: Sequence[CellReport]) -> dict[str, float]:
    """Return the work of all models; 0 for one whose work is not known yet."""
    models = frozenset[str]().union(*(each.file for each in reports))
    return {model: leader.demands.get(model, 0.0) for model in sorted(models)}


def _ordered(model: str, cells: Sequence[str]) -> list[str]:
    """Return the cells by their weight for this model, the highest first."""
    return sorted(cells, key=lambda name: blake2b(f"{model} {name}".encode(), digest_size=8).digest())


class Anew:
    """Homes that are planned again from nothing each minute, and when a cell comes or goes."""

    def __init__(self) -> None:
        self._leader = Leader()
        self._planned_us = -PLAN_US
        self._seen: list[str] = []

    def decide(
        self, reports: Sequence[CellReport], before: Homes, now_us: int, *, mapped: bool = True
    ) -> Homes | None:
        """See `Leader.decide`."""
        if self._leader.decide(reports, before, now_us, mapped=mapped) is None:
            return None
        seen = sorted(each.name for each in reports)
        if seen == self._seen and now_us - self._planned_us < PLAN_US:
            return None
        self._seen, self._planned_us = seen, now_us
        cells = [Cell(each.name, each.slices, each.unfit) for each in reports]
        return assign(cells, _demands(self._leader, reports), {}, even=False)
