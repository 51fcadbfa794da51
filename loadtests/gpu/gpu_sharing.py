"""Two models on one device three ways: each on a share of its own, both on all of it, or in turns alone.

  python -m loadtests.gpu.gpu_sharing minilm:bf16-128 resnet50:bf16 --slo-ms 20,50
  python -m loadtests.gpu.gpu_sharing digits:cnn minilm:bf16-32 --device cpu --shares 1,1 --seconds 5

`shares`: each on its own, by CUDA MPS (on a CPU: cores); where none are given, on those at its knee, as
measured by `penstock profile`. `default`: two processes on the whole device, in turns as its driver likes (on
a CPU: both on all of those cores). `alone`: the first model has the device to itself for half of the time,
then the second, and each is asked twice as fast: all three ways are offered the same requests.

Arrivals are Poisson, open loop, and go to a gateway in this process. The rates are `--load` times what the
profiles promise for the shares, in the largest batches b with 2 l(b) <= SLO.
"""

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from loadtests.stand.observed import Bench, Ending, Watch
from router.verbs.profiling.asked import MeasureRequestError, find_model, find_variants
from router.verbs.profiling.devices import MeasuredDevice, device
from serving.control.control import Control
from serving.ports import Call
from serving.profile.curve import Profile
from serving.profile.derived.knee import knee_at_slo
from serving.profile.derived.latency import Latency
from serving.profile.derived.surface import Surface
from serving.profile.files.store import ProfileStore
from serving.runtime.calls.gateway import Gateway
from serving.runtime.fleet import Fleet
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.cores import core_set
from serving.runtime.slicing.mps.clients import check_clients
from serving.runtime.slicing.opening import PreparedShares
from serving.simulation.traffic.patterns import POISSON_CV, due_times
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import Limits, ModelSpec, ServedModel
from serving.values.tensor import ITEM_BYTES, Tensor
from serving.values.vocabulary import COMPLETED

SLICES = ("a", "b")
TURNS, FULL = Share("time", 1.0), Share("mps", 100.0)
"""All of a GPU; what was measured of the one holds for the other."""
STARTUP_S = 180.0
REQUESTS_MAX = 5_000  # a second; client and gateway share one core
WORD = b"water "
_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Goodput:
    """Of a model, in rows a second of the whole time; `p99_ms` of completed requests, 0 if none was."""

    way: str
    load: float
    model: str
    offered: float
    goodput: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Site:
    """Where, and with which profiles; what a gateway measures here itself, beside others, is not kept."""

    place: MeasuredDevice
    store: ProfileStore
    limits: Limits


def main() -> int:
    """Return 0 if a comparison was made, 2 if none could be."""
    asked = _arguments()
    logging.disable(logging.WARNING)  # that profiles and neighbours differ is what is looked at here
    try:
        found = asyncio.run(compare(asked))
    except* (MeasureRequestError, SlicingError, RuntimeError, ValueError, OSError) as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        sys.stderr.write(f"gpu_sharing: {str(error) or 'models or answers did not come in time'}\n")
        found = []
    for one in found:
        print(
            f"{one.load:4g}  {one.way:8} {one.model:10} asked {one.offered:9.1f} rows/s, "
            f"in time {one.goodput:9.1f} ({one.goodput / one.offered:6.1%}), p99 {one.p99_ms:.1f} ms"
        )
    if found and asked.json is not None:
        asked.json.write_text(json.dumps([asdict(one) for one in found]) + "\n")
    return 0 if found else 2


async def compare(asked: argparse.Namespace) -> list[Goodput]:
    """Return all ways at all loads. UsageError or SlicingError where the device or its shares are not
    there."""
    site = Site(
        device(asked.device), ProfileStore(asked.profiles), replace(_LIMITS, sweep_s=asked.sweep_seconds)
    )
    models = [_served(*each) for each in zip(asked.models, asked.slo_ms or (None, None), SLICES, strict=True)]
    if models[0].name == models[1].name:
        raise MeasureRequestError(f"{models[0].name} twice: a gateway serves a model once; name two")
    shares = [site.place.share(text) for text in asked.shares] or [_knee(site, each) for each in models]
    own, whole = _slices(site.place, shares)
    parts = [("shares", models, own), ("default", models, whole)]
    parts += [("alone", [model], [spec]) for model, spec in zip(models, whole, strict=True)]
    found: list[Goodput] = []
    rates: dict[str, float] = {}
    for way, present, specs in parts:
        times = len(models) // len(present)
        async with _opened(present, specs, site) as (bench, profiles):
            rates = rates or {each.name: _capacity(profiles[each.name], each) for each in present}
            for load in asked.loads:
                due = {each: _due_s(each, load * rates[each.name], asked, times) for each in present}
                endings = await _play(bench, due, asked.rows)
                found += [_goodput(way, load, model, ends, asked) for model, ends in endings.items()]
    return sorted(found, key=lambda one: one.load)


