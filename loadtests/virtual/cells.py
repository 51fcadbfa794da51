"""Many gateways as cells of one fleet, in virtual time: what moves, what is lost, and what a split costs.

  python -m loadtests.virtual.cells                  # 1,000 nodes of 10 slices in 100 cells, 3,000 models
  python -m loadtests.virtual.cells --cells 10 --models 300 --seconds 300
  python -m loadtests.virtual.cells --trace FILE     # rates a minute, a number a line, in place of a sine
  python -m loadtests.virtual.cells --rule hashed    # without a leader; anew: planned again each minute
  python -m loadtests.virtual.cells --pooling        # one owner of all slices, against several

The leader is the live one (`serving.policy.cells`), and so are the routes. The requests of a cell are a
fluid: a cell answers in time what its slices carry. Some cells are then simulated request by request with the
live scheduler. Faults: nodes, a rack, gateways, Redis away for ten minutes.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import pi
from pathlib import Path
from typing import Final

import numpy as np

from loadtests.virtual.baselines.cell_homes import Anew, Hashed
from loadtests.virtual.virtual_world import VirtualModel, World, good_share
from serving.policy.cells.homes import FULL, Homes, moves
from serving.policy.cells.leading import S_US, CellReport, Leader, routes
from serving.values.specs import BatchingSpec

ALPHA_US, BETA_US, SLO_US = 2160.0, 10_400.0, 50_000
SLICE_RATE: Final = 289.0
"""Requests a second that a slice carries by full batches within the SLO: 8 rows in 27.7 ms."""
LOAD: Final = 0.65
"""Of what all slices carry, at the mean of a day."""
ZIPF: Final = 0.9
DAY_S: Final = 1200.0
"""The swing of a day, in a fleet that lives 72 times as fast."""
Swing = Sequence[float]
Rule = Leader | Hashed | Anew
RULES: Final[Mapping[str, Callable[[], Rule]]] = {"leader": Leader, "hashed": Hashed, "anew": Anew}
LOAD_S, GONE_S, BACK_S = 2.0, 3.0, 1.2
"""What a load takes; when a cell counts as gone; when a killed gateway is back (failures.gateway_faults)."""
STEP_S: Final = 0.5
WARM_S: Final = 120.0
"""Before what is counted: the leader learns the work of each model."""
NODE_SLICES: Final = 10
RACK_NODES: Final = 20


@dataclass(frozen=True, slots=True)
class Event:
    """From `at_s` for `for_s`: `nodes` are away, or the gateway of `cell`, or Redis."""

    name: str
    at_s: float
    for_s: float
    nodes: tuple[int, ...] = ()
    cell: int | None = None
    redis: bool = False

    def holds(self, now_s: float) -> bool:
        """Return whether it is under way."""
        return self.at_s <= now_s < self.at_s + self.for_s


@dataclass
class VirtualCell:
    """A gateway. `loaded`: when each of its models is ready, by model."""

    name: str
    nodes: tuple[int, ...]
    loaded: dict[str, float] = field(default_factory=dict)
    heard_s: float = -1e9


class Fleet:
    """All cells, and what becomes of the requests of all models in each step."""

    def __init__(self, cells: int, nodes: int, models: int, seed: int, swing: Swing, rule: Rule) -> None:
        """`swing`: of a day, with a mean of 1; `rule`: what decides on homes."""
        self.rng = np.random.default_rng(seed)
        self.cells = [VirtualCell(f"c{at}", tuple(range(at, nodes, cells))) for at in range(cells)]
        weights = 1 / np.arange(1, models + 1) ** ZIPF
        self.names = [f"m{at}" for at in range(models)]
        self.base = dict(zip(self.names, (weights / weights.sum()).tolist(), strict=True))
        self.total = LOAD * nodes * NODE_SLICES * SLICE_RATE
        self.phase = dict(zip(self.names, self.rng.uniform(0, 1, models).tolist(), strict=True))
        self.swing = swing
        self.leader = rule
        self.homes: Homes = {}
        self.moved = 0
        self.slowest_s = 0.0  # of a decision
        self.file = frozenset(self.names)

    def rates(self, now_s: float) -> dict[str, float]:
        """Return the requests a second of each model: each has the day's swing, at a phase of its own."""
        swing, count = self.swing, len(self.swing)
        return {
            name: self.total * share * swing[int((now_s / DAY_S + self.phase[name]) % 1 * count)]
            for name, share in self.base.items()
        }

    def step(self, now_s: float, events: Sequence[Event]) -> tuple[float, float, float]:
        """Return the requests of a step: all, without a ready home, and over what their cell carries."""
        under_way = [each for each in events if each.holds(now_s)]
        away = {node for each in under_way for node in each.nodes}
        down = {each.cell for each in under_way if each.cell is not None}
        rates = self.rates(now_s)
        reports = [
            self._report(cell, now_s, away, rates) for at, cell in enumerate(self.cells) if at not in down
        ]
        for cell in self.cells:
            if cell.name in {each.name for each in reports}:
                cell.heard_s = now_s
        known = [
            self._report(cell, now_s, away, rates) for cell in self.cells if now_s - cell.heard_s < GONE_S
        ]
        if not any(each.redis for each in under_way):
            self._decide(known, now_s)
        return self._answered(known, {each.name for each in reports}, rates)

    def _decide(self, known: Sequence[CellReport], now_s: float) -> None:
        begin_s = time.perf_counter()
        homes = self.leader.decide(known, self.homes, int((now_s + WARM_S) * S_US), mapped=bool(self.homes))
        self.slowest_s = max(self.slowest_s, time.perf_counter() - begin_s)
        if homes is None:
            return
        by_name = {cell.name: cell for cell in self.cells}
        for model, name in moves(self.homes, homes):
            by_name[name].loaded.setdefault(model, now_s + (LOAD_S if self.homes else 0.0))
            self.moved += bool(self.homes)
        self.homes = homes
        for cell in self.cells:
            for model in [each for each in cell.loaded if cell.name not in homes.get(each, {})]:
                if any(by_name[name].loaded[model] <= now_s for name in homes[model]):
                    del cell.loaded[model]

    def _report(self, cell: VirtualCell, now_s: float, away: set[int], rates: dict[str, float]) -> CellReport:
        ready = frozenset(model for model, at_s in cell.loaded.items() if at_s <= now_s)
        work = {}
        for model in ready:
            parts = self.homes.get(model, {})
            whole = sum(parts.values(), 0.0)
            share = parts[cell.name] / whole if cell.name in parts and whole else 1.0
            work[model] = rates[model] * share / SLICE_RATE
        slices = NODE_SLICES * sum(node not in away for node in cell.nodes)
        return CellReport(cell.name, slices, self.file, work, ready)

    def _answered(
        self, known: Sequence[CellReport], up: set[str], rates: dict[str, float]
    ) -> tuple[float, float, float]:
        ways = routes(known, self.homes)
        load = dict.fromkeys((each.name for each in known), 0.0)
        homeless = 0.0
        for model, rate in rates.items():
            parts = ways.get(model, {})
            whole = sum(parts.values())
            if not parts:
                homeless += rate
            for name, part in parts.items():
                if name in up:
                    load[name] += rate * part / whole
                else:
                    homeless += rate * part / whole
        slices = {each.name: each.slices for each in known}
        over = sum(max(rate - 0.98 * SLICE_RATE * slices[name], 0.0) for name, rate in load.items())
        return sum(rates.values()) * STEP_S, homeless * STEP_S, over * STEP_S


