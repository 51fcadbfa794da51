"""Who used how much of the machine in a run, where workers, gateway and client may share cores."""

import os
import time
from collections.abc import Mapping, Sequence

from loadtests.harness.gateway import Gateway
from loadtests.harness.processes import core_us, cpu_us
from loadtests.stand.testbed import OTHERS_MAX


class Usage:
    """From now on, of the cores that this process was started with: `parties` are the processes by name."""

    def __init__(self, parties: Mapping[str, Sequence[int]]) -> None:
        self._parties = parties
        self._cores = sorted(os.sched_getaffinity(0))
        self._since_s = time.monotonic()
        self._before = self._taken_us()
        self._all_before_us = self._all_us()

    def shares(self) -> dict[str, float]:
        """Return how many cores each party and `others` kept busy (2.0: two cores, all the time).

        The processes of a party have to be there still.
        """
        after, all_us = self._taken_us(), self._all_us()
        span_us = (time.monotonic() - self._since_s) * 1e6  # after the readings: a pause in them counts
        found = {name: (after[name] - self._before[name]) / span_us for name in self._parties}
        total = (all_us - self._all_before_us) / span_us
        return found | {"others": max(total - sum(found.values()), 0.0)}

    def _taken_us(self) -> dict[str, float]:
        return {name: sum(map(cpu_us, pids)) for name, pids in self._parties.items()}

    def _all_us(self) -> float:
        return sum(map(core_us, self._cores))


def parties(gateway: Gateway) -> dict[str, list[int]]:
    """Return the processes of a run against a gateway of ours."""
    return {"client": [os.getpid()], "gateway": [gateway.pid], "workers": gateway.workers()}


def intruders(shares: Mapping[str, float]) -> list[str]:
    """Return why a run with these shares must not be believed; empty where its processes were alone."""
    if shares["others"] <= OTHERS_MAX:
        return []
    return [f"others took {shares['others']:.0%} of a core, at most {OTHERS_MAX:.0%} is fair"]
