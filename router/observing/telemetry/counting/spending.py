"""What slices cost while they are held, and for whom: an hour of it at this moment, and the last 5 minutes.

A slice is paid for whether it computes or not; its price is divided among its models by how long it computed
for each (`serving/policy/cost.py`). Totals are remembered every 10 s, and whenever other slices are held;
nothing is remembered while nothing happens.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from serving.policy.cost import cost_per_hour
from serving.values.slice_specs import place_of

WINDOW_US: Final = 300_000_000
GRAIN_US: Final = 10_000_000
HOUR_US: Final = 3_600_000_000

Resident = Mapping[str, Collection[str]]
"""Of each slice that is held, the models that it holds."""


@dataclass(frozen=True, slots=True)
class SpendingFigures:
    """Spending in the currency of the prices. `total`: since the start; `per_hour` of what is held now, and
    each model's part of it. `lately`: what each model cost an hour in the mean over the last `window_us`. A
    slice that holds no model (it is being started) counts for no model."""

    total: float
    per_hour: float
    parts: Mapping[str, float]
    lately: Mapping[str, float]
    window_us: int


@dataclass(frozen=True, slots=True)
class _Mark:
    """The totals of an instant: what slices computed, by slice and model; and what each has cost."""

    at_us: int
    busy_us: Mapping[tuple[str, str], int]
    spent: Mapping[str, float]  # price of an hour times microseconds


class Spending:
    """Of all slices. `hold` says which are held."""

    __slots__ = ("_busy_us", "_marks", "_prices", "_settled_us", "_spent", "_turn_us")

    def __init__(self) -> None:
        self._busy_us: dict[tuple[str, str], int] = {}
        self._prices: dict[str, float] = {}
        self._spent: dict[str, float] = {}
        self._settled_us = 0
        self._turn_us = 0
        self._marks: deque[_Mark] = deque()

    def busy(self) -> dict[str, int]:
        """Return what each slice that is or was held has computed, in microseconds."""
        found = dict.fromkeys((*self._spent, *self._prices), 0)
        for (name, _), busy_us in self._busy_us.items():
            found[name] = found.get(name, 0) + busy_us
        return found

    def ran(self, slice_name: str, model: str, compute_us: int, now_us: int) -> None:
        """Count a batch that came back."""
        if now_us >= self._turn_us:
            self._turn(now_us)
        key = (slice_name, model)
        self._busy_us[key] = self._busy_us.get(key, 0) + compute_us

    def hold(self, prices: Mapping[str, float], now_us: int) -> None:
        """Note that these slices are held from now on, at these prices an hour."""
        if prices != self._prices:
            self._turn(now_us)
            self._prices = dict(prices)

    def bill(self, resident: Resident, now_us: int) -> SpendingFigures:
        """Return the spending at this moment."""
        self._turn(now_us)
        first = self._marks[0]
        window_us = max(now_us - first.at_us, 0)
        spent = {name: (cost - first.spent.get(name, 0.0)) for name, cost in self._spent.items()}
        paid = {name: cost / window_us for name, cost in spent.items() if cost} if window_us else {}
        busy = self._busy_since(first, resident)
        return SpendingFigures(
            sum(self._spent.values()) / HOUR_US,
            sum(self._prices.values()),
            cost_per_hour(self._prices, {name: busy[name] for name in self._prices if busy.get(name)}),
            cost_per_hour(paid, {name: busy[name] for name in paid if busy.get(name)}),
            window_us,
        )

    def _busy_since(self, mark: _Mark, resident: Resident) -> dict[str, dict[str, float]]:
        """Return the time computed since the mark, by slice and model, for all models that computed there or
        are there."""
        found: dict[str, dict[str, float]] = {
            name: dict.fromkeys(models, 0.0) for name, models in resident.items()
        }
        for (name, model), busy_us in self._busy_us.items():
            since_us = busy_us - mark.busy_us.get((name, model), 0)
            if since_us:  # in the process that it shares there, and in its own
                here = found.setdefault(place_of(name), {})
                here[model] = here.get(model, 0.0) + since_us
        return found

    def _turn(self, now_us: int) -> None:
        """Remember what was until now, and forget what is older than the window."""
        gone_us = now_us - self._settled_us
        for name, price in self._prices.items():
            self._spent[name] = self._spent.get(name, 0.0) + price * gone_us
        self._settled_us = now_us
        self._turn_us = now_us + GRAIN_US
        marks = self._marks
        if not marks or now_us > marks[-1].at_us:
            marks.append(_Mark(now_us, dict(self._busy_us), dict(self._spent)))
        while len(marks) > 1 and marks[1].at_us <= now_us - WINDOW_US:
            marks.popleft()