def swing_of(trace: Path | None) -> Swing:
    """Return a day's rates by their mean: those of a file, or a sine that swings by a third."""
    sine = 1 + np.sin(np.linspace(0, 2 * pi, 1440, endpoint=False)) / 3
    rates = sine if trace is None else np.loadtxt(trace)
    found: list[float] = (rates / rates.mean()).tolist()
    return found


def events_of(fleet: Fleet, nodes: int) -> list[Event]:
    """Return what goes wrong; the cells and nodes are drawn by the fleet's seed."""
    cells = len(fleet.cells)
    some = tuple(fleet.rng.choice(nodes, max(1, nodes // 100), replace=False).tolist())
    rack = tuple(range(min(RACK_NODES, nodes // 5)))
    cut = tuple(range(nodes // 2, nodes // 2 + min(RACK_NODES, nodes // 5)))
    first, second, third = fleet.rng.choice(cells, 3, replace=False).tolist()
    return [
        Event("1 % of the nodes, for 2 min", 60, 120, nodes=some),
        Event("a rack, for 1 min", 240, 60, nodes=rack),
        Event("a gateway, back after 1.2 s", 360, BACK_S, cell=first),
        Event("a gateway and its nodes, for good", 420, 1e9, cell=second),
        Event("Redis, for 10 min", 540, 600, redis=True),
        Event("a gateway meanwhile, back after 1.2 s", 700, BACK_S, cell=third),
        Event("20 nodes cut off, for 30 s", 900, 30, nodes=cut),
    ]


def play(asked: argparse.Namespace) -> Fleet:
    """Print a line for each event, and return the fleet as it then is."""
    rule = RULES[asked.rule]()
    fleet = Fleet(asked.cells, asked.nodes, asked.models, asked.seed, swing_of(asked.trace), rule)
    events = [each for each in events_of(fleet, asked.nodes) if each.at_s < asked.seconds]
    taken: list[tuple[float, float, float, float]] = []
    for at in range(-int(WARM_S / STEP_S), int(asked.seconds / STEP_S)):
        now_s = at * STEP_S
        found = fleet.step(now_s, events)
        if now_s < 0:
            fleet.moved, fleet.slowest_s = 0, 0.0
        else:
            taken.append((now_s, *found))
    steps = np.array(taken)
    print(f"{fleet.total:,.0f} requests a second in the mean, for {asked.seconds:g} s:")
    bounds = [*(each.at_s for each in events), asked.seconds]
    print(_line("before any fault", steps[steps[:, 0] < bounds[0]]))
    for each, end_s in zip(events, bounds[1:], strict=True):
        here = steps[(steps[:, 0] >= each.at_s) & (steps[:, 0] < end_s)]
        print(_line(each.name, here))
    print(_line("all", steps))
    split = {model: parts for model, parts in fleet.homes.items() if len(parts) > 1}
    least = min((min(parts.values()) for parts in split.values()), default=0.0)
    print(
        f"{fleet.moved} models moved; {len(split)} are in more than one cell, the least part has "
        f"{least / FULL:.0f} slices; the slowest decision took {1e3 * fleet.slowest_s:.0f} ms"
    )
    return fleet


def _line(name: str, steps: np.ndarray) -> str:
    whole, homeless, over = steps[:, 1].sum(), steps[:, 2].sum(), steps[:, 3].sum()
    gone = steps[:, 2] > 0
    return (
        f"  {name:40}{100 * (1 - (homeless + over) / whole):9.4f} % in time; no home "
        f"{100 * homeless / whole:.4f} % (for {gone.sum() * STEP_S:g} s), too much {100 * over / whole:.4f} %"
    )


def exact(fleet: Fleet, count: int, seconds: float) -> None:
    """Simulate some cells request by request, and print the share in time."""
    rates = fleet.rates(0.0)
    demands = {model: rate / SLICE_RATE for model, rate in rates.items()}
    slices = len(fleet.cells[0].nodes) * NODE_SLICES
    for at in fleet.rng.choice(len(fleet.cells), count, replace=False).tolist():
        cell = fleet.cells[at]
        parts = {model: homes[cell.name] for model, homes in fleet.homes.items() if cell.name in homes}
        shares = {
            model: rates[model] * part / sum(fleet.homes[model].values())
            for model, part in parts.items()
            if part
        }
        models = tuple(VirtualModel(SLO_US, ALPHA_US, BETA_US, share=share) for share in shares.values())
        rate = sum(shares.values())
        world = World(BatchingSpec(), slices, unlike=models, settle_us=S_US)
        good = good_share(world, rate, seconds, 1)
        used = sum(min(demands[model], part) for model, part in parts.items()) / slices
        print(
            f"  {cell.name}: {len(models)} models, {rate:,.0f}/s, work {used:.2f}: {100 * good:.3f} % in time"
        )


def pooling(seconds: float, seeds: int) -> None:
    """Print what a model loses that is split over cells, beside one owner of all its slices."""
    print("% of the requests in time, one model, by load and slices of a part")
    sizes = (32, 16, 8, 4, 2, 1)
    print("  load   " + "".join(f"{f'{32 // size} x {size}':>9}" for size in sizes))
    for load in (0.7, 0.8, 0.9, 0.95):
        found = []
        for size in sizes:
            world = World(BatchingSpec(), size, slo_us=SLO_US, alpha_us=ALPHA_US, beta_us=BETA_US)
            found.append(good_share(replace(world, settle_us=S_US), load * SLICE_RATE * size, seconds, seeds))
        print(f"  {load:.2f}   " + "".join(f"{100 * share:9.2f}" for share in found), flush=True)


def main() -> None:
    """Play the fleet, or show what a split costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--models", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exact", type=int, default=3, help="cells to simulate request by request")
    parser.add_argument("--rule", choices=[*RULES], default="leader", help="what decides on homes")
    parser.add_argument("--trace", type=Path, help="a day of rates, one a line")
    parser.add_argument("--pooling", action="store_true", help="show what a split costs, and end")
    asked = parser.parse_args()
    if asked.pooling:
        pooling(20.0, 2)
        return
    fleet = play(asked)
    exact(fleet, asked.exact, 3.0)


if __name__ == "__main__":
    main()
