"""What a decision costs: microseconds of one core per request of one row, from `arrive` to `Answer`.

    python -m loadtests.core.scheduler_cost [--rounds 9]

No sockets, no tensors, no event loop: a slice runs batches back to back, and as many requests arrive as
were answered, so that `depth` of them are always in the scheduler, spread over the models in turn. One model
forms batches of up to 32; of 50 models at depth 32 each batch holds one row, the worst case for planning.
"""

import argparse
import gc
import os
import statistics
from pathlib import Path
from time import perf_counter_ns

from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.scheduler.commands import RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Request
from serving.values.specs import Limits, ModelSpec, ServedModel, VariantSpec

DEPTHS = (1, 32, 1000)
MODEL_COUNTS = (1, 50)
BATCH_MAX = 32
SLO_US = 50_000
REQUESTS = 20_000  # a round
VARIANTS = ("a",)


class Load:
    """A closed loop around a scheduler: time advances by 1 us an event."""

    def __init__(self, model_count: int) -> None:
        self.names = [f"m{number}" for number in range(model_count)]
        models = [_served(name) for name in self.names]
        self.scheduler = Scheduler(models, Limits())
        points = tuple(Point(0, rows, 100.0 * rows, 120.0 * rows, 30) for rows in (1, 8, BATCH_MAX))
        for number, model in enumerate(models):
            latency = Latency(Profile(model.name, "a", "none", points))
            self.scheduler.replica_up("slice", model.name, Replica(number, "a", latency, model), 0)
        self.now_us = 1
        self.count = 0

    def arrive(self, count: int) -> None:
        """Send `count` requests, each for the next model."""
        scheduler, now_us = self.scheduler, self.now_us
        for _ in range(count):
            self.count += 1
            name = self.names[self.count % len(self.names)]
            request = Request(self.count, name, 1, now_us, now_us + SLO_US)
            request.variants = VARIANTS
            scheduler.arrive(request, now_us)

    def run(self, depth: int, requests: int) -> float:
        """Return the microseconds per request over `requests` requests."""
        scheduler = self.scheduler
        self.arrive(depth)
        batch = _batch(scheduler.wake(self.now_us))
        answered = 0
        begin = perf_counter_ns()
        while answered < requests:
            self.now_us += 1
            answered += len(batch.pieces)
            if depth > len(batch.pieces):  # others wait: the next batch follows at once
                self.arrive(len(batch.pieces))
                if scheduler.wake_us <= self.now_us:  # a review is due
                    scheduler.wake(self.now_us)
                batch = _batch(scheduler.batch_done(batch.id, 1, self.now_us))
            else:  # an idle slice: the batch is formed at the wake after the arrivals
                scheduler.batch_done(batch.id, 1, self.now_us)
                self.arrive(len(batch.pieces))
                batch = _batch(scheduler.wake(self.now_us))
        return (perf_counter_ns() - begin) / 1e3 / answered


def _batch(commands: object) -> RunBatch:
    if isinstance(commands, list) and isinstance(commands[0], RunBatch):
        return commands[0]
    raise RuntimeError(f"expected a batch first, got {commands}")


def _served(name: str) -> ServedModel:
    spec = ModelSpec(name, Path(), (), (), (VariantSpec("a", None),), "a", SLO_US, BATCH_MAX)
    return ServedModel(spec, SLO_US, VARIANTS, ("slice",))


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of the scheduler in microseconds per request.")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of which the median is printed")
    rounds = parser.parse_args().rounds
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"us per request (arrive + dispatch + done), median of {rounds} x {REQUESTS} requests, one core")
    print("models" + "".join(f"{f'depth {depth}':>12}" for depth in DEPTHS))
    for model_count in MODEL_COUNTS:
        cells = []
        for depth in DEPTHS:
            gc.collect()
            costs = [Load(model_count).run(depth, REQUESTS) for _ in range(rounds)]
            cells.append(f"{statistics.median(costs):12.2f}")
        print(f"{model_count:6}" + "".join(cells))


if __name__ == "__main__":
    main()
