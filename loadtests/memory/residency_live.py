"""A live gateway with more models than memory: what becomes of requests, and of the worker's memory."""

import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import numpy as np

from loadtests.harness.dispatch import Load, Server, measure
from loadtests.harness.gateway import Gateway, started
from loadtests.harness.payloads import Contents, Target, fetch_metadata, make_questions
from loadtests.harness.processes import pin, resident_bytes
from loadtests.harness.record import Record
from loadtests.harness.wire import ask
from loadtests.memory.residency_play import Arrivals
from loadtests.stand.small_models import write_models
from serving.control.on_demand.on_demand_model import LoadFigures

MB = 1 << 20
SLICE = "small"
WATCH_S = 0.2
KNOWN_S = 60.0
"""A model that is not answered by then is not there."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A run: what became of each arrival, and the worker's memory: before any request, and from then on."""

    record: Record
    before_mb: float
    limit_mb: float
    rss_mb: Sequence[float]


def run(
    models: Sequence[LoadFigures],
    limit_mb: float,
    arrivals: Arrivals,
    cores: tuple[Collection[int], Sequence[int]],
) -> Seen:
    """Run models of those figures on one slice of `limit_mb`; `cores`: the gateway's and the worker's.

    Raises RuntimeError if the gateway does not come up, or a model is not answered at all.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-models-") as folder:
        homes = write_models(
            Path(folder),
            [each.memory_bytes for each in models],
            load_ms=models[0].load_us / 1e3,
            slo_ms=models[0].slo_us / 1e3,
        )
        entries: list[dict[str, object]] = [{"path": str(home), "slices": [SLICE]} for home in homes]
        slices = [{"name": SLICE, "cores": list(cores[1]), "memory_mb": limit_mb}]
        with started(entries, profiles=Path(folder, "profiles"), slices=slices) as gateway:
            pin(gateway.pid, cores[0])
            return _ask(gateway, [home.name for home in homes], limit_mb, arrivals)


def show(seen: Seen, load_ms: float, slo_ms: float) -> bool:
    """Print it; whether every refusal was one of a model that was not there in time, and the models kept to
    their memory."""
    record = seen.record
    latency_ms = (np.asarray(record.done_ns) - np.asarray(record.due_ns)) / 1e6
    statuses = np.asarray(record.statuses)
    ok = statuses == 200
    hit = ok & (latency_ms < load_ms / 2)
    total = len(statuses)
    print(f"  live      hits {hit.sum() / total:.3f}  answered {ok.sum() / total:.3f}, of {total}")
    for name, chosen in (("hits", hit), ("after a load", ok & ~hit), ("refused", ~ok)):
        if chosen.any():
            p50, p99 = np.percentile(latency_ms[chosen], (50, 99))
            late = (latency_ms[chosen] > slo_ms).mean()
            print(
                f"    {name:12} {chosen.sum():6}  p50 {p50:.1f} ms  p99 {p99:.1f} ms  past the SLO {late:.2%}"
            )
    outcomes = [f"{status} {reason}" for status, reason in zip(record.statuses, record.reasons, strict=True)]
    for outcome in sorted(set(outcomes) - {"200 "}):
        print(f"    {outcome}: {outcomes.count(outcome)}")
    top_mb = max(seen.rss_mb)
    print(
        f"    worker: {min(seen.rss_mb):.0f} to {top_mb:.0f} MB resident, {seen.before_mb:.0f} at first; ",
        end="",
    )
    print(f"its models may have {seen.limit_mb:g}")
    return bool(np.isin(statuses, (200, 503, 504)).all()) and top_mb - seen.before_mb <= seen.limit_mb


def _ask(gateway: Gateway, names: Sequence[str], limit_mb: float, arrivals: Arrivals) -> Seen:
    url = f"http://{gateway.host}:{gateway.rest_port}"
    due_s, models = np.asarray(arrivals.due_us) / 1e6, np.asarray(arrivals.models)
    requests = []
    for name in names:
        questions = make_questions(Target(name), fetch_metadata(url, name), Contents(distinct=4))
        requests.append([question.request for question in questions])
    (worker,) = gateway.workers()
    before_mb = resident_bytes(worker) / MB
    for name, several in zip(names, requests, strict=True):
        _until_answered(gateway, name, several[0])
    loads = [Load(due_s[models == number], several) for number, several in enumerate(requests)]
    rss_mb: list[float] = []
    over = Event()
    watching = Thread(target=_watch, args=(worker, rss_mb, over))
    watching.start()
    try:
        record, _ = measure(loads, Server(gateway.host, gateway.rest_port))
    finally:
        over.set()
        watching.join()
    return Seen(record, before_mb, limit_mb, rss_mb)


def _until_answered(gateway: Gateway, name: str, request: bytes) -> None:
    deadline = time.monotonic() + KNOWN_S
    while (answer := ask(gateway, request)).status != 200:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} is not answered: {answer.status} {answer.body[:300]!r}")
        time.sleep(0.1)


def _watch(worker: int, rss_mb: list[float], over: Event) -> None:
    while not over.wait(WATCH_S):
        rss_mb.append(resident_bytes(worker) / MB)
