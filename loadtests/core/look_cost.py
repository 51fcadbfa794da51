"""For how long a look at scaled models holds the event loop up, by how many models and slices there are.

  python -m loadtests.core.look_cost [--slices N] [--seconds N]

The live controller with the policy `slo`; workers do at once what they are told. Each model is asked a
Poisson number of rows a second, of a rate that changes twofold each half minute in the mean: so wishes
change, and slices change hands. A look is two turns of the loop, `tick` and `seen`; times are of the longer
one.
"""

import argparse
from collections.abc import Sequence
from statistics import median, quantiles
from time import perf_counter_ns

import numpy as np

from loadtests.virtual.scaled_world import SECOND, ScaledModel, ScaledWorld
from serving.control.commands import (
    Command,
    EndWorker,
    LoadReplica,
    StartWorker,
    StopWorker,
    UnloadReplica,
)
from serving.control.control import Control
from serving.policy.scaling.interface import LoadReport

MODELS = (1, 2, 5, 10, 20, 50)
CHANGES_S = 30.0
ROWS = 10.0  # a second, of a model that has just begun


class Fleet:
    """Control, and the reports that it gets."""

    def __init__(self, models: int, slices: int, seed: int) -> None:
        world = ScaledWorld(tuple(ScaledModel(f"m{place}") for place in range(models)), slices)
        self._chance = np.random.default_rng(seed)
        self._rates = np.full(models, ROWS)
        self._offered = np.zeros(models, np.int64)
        self._names = [model.name for model in world.models]
        self._now_us = 0
        self.control: Control = world.control()
        self._do(self.control.start(0))

    def second(self) -> tuple[float, bool]:
        """Return the milliseconds of the longer turn, and whether a model has other slices than before."""
        self._now_us += SECOND
        turned = self._chance.random(len(self._rates)) < 1 / CHANGES_S
        self._rates *= np.where(turned, self._chance.choice([0.5, 2.0], len(self._rates)), 1.0)
        self._offered += self._chance.poisson(self._rates)
        seen = [
            LoadReport(name, offered=rows, requests=rows, gaps_s2=2 * self._now_us / 1e6, completed=rows)
            for name, rows in zip(self._names, self._offered.tolist(), strict=True)
        ]
        before = self._slices()
        began_ns = perf_counter_ns()
        commands = self.control.tick(self._now_us, ())
        ticked_ns = perf_counter_ns()
        self._do(commands)
        looked_ns = perf_counter_ns()
        commands = self.control.seen(seen, self._now_us)
        seen_ns = perf_counter_ns()
        self._do(commands)
        return max(ticked_ns - began_ns, seen_ns - looked_ns) / 1e6, self._slices() != before

    def _slices(self) -> list[tuple[str, ...]]:
        return [each.slices for each in self.control.scaling.standings().values()]

    def _do(self, commands: Sequence[Command]) -> None:
        waiting = [*commands]
        control, now_us = self.control, self._now_us
        while waiting:
            command = waiting.pop(0)
            if isinstance(command, StartWorker):
                waiting += control.worker_ready(command.slice, now_us)
            elif isinstance(command, (StopWorker, EndWorker)):
                waiting += control.worker_lost(command.slice, "ended", now_us)
            elif isinstance(command, LoadReplica):
                waiting += control.replica_loaded(command.slice, command.replica, (1000, 1 << 20), now_us)
            elif isinstance(command, UnloadReplica):
                waiting += control.replica_unloaded(command.slice, command.replica, now_us)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, default=60)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(
        f"models on {asked.slices} slices   median ms   p99 ms   longest ms   seconds in which slices changed"
    )
    for models in MODELS:
        fleet = Fleet(models, asked.slices, asked.seed)
        rows = [fleet.second() for _ in range(asked.seconds)][10:]
        times = [took for took, _ in rows]
        high, changed = quantiles(times, n=100)[-1], sum(changes for _, changes in rows)
        print(f"{models:20} {median(times):14.2f} {high:8.2f} {max(times):12.2f} {changed:12} of {len(rows)}")


if __name__ == "__main__":
    main()