def _served(text: str, slo_ms: float | None, slice_name: str) -> ServedModel:
    name, _, variant = text.partition(":")
    spec = find_model(name)
    chosen = find_variants(spec, variant)[0] if variant else spec.default_variant
    slo_us = int(slo_ms * 1000) if slo_ms else spec.slo_us
    return ServedModel(spec, slo_us, (chosen,), (slice_name,), default_variant=chosen)


def _size(spec: ModelSpec) -> int:
    return spec.sizes[-1]


def _knee(site: Site, model: ServedModel) -> Share:
    kind = site.place.default_shares[0].kind
    known = site.store.read_set(site.place.kind, model.name, model.answering_variant)
    measured = [known.of(share) for share in known.shares(kind)] if known else []
    profiles = [profile for profile in measured if profile is not None]
    knee = knee_at_slo(Surface.of(profiles, _size(model.spec)), model.slo_us) if profiles else None
    if knee is None:
        raise MeasureRequestError(
            f"{model.name} {model.answering_variant} has no knee on {site.place.kind}: run `penstock profile "
            f"{model.name} --device {site.place.name}`, or say --shares"
        )
    return Share(kind, knee.amount)


def _slices(place: MeasuredDevice, shares: Sequence[Share]) -> tuple[list[SliceSpec], list[SliceSpec]]:
    """Return two slices for each model: one with a share of its own, one with all that both have."""
    if place.gpu is not None:
        own = [SliceSpec(name, (), 1, place.name, share) for name, share in zip(SLICES, shares, strict=True)]
        return own, [replace(spec, part=TURNS) for spec in own]
    first, both = int(shares[0].amount), int(shares[0].amount + shares[1].amount)
    if both > len(place.cores):
        raise MeasureRequestError(f"--shares: {both} cores are needed of {len(place.cores)}")
    cores = place.cores[:first], place.cores[first:both]
    own = [SliceSpec(name, each, len(each)) for name, each in zip(SLICES, cores, strict=True)]
    return own, [replace(spec, cores=place.cores[:both], threads=both) for spec in own]


@asynccontextmanager
async def _opened(
    models: Sequence[ServedModel], specs: Sequence[SliceSpec], site: Site
) -> AsyncIterator[tuple[Bench, dict[str, Profile]]]:
    """Yield a gateway with each model on its slice, and their profiles, once their latencies are known."""
    kind = site.place.kind
    known: dict[tuple[str, str, str], Profile] = {}
    for model, spec in zip(models, specs, strict=True):
        for share in (spec.share, FULL) if spec.share == TURNS else (spec.share,):
            profile = site.store.read(kind, model.name, model.answering_variant, share)
            if profile is not None:
                known.setdefault((spec.name, model.name, model.answering_variant), profile)
    actuator, settings = site.place.actuator(specs[0].share), {}
    gateway = Gateway(models, site.limits, Watch(), devices={spec.name: spec.device for spec in specs})
    control = Control(specs, models, known, site.limits, lambda _spec: kind)
    ready = asyncio.get_running_loop().create_future()
    try:
        for spec in specs:
            settings[spec.name] = core_set(spec) if actuator is None else actuator.open(spec)
        with tempfile.TemporaryDirectory(prefix="penstock-profiles-") as folder:
            shares = PreparedShares(lambda spec: settings[spec.name])
            fleet = Fleet(control, gateway, ProfileStore(Path(folder)), shares)
            fleet.on_change = lambda: _settle(ready, gateway, control)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fleet.run())
                try:
                    await asyncio.wait_for(ready, STARTUP_S)
                    check_clients(actuator, [fleet.pid(spec.name) or 0 for spec in specs])
                    yield Bench(gateway, fleet, Watch()), _profiles(fleet)
                finally:
                    fleet.stop()
    finally:
        if actuator is not None:
            actuator.stop()


