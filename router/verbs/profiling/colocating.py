"""`--colocate A,B`: how much longer batches take beside each other, each on a share of its own."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product
from statistics import median

from router.verbs.profiling.asked import MeasureRequestError, find_model, find_variants
from router.verbs.profiling.devices import MeasuredDevice
from router.verbs.profiling.measuring import Measurer, Say, opened
from serving.profile.derived.interference import Slowdown
from serving.profile.files.corun import CoRun, Tenant
from serving.runtime.slicing.mps.clients import check_clients
from serving.runtime.workers.bench import Bench
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import ModelSpec
from serving.worker.frames.orders import LATENCIES_MAX, MeasureOrder

ROWS = (1, 8)
ROUNDS = 6
"""Alone and beside each other in turns: slow changes of the machine meet both alike."""
ROUND_US = 300_000


@dataclass(frozen=True, slots=True)
class ColocatedVariant:
    """A variant that is measured beside others, in batches of `rows` at the largest size bucket."""

    model: ModelSpec
    variant: str
    rows: int

    @property
    def size(self) -> int:
        """The largest size bucket, 0 without a hint."""
        return self.model.sizes[-1]

    def tenant(self, share: Share) -> Tenant:
        """Return the tenant, as the file names it."""
        return Tenant(self.model.name, self.variant, share, self.rows, self.size)

    def order(self, budget_us: int) -> MeasureOrder:
        """Run batches for that long."""
        return MeasureOrder(0, self.rows, self.size, LATENCIES_MAX, budget_us)


@dataclass(slots=True)
class _Times:
    alone_us: list[int] = field(default_factory=list)
    beside_us: list[int] = field(default_factory=list)


def find_guests(text: str, rows: Sequence[int]) -> list[ColocatedVariant]:
    """Return a guest for each batch of `digits:cnn,minilm` (the default variant if none is named)."""
    guests = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, _, variant = word.partition(":")
        model = find_model(name)
        chosen = find_variants(model, variant)[0] if variant else model.default_variant
        guests += [ColocatedVariant(model, chosen, each) for each in rows or ROWS if each <= model.batch_max]
    if not guests:
        raise MeasureRequestError("--colocate: which models? Give at least one, such as digits:cnn,minilm")
    return guests


async def colocate(
    guests: Sequence[ColocatedVariant], place: MeasuredDevice, share: Share, measurer: Measurer, say: Say
) -> list[CoRun]:
    """Return every pair of variants, in all their batches. NoisyError, BenchError, SlicingError."""
    variants = list(dict.fromkeys((guest.model.folder, guest.variant) for guest in guests))
    grouped = [
        [guest for guest in guests if (guest.model.folder, guest.variant) == each] for each in variants
    ]
    slices = place.apart(share, 2)
    runs: list[CoRun] = []
    async with opened(place, slices) as (bench, actuator):
        for left, right in combinations_with_replacement(grouped, 2):
            for spec, group in zip(slices, (left, right), strict=True):
                await bench.load(spec.name, group[0].model, group[0].variant)
            if not runs:
                check_clients(actuator, bench.pids)
                cores = [core for spec in slices for core in spec.cores]
                await measurer.wait_for_quiet(bench, [slices[0].name], cores)
            for pair in product(left, right):
                started = time.monotonic()
                times = await _measure(bench, slices, pair)
                runs += _co_runs(pair, times, share, measurer, time.monotonic() - started)
                say(_sentence(runs[-2:]))
    return runs


async def _measure(
    bench: Bench, slices: Sequence[SliceSpec], pair: Sequence[ColocatedVariant]
) -> list[_Times]:
    times = [_Times(), _Times()]
    for _ in range(ROUNDS):
        for spec, guest, each in zip(slices, pair, times, strict=True):
            (found,) = await bench.measure([spec.name], guest.order(ROUND_US))
            each.alone_us += found.latencies_us
        together = (bench.measure([s.name], g.order(ROUND_US)) for s, g in zip(slices, pair, strict=True))
        for (found,), each in zip(await asyncio.gather(*together), times, strict=True):
            each.beside_us += found.latencies_us
    return times


def _co_runs(
    pair: Sequence[ColocatedVariant],
    times: Sequence[_Times],
    share: Share,
    measurer: Measurer,
    seconds: float,
) -> list[CoRun]:
    origin = measurer.origin("", seconds, 0.0)
    tenants = [guest.tenant(share) for guest in pair]
    return [
        CoRun(
            own, (other,), float(max(median(each.alone_us), 1)), float(max(median(each.beside_us), 1)),
            min(len(each.alone_us), len(each.beside_us)), origin,
        )
        for own, other, each in zip(tenants, reversed(tenants), times, strict=True)
    ]  # fmt: skip


def _sentence(runs: Sequence[CoRun]) -> str:
    told = (f"{run.tenant.model} {run.tenant.variant} x{run.tenant.rows}" for run in runs)
    slower = " and ".join(f"{run.slowdown:.2f}" for run in runs)
    return f"{' beside '.join(told)}: {slower} times as long"


def summary(runs: Sequence[CoRun]) -> list[str]:
    """Return the fitted model, a line for each tenant."""
    fitted = Slowdown.fit(runs)
    worst = max(abs(residual - 1) for residual in fitted.residuals)
    lines = [f"slowdown = 1 + sensitivity x pressure of the other; the worst pair is {worst:.0%} off:"]
    for tenant in sorted(fitted.sensitivity):
        name = f"{tenant.model} {tenant.variant} on {tenant.share}, batches of {tenant.rows}"
        pressure = fitted.pressure.get(tenant, 0.0)
        lines.append(f"  {name}: sensitivity {fitted.sensitivity[tenant]:.3f}, pressure {pressure:.2f}")
    return lines
