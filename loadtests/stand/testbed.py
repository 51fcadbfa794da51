"""Two cores for a measurement: the worker alone on one, gateway and client on the other, and beside them the
bare model on the worker's core, asked only while the gateway is idle."""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadtests.harness.dispatch import Load, Server, measure
from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.harness.payloads import Target
from loadtests.harness.processes import core_us, cpu_us, pin, undisturbed
from loadtests.harness.record import Record
from loadtests.harness.report import Report, summarise
from loadtests.openloop import Ask, Course, prepare
from loadtests.stand import bare

OTHERS_MAX = 0.03  # of a core, that processes which are not ours may take in a run
DRIFT_MAX = 0.10  # by which the capacity may differ before and after a run
CONNECTIONS = 256  # opened before a run: those made in it would make the client late
CONNECTIONS_MAX = 2048
WARM_UP_S, WARM_UP_LOAD = 3.0, 0.5  # some 200 batches: what the gateway's latency estimates remember
QUIET_S = 2.2  # a gateway refines its profiles once a second
SETTLED_S = 120.0  # after which it should know them
_OUR_US = 5000.0  # CPU of a worker that does nothing, in QUIET_S, at most


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured, and where; `profiles` None: measured anew, in a folder that goes away."""

    model: str = "mlp"
    slo_ms: float = 50.0
    policy: str = "slo"
    worker_core: int = 0
    core: int = 1  # of gateway and client
    profiles: Path | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """A finished run: what became of each arrival, the report of it, and why not to believe it."""

    load: Load
    record: Record
    report: Report
    slo_ms: float
    voids: Sequence[str]

    @property
    def latency_ms(self) -> npt.NDArray[np.float64]:
        """From due to told, of each arrival, however it ended."""
        told: npt.NDArray[np.float64] = (
            np.asarray(self.record.done_ns) - np.asarray(self.record.due_ns)
        ) / 1e6
        return told


class Testbed:
    """A gateway that has measured its model, and the same model bare."""

    __test__ = False  # for pytest, to which the name means another thing

    def __init__(self, setting: Setting, gateway: Gateway, model: bare.BareModel) -> None:
        self.setting = setting
        self.gateway = gateway
        self.bare = model
        self._realtime = may_go_first()

    def capacity(self) -> bare.Capacity:
        """Measure the capacity of the bare model now."""
        return self.bare.capacity(self.setting.slo_ms * 1e3)

    def warm_up(self) -> None:
        """Play some seconds at half the capacity that count for nothing.

        The gateway's estimates of batches are then current, not from its start or from a disturbed run.
        """
        self.play(WARM_UP_LOAD * self.capacity().rate, Course(WARM_UP_S))

    def play(self, rate: float, course: Course) -> Played:
        """Play one open-loop run at `rate` requests a second; the client goes first on its core, if
        allowed."""
        setting = self.setting
        server = Server(self.gateway.host, self.gateway.rest_port, CONNECTIONS, CONNECTIONS_MAX)
        prepared = prepare([Ask(Target(setting.model), f"{rate}", setting.slo_ms)], course, server)
        watch = Watch(
            {setting.worker_core: self.gateway.workers(), setting.core: [self.gateway.pid, os.getpid()]}
        )
        with undisturbed(setting.core, self._realtime):
            record, client = measure(prepared.loads, server)
        intruders = watch.intruders()
        report = summarise(record, prepared.promises, prepared.span_s, client)
        return Played(prepared.loads[0], record, report, setting.slo_ms, [*report.voids, *intruders])


class Watch:
    """The use of the cores from now on: `owners` are the processes that should use them, by core."""

    def __init__(self, owners: Mapping[int, Sequence[int]]) -> None:
        self._owners = owners
        self._since_s = time.monotonic()
        self._before_us = {core: self._foreign_us(core) for core in owners}

    def intruders(self) -> list[str]:
        """Return why a run in this time must not be believed; empty where its processes were alone."""
        span_us = (time.monotonic() - self._since_s) * 1e6
        shares = {core: (self._foreign_us(core) - self._before_us[core]) / span_us for core in self._owners}
        return [
            f"others took {share:.0%} of core {core}, at most {OTHERS_MAX:.0%} is fair"
            for core, share in shares.items()
            if share > OTHERS_MAX
        ]

    def _foreign_us(self, core: int) -> float:
        return core_us(core) - sum(map(cpu_us, self._owners[core]))


def settle(gateway: Gateway) -> None:
    """Wait until the gateway has refined its profiles: doing so it uses the workers' cores."""
    give_up_s = time.monotonic() + SETTLED_S
    while time.monotonic() < give_up_s:
        before_us = sum(map(cpu_us, gateway.workers()))
        time.sleep(QUIET_S)
        if sum(map(cpu_us, gateway.workers())) - before_us <= _OUR_US:
            return
    print(f"the gateway still measures after {SETTLED_S:g} s; its measurements disturb these")


@contextlib.contextmanager
def laid_out(setting: Setting) -> Iterator[Testbed]:
    """Yield the testbed.

    Raises ValueError if the model has no capacity or cores are not there, RuntimeError if a process does not
    start.
    """
    usable = sorted(os.sched_getaffinity(0))
    if setting.worker_core == setting.core or not {setting.worker_core, setting.core} <= set(usable):
        wanted = f"{setting.worker_core} and {setting.core}"
        raise ValueError(f"worker and client need a core each; got {wanted}, usable are {usable}")
    served = {"slo_ms": setting.slo_ms, "batching": {"policy": setting.policy}}
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(bare.loaded(setting.model, setting.worker_core))
        profiles = setting.profiles
        if profiles is None:
            profiles = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-profiles-")))
        entry = model_entry(setting.model, **served)
        gateway = stack.enter_context(started([entry], [setting.worker_core], profiles.resolve()))
        pin(gateway.pid, [setting.core])
        settle(gateway)
        yield Testbed(setting, gateway, model)


def drift(before: float, after: float) -> list[str]:
    """Return why a run between these two capacities must not be believed; empty where it may."""
    change = abs(after - before) / before
    if change <= DRIFT_MAX:
        return []
    rates = f"from {before:.0f} to {after:.0f} rows/s"
    return [f"the capacity moved by {change:.0%}, {rates}; at most {DRIFT_MAX:.0%} is fair"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments from which `read_setting` makes a Setting."""
    default = Setting()
    add = parser.add_argument
    add("--model", default=default.model, help="one of the samples whose cost is the same for any content")
    add("--slo-ms", type=float, default=default.slo_ms)
    add("--policy", default=default.policy, help="batching policy: slo, static or aimd")
    add("--worker-core", type=int, default=default.worker_core)
    add("--core", type=int, default=default.core, help="of gateway and client")
    add(
        "--profiles", type=Path, metavar="DIR", help="keep profiles there, so that the next run starts sooner"
    )


def read_setting(asked: argparse.Namespace) -> Setting:
    return Setting(asked.model, asked.slo_ms, asked.policy, asked.worker_core, asked.core, asked.profiles)


def may_go_first() -> bool:
    """Return whether the client may go before all else on its core; said where not: it may then be late."""
    try:
        with undisturbed(None, realtime=True):
            return True
    except PermissionError:
        print("the client may not go first on its core (root or CAP_SYS_NICE would); runs may be void for it")
        return False