def _settle(ready: "asyncio.Future[None]", gateway: Gateway, control: Control) -> None:
    records = control.slices.values()
    failed = [record.reason for record in records if record.failures]
    failed += [each.reason for record in records for each in record.replicas.values() if each.failures]
    if failed and not ready.done():
        ready.set_exception(RuntimeError(failed[0]))
    elif all(map(gateway.model_ready, gateway.models)) and not ready.done():
        ready.set_result(None)


def _profiles(fleet: Fleet) -> dict[str, Profile]:
    replicas = [each for record in fleet.control.slices.values() for each in record.replicas.values()]
    return {each.model: each.profile for each in replicas if each.profile is not None}


def _capacity(profile: Profile, model: ServedModel) -> float:
    """Return the rows a second in the largest batches that fit the SLO twice."""
    latency, size = Latency(profile), _size(model.spec)
    rows = max(latency.rows_in(model.slo_us / 2, size), 1)
    return rows / latency.predict_us(rows, size) * 1e6


def _due_s(model: ServedModel, rate: float, asked: argparse.Namespace, times: int) -> list[float]:
    """Return the same arrivals whatever the way, `times` as fast."""
    if times * rate / asked.rows > REQUESTS_MAX:
        raise MeasureRequestError(
            f"{model.name} at {times * rate:.0f} rows/s are too many requests; raise --rows"
        )
    numbers = np.random.default_rng([asked.seed, SLICES.index(model.slices[0])])
    due = due_times(f"{rate / asked.rows}", asked.seconds, POISSON_CV, numbers) / times
    found: list[float] = due.tolist()
    return found


async def _play(
    bench: Bench, due_s: Mapping[ServedModel, Sequence[float]], rows: int
) -> dict[ServedModel, list[Ending]]:
    models = list(due_s)
    order = sorted((at_s, number) for number, model in enumerate(models) for at_s in due_s[model])
    inputs = [_inputs(model, rows) for model in models]  # once: a call's may be megabytes
    calls = [Call(models[number], inputs[number], rows) for _, number in order]
    for call in calls:
        call.size = _size(call.model.spec)
    played = await bench.play(calls, [at_s for at_s, _ in order])
    endings: dict[ServedModel, list[Ending]] = {model: [] for model in models}
    for (_, number), ending in zip(order, played, strict=True):
        endings[models[number]].append(ending)
    return endings


def _inputs(model: ServedModel, rows: int) -> list[Tensor]:
    """Return inputs of zeros, or texts of the largest size that the model tells apart."""
    size = _size(model.spec)
    text = size.to_bytes(4, "little") + (WORD * (size // len(WORD) + 1))[:size]
    found = []
    for spec in model.spec.inputs:
        shape = spec.shape[1:]
        row = text if spec.datatype == "BYTES" else bytes(ITEM_BYTES[spec.datatype] * prod(shape))
        found.append(Tensor(spec.name, spec.datatype, (rows, *shape), row * rows))
    return found


def _goodput(
    way: str, load: float, model: ServedModel, endings: Sequence[Ending], asked: argparse.Namespace
) -> Goodput:
    per_second = asked.rows / asked.seconds
    good = sum(one.in_time(model.slo_us) for one in endings) * per_second
    latencies_ms = [one.latency_us / 1e3 for one in endings if one.outcome is COMPLETED]
    p99_ms = float(np.percentile(latencies_ms, 99)) if latencies_ms else 0.0
    return Goodput(way, load, model.name, len(endings) * per_second, good, p99_ms)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def numbers(text: str) -> tuple[float, ...]:
        return tuple(float(word) for word in text.split(","))

    add = parser.add_argument
    add("models", nargs=2, metavar="MODEL[:VARIANT]")
    add("--device", default="cuda:0")
    add("--shares", type=lambda text: text.split(","), default=(), metavar="A,B", help="per cent, or cores")
    add("--slo-ms", type=numbers, metavar="A,B", help="the models' own, if not given")
    add("--loads", type=numbers, default=(0.6, 0.9, 1.2), metavar="LOAD,...")
    add("--rows", type=int, default=1, help="of a request")
    add("--seconds", type=float, default=10, help="of each way, at each load")
    add("--sweep-seconds", type=float, default=_LIMITS.sweep_s, help="to measure what no profile says")
    add("--seed", type=int, default=0)
    add("--profiles", type=Path, default=Path("profiles"), metavar="FOLDER")
    add("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    for name in ("shares", "slo_ms"):
        if len(getattr(asked, name) or SLICES) != len(SLICES):
            parser.error(f"--{name.replace('_', '-')} takes two values, one for each model")
    return asked


if __name__ == "__main__":
    sys.exit(main())
