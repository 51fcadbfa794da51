"""What the cell that leads decides: the work of each model, and from it the homes of all.

Any cell may lead, and at most one does. Where no map was decided, a leader first waits a moment, as it may
not see all cells yet: they are starting, or Redis was lost and has forgotten them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Final

from serving.policy.cells.homes import Cell, Homes, assign
from serving.values.versions import model_of

S_US: Final = 1_000_000
SETTLE_US: Final = 2 * S_US
"""How long a leader only looks where there is no map. Cells are heard every half second."""
EVEN_US: Final = 30 * S_US
"""Between two rounds in which models may move only for evenness."""
LOOK_US: Final = 5 * S_US
"""Between two decisions while no cell comes, goes or changes. For 3,000 models one takes 0.1 s."""
RISE_US: Final = 5 * S_US
FALL_US: Final = 120 * S_US
"""Time constants of the work that a model is taken to have. It rises fast, and falls slowly, as each move
loads a model."""


@dataclass(frozen=True, slots=True)
class CellReport:
    """What a cell says of itself.

    `slices`: how many can work, 0 when it leaves; `file`: the models of its settings; `work`: by model,
    the slices that it keeps busy; `ready`: those that can answer; `unfit`: those that it could not
    load; `sent`: by tenant with limits, the requests a second that came.
    """

    name: str
    slices: float
    file: frozenset[str]
    work: Mapping[str, float]
    ready: frozenset[str]
    unfit: frozenset[str] = frozenset()
    sent: Mapping[str, float] = field(default_factory=dict)


class Leader:
    """Decides while its cell leads."""

    def __init__(self) -> None:
        self._since_us = -1  # when it began to lead; -1: it does not
        self._settles = False
        self._heard_us = 0
        self._evened_us = 0
        self._decided_us = 0
        self._seen: object = None  # what the latest decision was about, beside the work
        self._demands: dict[str, float] = {}

    @property
    def demands(self) -> Mapping[str, float]:
        """The slices that the work of each model keeps busy, as far as it is known."""
        return self._demands

    def rest(self) -> None:
        """Note that another cell leads."""
        self._since_us = -1
        self._seen = None
        self._demands.clear()

    def decide(
        self, reports: Sequence[CellReport], before: Homes, now_us: int, *, mapped: bool = True
    ) -> Homes | None:
        """Return the homes of all models; None while it is too early to decide, or nothing new to look at.

        `mapped`: a map was found, so that all cells of it are in `reports` but those that are gone. That
        counts when the leader begins.
        """
        if self._since_us < 0:
            self._since_us = self._heard_us = now_us
            self._settles = not mapped
            self._evened_us = now_us - EVEN_US  # those that join at the start share at once
            self._demands = {model: sum(parts.values()) for model, parts in before.items()}
        self._hear(reports, now_us)
        if self._settles and now_us - self._since_us < SETTLE_US:
            return None
        seen = sorted((each.name, each.slices, each.file, each.unfit) for each in reports)
        if seen == self._seen and now_us - self._decided_us < LOOK_US:
            return None
        self._seen, self._decided_us = seen, now_us
        even = now_us - self._evened_us >= EVEN_US
        if even:
            self._evened_us = now_us
        return self._assign(reports, before, even)

    def _assign(self, reports: Sequence[CellReport], before: Homes, even: bool) -> Homes:
        """Return the homes of all models. Versions of a model have the same, so that a rollout finds both."""
        models = frozenset[str]().union(*(each.file for each in reports))
        whole = {model_of(model) for model in models}
        demands = dict.fromkeys(whole, 0.0)
        for model in models:
            demands[model_of(model)] += self._demands.get(model, 0.0)
        cells = [
            Cell(each.name, each.slices, (whole - each.file) | {model_of(model) for model in each.unfit})
            for each in reports
        ]
        homes = assign(
            cells, demands, {model: before[model] for model in before if model in whole}, even=even
        )
        has = {each.name: each.file - each.unfit for each in reports}
        return {
            model: {
                name: part * _share(self._demands.get(model, 0.0), demands[model_of(model)])
                for name, part in homes.get(model_of(model), {}).items()
                if model in has[name]
            }
            for model in models
        }

    def _hear(self, reports: Sequence[CellReport], now_us: int) -> None:
        """Follow the work that models have. That of a model without a ready cell is not known, and stays."""
        passed_us, self._heard_us = now_us - self._heard_us, now_us
        work: dict[str, float] = {}
        ready: set[str] = set()
        for each in reports:
            ready |= each.ready
            for model, part in each.work.items():
                work[model] = work.get(model, 0.0) + part
        for model, now in work.items():
            if model in ready:
                known = self._demands.get(model, 0.0)
                span_us = RISE_US if now > known else FALL_US
                self._demands[model] = known + (now - known) * (1 - exp(-passed_us / span_us))


def _share(own: float, whole: float) -> float:
    return own / whole if whole > 0 else 1.0


def routes(reports: Sequence[CellReport], homes: Homes) -> dict[str, dict[str, float]]:
    """Return by model the cells that can answer it, with their parts of its work.

    These are its homes that are ready, else any cell that still has it ready.
    """
    ready: dict[str, list[str]] = {}
    for each in reports:
        for model in each.ready:
            ready.setdefault(model, []).append(each.name)
    found: dict[str, dict[str, float]] = {}
    for model, names in ready.items():
        parts = homes.get(model, {})
        at_home = {name: max(parts[name], 1e-6) for name in names if name in parts}
        found[model] = at_home or dict.fromkeys(sorted(names), 1.0)
    return found
