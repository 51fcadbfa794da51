"""One slice for several models or tenants: the worker alone on one core, gateway and client on the other.

What the slice can do is taken from the profiles that the gateway measured there itself: for a model alone,
its rows a second in the largest batch b with 2 l(b) <= SLO (as `loadtests.stand.bare`).
"""

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadtests.harness.dispatch import Server, measure
from loadtests.harness.gateway import Gateway, started
from loadtests.harness.processes import pin, undisturbed
from loadtests.harness.record import Record
from loadtests.harness.report import Report, summarise
from loadtests.openloop import Ask, Course, prepare
from loadtests.stand.testbed import CONNECTIONS, CONNECTIONS_MAX, Watch, may_go_first, settle
from serving.profile.derived.latency import Latency
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import SliceSpec

SLICE = "measured"


@dataclass(frozen=True, slots=True)
class Place:
    """The worker's core, the core of gateway and client, and a folder for profiles that stays."""

    worker_core: int
    core: int
    profiles: Path


@dataclass(frozen=True, slots=True)
class Played:
    """A finished run: what became of each arrival, the report of each load, and why not to believe it."""

    record: Record
    report: Report
    voids: Sequence[str]

    def latency_ms(self, load: int) -> npt.NDArray[np.float64]:
        """Return the time from due to told, of each arrival of the load of this number, however it ended."""
        record = self.record
        told = (np.asarray(record.done_ns, np.int64) - np.asarray(record.due_ns, np.int64)) / 1e6
        own: npt.NDArray[np.float64] = told[np.asarray(record.loads) == load]
        return own


class Stage:
    """A gateway with its models measured."""

    def __init__(self, gateway: Gateway, place: Place) -> None:
        self.gateway = gateway
        self.place = place
        self._realtime = may_go_first()

    def latency(self, model: str, variant: str) -> Latency:
        """Return the latency measured here. Raises RuntimeError if nothing was."""
        place = self.place
        store = ProfileStore(place.profiles)
        here = SliceSpec(SLICE, (place.worker_core,))
        profile = store.read(device_kind(here), model, variant, here.share)
        if profile is None:
            raise RuntimeError(f"the gateway left no profile of {model} {variant} in {place.profiles}")
        return Latency(profile)

    def play(self, asks: Sequence[Ask], course: Course) -> Played:
        """Play one open-loop run of all these loads; the client goes first on its core, if allowed."""
        gateway, place = self.gateway, self.place
        server = Server(gateway.host, gateway.rest_port, CONNECTIONS, CONNECTIONS_MAX)
        prepared = prepare(asks, course, server)
        watch = Watch({place.worker_core: gateway.workers(), place.core: [gateway.pid, os.getpid()]})
        with undisturbed(place.core, self._realtime):
            record, client = measure(prepared.loads, server)
        intruders = watch.intruders()
        report = summarise(record, prepared.promises, prepared.span_s, client)
        return Played(record, report, [*report.voids, *intruders])


@contextlib.contextmanager
def set_up(models: Sequence[dict[str, object]], place: Place, **settings: object) -> Iterator[Stage]:
    """Yield the stage; `settings` as in `gateway.started`.

    Raises ValueError if the cores are not there, RuntimeError if the gateway does not start.
    """
    missing = {place.worker_core, place.core} - os.sched_getaffinity(0)
    if missing or place.worker_core == place.core:
        raise ValueError(f"two cores are needed that are here; {sorted(missing) or 'they'} cannot be used so")
    with started(models, [place.worker_core], place.profiles, **settings) as gateway:
        pin(gateway.pid, [place.core])
        settle(gateway)
        yield Stage(gateway, place)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments from which `read_place` makes a Place, and those of a Course."""
    add = parser.add_argument
    add("--seconds", type=float, default=20, help="of each run")
    add("--seed", type=int, default=0)
    add("--worker-core", type=int, default=0)
    add("--core", type=int, default=1, help="of gateway and client")
    add("--profiles", type=Path, metavar="DIR", help="keep profiles there: the next run starts sooner")
    add("--json", type=Path, metavar="FILE")


@contextlib.contextmanager
def read_place(asked: argparse.Namespace) -> Iterator[Place]:
    """Yield the place asked for; profiles that are not to be kept go when it is left."""
    if asked.profiles is not None:
        yield Place(asked.worker_core, asked.core, asked.profiles.resolve())
        return
    with tempfile.TemporaryDirectory(prefix="penstock-profiles-") as folder:
        yield Place(asked.worker_core, asked.core, Path(folder))


def rows_within(latency: Latency, budget_us: float, size: int = 0) -> int:
    """Return the largest measured batch that takes at most `budget_us`, at least 1."""
    return max(latency.rows_in(budget_us, size), 1)


def capacity(latency: Latency, slo_us: float, size: int = 0) -> float:
    """Return the rows a second of a model that has the slice to itself."""
    rows = rows_within(latency, slo_us / 2, size)
    return rows / latency.predict_us(rows, size) * 1e6
