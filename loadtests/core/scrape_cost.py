"""What metrics cost in CPU: microseconds per event, and how long a scrape holds the event loop.

    python -m loadtests.core.scrape_cost [--models 50] [--variants 3] [--tenants 4] [--rounds 9]

No sockets, no other work. The longest step is what a request may have to wait for the sake of a scrape; it
is CPU time, so that other processes of the machine do not count.
"""

import argparse
import os
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from time import thread_time_ns

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from router.observing.telemetry import Present, Telemetry
from router.observing.telemetry.counting.journal import Entry
from router.observing.tracing.spans import Spans
from router.observing.tracing.tracing import Tracing
from router.observing.tracing.writer import Traced, Writer
from router.settings.door.tracing import TracingSettings
from serving.ports import Reply
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.specs import ModelSpec, ServedModel, VariantSpec
from serving.values.vocabulary import ALL_OUTCOMES, COMPLETED, OVERLOAD

EVENTS = 20_000  # a round
TRACED = 1_000
SLO_US = 50_000
NOW_US = 10**12


def served(number: int, variants: int) -> ServedModel:
    """Return a model of `variants` variants."""
    names = tuple(f"variant-{each}" for each in range(variants))
    spec = ModelSpec(
        f"model-{number}",
        Path(),
        (),
        (),
        tuple(VariantSpec(name, None) for name in names),
        names[0],
        SLO_US,
        32,
    )
    return ServedModel(spec, SLO_US, names, ("slice",))


def fill(telemetry: Telemetry, models: list[ServedModel], tenants: list[str]) -> None:
    """Fill every series that this many models and tenants can have, but half of the outcomes of each flow."""
    seed = random.Random(1)
    for model in models:
        for tenant in tenants:
            for outcome in seed.sample(ALL_OUTCOMES, len(ALL_OUTCOMES) // 2):
                telemetry.request_done(*ended(model.name, tenant, Reply(outcome)), False)
            for _ in range(20):
                telemetry.request_done(*ended(model.name, tenant, Reply(COMPLETED)), True)
        for variant in model.variants:
            telemetry.batch_done(batch(model.name, variant), 2_345, 2_900)


def ended(model: str, tenant: str, reply: Reply) -> tuple[Request, Reply, int]:
    """Return the arguments of `request_done` up to the latency."""
    request = Request(1, model, 1, NOW_US, NOW_US + SLO_US)
    request.tenant = tenant
    reply.queue_us, reply.batch_us, reply.compute_us = 1_234, 345, 2_345
    return request, reply, 4_321


def batch(model: str, variant: str) -> RunBatch:
    """Return a batch of four requests."""
    request = Request(1, model, 1, NOW_US, NOW_US + SLO_US)
    made = RunBatch(1, "slice", [Piece(request, 0, 2) for _ in range(4)], 8)
    made.model, made.variant, made.predicted_us, made.typical_us = model, variant, 2_800.0, 2_400.0
    return made


def event_us(event: Callable[[], None], rounds: int) -> float:
    """Return the CPU time of an event, the median of rounds; the call through `event` is part of it (0.03
    us)."""
    costs = []
    for _ in range(rounds):
        begin = thread_time_ns()
        for _ in range(EVENTS):
            event()
        costs.append((thread_time_ns() - begin) / 1e3 / EVENTS)
    return statistics.median(costs)


class Discarding:
    """Takes the place of what sends spans: only what the event loop does is measured."""

    def send(self, traced: Traced) -> None: ...

    def close(self) -> None: ...


def spans_us(request: Request, reply: Reply, latency_us: int) -> float:
    """Return the CPU time to make the spans of a request, without what sends them."""
    spans = Spans("http://127.0.0.1:9", "measured", InMemorySpanExporter())
    traced = Traced(Entry(request, reply, latency_us, True), "", "1", 0, "")
    begin = thread_time_ns()
    for _ in range(TRACED):
        spans.send(traced)
    took_us = (thread_time_ns() - begin) / 1e3 / TRACED
    spans.close()
    return took_us


def scrape(telemetry: Telemetry) -> tuple[list[float], bytes]:
    """Return the milliseconds of CPU of each step, and the text."""
    costs: list[float] = []
    pieces: list[bytes] = []
    steps = telemetry.steps()
    while True:
        begin = thread_time_ns()
        piece = next(steps, None)
        costs.append((thread_time_ns() - begin) / 1e6)
        if piece is None:
            return costs, b"".join(pieces)
        pieces.append(piece)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of counting and of a scrape.")
    for name, default in (("models", 50), ("variants", 3), ("tenants", 4), ("rounds", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    models = [served(number, given.variants) for number in range(given.models)]
    tenants = [f"tenant-{number}" for number in range(given.tenants)]
    telemetry = Telemetry(models, tenants, ["slice"])
    replicas = {(model.name, state): 1 for model in models for state in ("ready", "loading")}
    queued = {model.name: (3, 2) for model in models}
    telemetry.read_present = lambda: Present(NOW_US + SLO_US, 7, queued, replicas)
    fill(telemetry, models, tenants)
    done, refused = (ended(models[-1].name, tenants[-1], Reply(outcome)) for outcome in (COMPLETED, OVERLOAD))
    ran = batch(models[-1].name, models[-1].variants[-1])
    print(f"us of CPU per event, median of {given.rounds} x {EVENTS}")
    events = [
        ("request parsed", lambda: telemetry.parsed(models[-1].name, 31)),
        ("request completed", lambda: telemetry.request_done(*done, True)),
        ("request rejected", lambda: telemetry.request_done(*refused, False)),
        ("batch done", lambda: telemetry.batch_done(ran, 2_345, 2_900)),
    ]
    for name, event in events:
        print(f"  {name:28}{event_us(event, given.rounds):6.2f}")
    for share in (0.01, 1.0):
        sender = Discarding()
        tracing = Tracing(TracingSettings("any", share), 0, Writer(sender))
        telemetry.trace = tracing.ended
        took_us = event_us(lambda: telemetry.request_done(*done, True), given.rounds)
        print(f"  {f'request completed, {share:.0%} traced':28}{took_us:6.2f}")
        tracing.close()
    telemetry.trace = None
    print(f"  {'spans of it, in their thread':28}{spans_us(*done):6.1f}")
    scrapes = [scrape(telemetry) for _ in range(given.rounds)]
    text = scrapes[-1][1]
    totals, longest = ([measure(costs) for costs, _ in scrapes] for measure in (sum, max))
    print(f"a scrape of {given.models} models x {given.variants} variants, {given.tenants} tenants each")
    print(f"  {len(text.splitlines()):,} lines, {len(text) / 1e6:.2f} MB, {len(scrapes[0][0])} steps")
    print(f"  ms of CPU in all: median {statistics.median(totals):.1f}, most {max(totals):.1f}")
    print(f"  ms of CPU, longest step: median {statistics.median(longest):.2f}, most {max(longest):.2f}")


if __name__ == "__main__":
    main()
