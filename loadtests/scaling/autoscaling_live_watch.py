"""How many slices a gateway holds and what they cost, read from its metrics while it is asked."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from loadtests.harness.gateway import Gateway
from loadtests.harness.processes import core_us, cpu_us, tree_us
from loadtests.placing.placed import shipped_profiles
from loadtests.scaling.autoscaling_live_trace import Count

READ_S = 0.2
QUIET_S, QUIET_SHARE = 2.2, 0.1  # a gateway is at rest that took so little of a core for so long
REST_S = 600.0  # within which it is: on a machine of its own, tables are made in less than a minute a variant
HELD, CHANGES, COST = "penstock_held_slices", "penstock_scaling_changes_total", "penstock_cost_total"


@dataclass(slots=True)
class Course:
    """`counts` of slices that were held, at instants of `time.monotonic`; `changes` and `cost` as the gateway
    counts them, from the first to the last reading; `fault`: why there are none after some time."""

    counts: list[Count] = field(default_factory=list)
    changes: int = 0
    cost: float = 0.0
    fault: str = ""


def read(text: str, name: str) -> float:
    """Return the sum over all samples of a metric, 0 where there are none."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith((f"{name}{{", f"{name} "))
    )


def metrics(gateway: Gateway) -> str:
    """Return the metrics as Prometheus reads them. Raises OSError if the gateway does not answer."""
    with urlopen(f"http://{gateway.host}:{gateway.metrics_port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def why(gateway: Gateway, model: str) -> str:
    """Return how many replicas the model has and why, as the gateway explains it. Raises OSError if it does
    not answer."""
    with urlopen(
        f"http://{gateway.host}:{gateway.rest_port}/v2/models/{model}/explain", timeout=30
    ) as answer:
        scaled = json.loads(answer.read())["replicas"]
    return "one on each slice" if scaled is None else f"{scaled['count']}, {scaled['why']}"


@contextlib.contextmanager
def watching(gateway: Gateway) -> Iterator[Course]:
    """Read every READ_S until it is left; complete only then."""
    course = Course()
    over = threading.Event()
    before = metrics(gateway)
    course.counts.append(Count(time.monotonic(), int(read(before, HELD))))

    def watch() -> None:
        last = False
        while not last:
            last = over.wait(READ_S)  # which is read as well
            try:
                text = metrics(gateway)
            except OSError as error:
                course.fault = f"metrics could not be read: {error}"
                return
            course.counts.append(Count(time.monotonic(), int(read(text, HELD))))
            course.changes = int(read(text, CHANGES) - read(before, CHANGES))
            course.cost = read(text, COST) - read(before, COST)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield course
    finally:
        over.set()
        thread.join()


class Machine:
    """From now on, of all cores: what neither the client nor the gateway and its children took of them."""

    def __init__(self, gateway: Gateway) -> None:
        self._pid = gateway.pid
        self._cores = sorted(os.sched_getaffinity(0))
        self._since_s = time.monotonic()
        self._before = self._taken()

    def shares(self) -> Mapping[str, float]:
        """Return how many cores `client`, `gateway` (with its workers) and `others` kept busy. As
        `cores.Usage`, but for processes that may end meanwhile."""
        span_us = (time.monotonic() - self._since_s) * 1e6
        after = self._taken()
        found = {name: (after[name] - self._before[name]) / span_us for name in after}
        total = found.pop("all")
        return found | {"others": max(total - sum(found.values()), 0.0)}

    def _taken(self) -> dict[str, float]:
        return {
            "client": cpu_us(os.getpid()),
            "gateway": tree_us(self._pid),
            "all": sum(map(core_us, self._cores)),
        }


def await_rest(gateway: Gateway) -> None:
    """Wait until the gateway has made its tables and refined its profiles. RuntimeError where it still does
    after REST_S."""
    give_up_s = time.monotonic() + REST_S
    while time.monotonic() < give_up_s:
        before_us = tree_us(gateway.pid)
        time.sleep(QUIET_S)
        if tree_us(gateway.pid) - before_us <= QUIET_SHARE * QUIET_S * 1e6:
            return
    raise RuntimeError(f"the gateway still simulates or measures after {REST_S:g} s")


def kept_profiles(folder: Path | None) -> contextlib.AbstractContextManager[Path]:
    """Return the folder; without one a copy of those that are shipped, which goes when it is left."""
    return contextlib.nullcontext(folder.resolve()) if folder else shipped_profiles()
