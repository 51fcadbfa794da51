"""INFaaS (Romero et al., USENIX ATC 2021): more replicas, or a faster variant, whichever is cheaper.

Each second, of a variant that serves w rows a second with n replicas of throughput t: delta = w - 0.95 n t is
lacking. ceil(delta / t) more replicas, or ceil(delta / t') loads of the next faster variant where that is
cheaper by more than a half (in load times; beyond the most replicas a replica costs a thousand). After ten
rounds in a row in which n - 1 replicas would do, one goes; in which the slower, more accurate variant would
do, the upgrade is taken back first. Constants and formulas of its published code (`autoscaler.cc`:
`cpuHueristic`, `CPU_SCALE_DOWN_DELAY`, `InfaasScaler`), for CPUs; its other accelerators have their own.

t is the profile's throughput with full batches there: here what a replica of the largest measured number
carries of the most even arrivals, at which next to nothing is left for queueing. The slack of 0.95 counts on
the way down as well: there it does not, and between 0.95 (n - 1) t and (n - 1) t the count goes up and down
for ever. All variants load in one time here, so costs are counts of loads. A slice holds what it holds of a
model's variants at once; which of them answers is decided batch by batch.
"""

from collections.abc import Mapping
from math import ceil

from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import View, Wish

PERIOD_US = 1_000_000
SLACK = 0.95
ROUNDS = 10
CHEAPER = 1.5
BEYOND = 1000  # loads that a replica costs which cannot be had


class Infaas:
    """`target`: the share of the throughput that is made use of, 0.95 by default."""

    period_us = PERIOD_US

    __slots__ = ("_count", "_slack", "_variant", "_votes")

    def __init__(self, target: float | None = None) -> None:
        self._slack = SLACK if target is None else target
        self._count = 0
        self._variant = ""  # the fastest that is loaded
        self._votes = 0  # rounds in a row in which less would do

    def decide(self, view: View) -> Wish:
        """Return each second."""
        rate = (view.seen.offered - view.before.offered) * 1e6 / view.period_us
        ladder = find_ladder(view.capacities)
        self._count = self._count or view.ready + view.coming
        if self._variant not in ladder:
            self._variant = view.variant if view.variant in ladder else next(iter(ladder), "")
        if ladder:
            self._scale(rate, ladder, view)
        self._count = min(max(self._count, view.least), view.most)
        names, usable = [*ladder], self._slack * ladder.get(self._variant, 0.0)
        why = "what a replica carries is not known yet"
        if ladder:
            why = f"{rate:.0f} rows a second came; {self._variant} takes {usable:.0f} of them on a replica"
        return Wish(
            self._count,
            why,
            f"over {usable * self._count:.0f} rows a second",
            f"at most {usable * max(self._count - 1, 0):.0f} rows a second for {ROUNDS} s",
            variants=tuple(names[: names.index(self._variant) + 1]) if len(names) > 1 else (),
            pressure=rate / (usable * self._count) if usable and self._count else 0.0,
            figures={"rate": rate},
        )

    def _scale(self, rate: float, ladder: Mapping[str, float], view: View) -> None:
        """Scale for one round. `ladder`: the throughput of a replica by variant, ascending."""
        names, each, usable = [*ladder], ladder[self._variant], self._slack * ladder[self._variant]
        place = names.index(self._variant)
        lacking = rate - usable * self._count
        if lacking > 0:
            self._votes = 0
            more = ceil(lacking / each)
            beyond = BEYOND if self._count + more > view.most else 0
            faster = names[place + 1] if place + 1 < len(names) else ""
            if faster and more + beyond > CHEAPER * ceil(lacking / ladder[faster]):
                self._variant = faster
                more = max(ceil(rate / (self._slack * ladder[faster])) - self._count, 0)
            self._count += more
            return
        slower = names[place - 1] if place else ""
        downgrades = bool(slower) and rate <= self._slack * ladder[slower] * self._count
        if not downgrades and (not self._count or rate > usable * (self._count - 1)):
            self._votes = 0
            return
        self._votes += 1
        if self._votes > ROUNDS:
            self._votes = 0
            self._variant = slower if downgrades else self._variant
            self._count -= not downgrades


def find_ladder(capacities: Mapping[str, Capacity]) -> dict[str, float]:
    """Return the rows a second that a replica takes by variant, the most accurate, and slowest, first.
    Variants that are less accurate than another and no faster are left out."""
    ladder: dict[str, float] = {}
    for name, capacity in capacities.items():
        throughput = capacity.rates[0][-1] / capacity.counts[-1]
        if throughput > max(ladder.values(), default=0.0):
            ladder[name] = throughput
    return ladder
