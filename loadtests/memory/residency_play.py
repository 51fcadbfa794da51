"""Requests for the models of one residency slice, played in virtual time through what decides live."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import Protocol, runtime_checkable

import numpy as np

from serving.control.on_demand.on_demand_model import (
    BeginLoad,
    BeginUnload,
    LoadFigures,
    LoadState,
    Order,
    Refuse,
)
from serving.control.on_demand.slice_memory import SliceMemory
from serving.policy.residency import EvictionPolicy, Key
from serving.scheduler.models.mean_rate import MeanRate
from serving.values.vocabulary import NEVER_US

UNLOAD_US = 1_000
SERVICE_US = 5_000
"""For so long after its arrival a request is in flight."""


@runtime_checkable
class Told(Protocol):
    """A policy that learns of every request."""

    def used(self, key: Key, now_us: int) -> None:
        """Note that the model was asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Ascending instants, and the model that is asked for at each: a place in the catalogue."""

    due_us: Sequence[int]
    models: Sequence[int]

    def of_models(self) -> dict[Key, list[int]]:
        """Return the instants by model."""
        found: dict[Key, list[int]] = {}
        for due_us, place in zip(self.due_us, self.models, strict=True):
            found.setdefault(key_of(place), []).append(due_us)
        return found


@dataclass(slots=True)
class Tally:
    """How requests ended. `hits` found their model there. `waited` were answered in time once it was loaded.
    `late` were refused, as it would have been too late. `refused` found no room made for their model.

    `hit_us` of `asked_us`: what loading would have taken for the hits, and for all.
    """

    hits: int = 0
    waited: int = 0
    late: int = 0
    refused: int = 0
    loads: int = 0
    load_us: float = 0.0
    hit_us: float = 0.0
    asked_us: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def asked(self) -> int:
        """Requests."""
        return self.hits + self.waited + self.late + self.refused

    @property
    def hit_ratio(self) -> float:
        """The share of requests that found their model there."""
        return self.hits / max(self.asked, 1)

    @property
    def saved_ratio(self) -> float:
        """The same, each request counted by the time that loading its model takes."""
        return self.hit_us / max(self.asked_us, 1.0)

    @property
    def answered_ratio(self) -> float:
        """The share of requests that are answered."""
        return (self.hits + self.waited) / max(self.asked, 1)


class Play:
    """One run. A request is answered if its model is there within its SLO."""

    def __init__(self, catalogue: Sequence[LoadFigures], limit_bytes: int, policy: EvictionPolicy) -> None:
        self.residency = SliceMemory(limit_bytes, policy)
        self.tally = Tally()
        self._told = policy if isinstance(policy, Told) else None
        self._figures = {key_of(place): figures for place, figures in enumerate(catalogue)}
        self._forecasts = {model: MeanRate() for model, _ in self._figures}
        self._events: list[tuple[int, int, bool, Key]] = []
        self._numbers = count()
        self._waiting: set[str] = set()
        self._served_us: dict[str, int] = {}
        self._now_us = 0

    def run(self, arrivals: Arrivals) -> Tally:
        """Play the arrivals, from a slice with the first models loaded."""
        self._obey(self.residency.want(self._figures, 0), 0)
        self._obey(self.residency.fill({}, 0), 0)
        for due_us, place in zip(arrivals.due_us, arrivals.models, strict=True):
            self._work_until(due_us)
            self._now_us = due_us
            self._arrive(key_of(place), due_us)
        return self.tally

    def _work_until(self, until_us: int) -> None:
        """Do all that happens until then."""
        while True:
            event_us = self._events[0][0] if self._events else NEVER_US
            due_us = min(self.residency.due_us(self._now_us), event_us)
            if due_us > until_us:
                return
            self._now_us = due_us
            if event_us == due_us:
                self._work(*heappop(self._events))
            else:
                self._obey(self.residency.go_on(due_us), due_us)

    def _arrive(self, key: Key, now_us: int) -> None:
        tally, model, figures = self.tally, key[0], self._figures[key]
        self._forecasts[model].arrivals += 1
        if self._told is not None:
            self._told.used(key, now_us)
        tally.asked_us += figures.load_us
        if self.residency.residence(key) is LoadState.RESIDENT:
            tally.hits += 1
            tally.hit_us += figures.load_us
            self._served_us[model] = now_us + SERVICE_US
            return
        rates = {name: forecast.rate(now_us) for name, forecast in self._forecasts.items()}
        served = {name for name, until_us in self._served_us.items() if until_us > now_us}
        orders = self.residency.ask(key, rates, served | self._waiting, now_us)
        refusals = [order.reason for order in orders if isinstance(order, Refuse)]
        if refusals:
            tally.refused += 1
            tally.reasons[refusals[0]] += 1
        elif self.residency.ready_in_us(key, now_us) <= figures.slo_us:
            tally.waited += 1
            self._waiting.add(model)
        else:
            tally.late += 1
        self._obey(orders, now_us)

    def _obey(self, orders: Sequence[Order], now_us: int) -> None:
        for order in orders:
            if isinstance(order, BeginLoad):
                load_us = self._figures[order.key].load_us
                self.tally.loads += 1
                self.tally.load_us += load_us
                heappush(self._events, (now_us + round(load_us), next(self._numbers), True, order.key))
            elif isinstance(order, BeginUnload):
                heappush(self._events, (now_us + UNLOAD_US, next(self._numbers), False, order.key))

    def _work(self, now_us: int, _number: int, loaded: bool, key: Key) -> None:
        """Note that the worker has loaded or unloaded a model."""
        if not loaded:
            self._obey(self.residency.unloaded(key, now_us), now_us)
            return
        if key[0] in self._waiting:
            self._waiting.discard(key[0])
            self._served_us[key[0]] = now_us + SERVICE_US
        figures = self._figures[key]
        cost = (round(figures.load_us), figures.memory_bytes)
        self._obey(self.residency.loaded(key, cost, now_us, self._waiting), now_us)


def key_of(place: int) -> Key:
    """Return the model of that place in the catalogue."""
    return f"m{place}", "v"


def equal_models(count: int, slo_us: float) -> tuple[list[LoadFigures], int]:
    """Return a catalogue of models of 5 MB that load in 0.3 s, and the memory that a fifth of them needs."""
    figures = LoadFigures(5 << 20, 300_000.0, slo_us=slo_us)
    return [figures] * count, count // 5 * figures.memory_bytes


def unequal_models(count: int, slo_us: float, seed: int) -> tuple[list[LoadFigures], int]:
    """Return the same with sizes and load times that have nothing to do with each other: lognormal, a sigma
    of 0.8, medians of 4.5 MB and 0.3 s; and a fifth of the memory that all need."""
    rng = np.random.default_rng(seed)
    sizes, loads = rng.lognormal(1.5, 0.8, count) * (1 << 20), rng.lognormal(-1.2, 0.8, count) * 1e6
    even = LoadFigures(0, 0.0, slo_us=slo_us)
    found = [
        replace(even, memory_bytes=round(size), load_us=load)
        for size, load in zip(sizes.tolist(), loads.tolist(), strict=True)
    ]
    return found, max(int(sizes.sum()) // 5, max(figures.memory_bytes for figures in found))


def zipf_arrivals(
    models: int, load: tuple[float, float], exponent: float, drift_s: float, seed: int
) -> Arrivals:
    """Draw Poisson arrivals, rank r in proportion to r ** -exponent. `load`: requests a second, seconds.
    Every `drift_s` a tenth of the models change their ranks with each other (0: never)."""
    rate, seconds = load
    rng = np.random.default_rng(seed)
    total = int(rng.poisson(rate * seconds))
    due_us = np.sort(rng.random(total) * seconds * 1e6).astype(np.int64)
    shares = np.arange(1, models + 1) ** -exponent
    ranks = rng.choice(models, total, p=shares / shares.sum())
    order = rng.permutation(models)
    chosen = np.empty(total, np.int64)
    spans = due_us // round(drift_s * 1e6) if drift_s else np.zeros(total, np.int64)
    for span in range(int(spans.max(initial=0)) + 1):
        chosen[spans == span] = order[ranks[spans == span]]
        moved = rng.choice(models, max(models // 10, 2), replace=False)
        order[moved] = order[np.roll(moved, 1)]
    return Arrivals(due_us.tolist(), chosen.tolist())
