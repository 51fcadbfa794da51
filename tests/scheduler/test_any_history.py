"""Whatever happens in whatever order, every request ends once and no row is lost, doubled or misplaced.

Hypothesis writes histories of events; `witness.py` holds the promises. PENSTOCK_HISTORIES raises their
number (and draws other ones), for example `PENSTOCK_HISTORIES=20000 pytest tests/scheduler`.
"""

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from serving.profile.curve import Latency, Point, Profile
from serving.scheduler.requests import Request
from serving.scheduler.slices import Replica
from serving.specs import BatchingSpec, Limits
from serving.vocabulary import NEVER_US
from tests.builders import KIND
from tests.scheduler.values import VARIANTS, allow, served_model
from tests.scheduler.witness import Witness

HISTORIES = int(os.environ.get("PENSTOCK_HISTORIES", "0"))
MODELS = ("m", "n", "o")
SLICES = ("s", "t", "u")
SIZES = (4, 16)

LANES = [("", 4, ("a", "b"))] * 3 + [
    ("x", 4, ("a", "b")),
    ("", 16, ("a", "b")),
    ("", 4, ("a",)),
    ("", 4, ("b",)),
    ("", 16, ("b", "a")),
]

pauses_us = st.integers(0, 4)
picks = st.integers(0, 99)
models = st.sampled_from((*MODELS, "m"))
slices = st.sampled_from(SLICES)
variants = st.sampled_from(VARIANTS)
sorts = st.tuples(
    st.sampled_from([4, 8, 2, 4, 8, 1]),  # the largest batch
    st.sampled_from([30, 9, 20, 30, 4, 1]),  # the SLO in us
    st.sampled_from([None, 3, None, 2, None, 6, 1]),  # the static policy's size
    st.just(0) | st.integers(1, 9),  # and its delay in us
)
steps_us = st.lists(st.sampled_from([0.0, 0.4, 1.0, 2.0, 5.0]), min_size=4, max_size=4)
latencies_us = st.tuples(steps_us, steps_us)


class Call(NamedTuple):
    """What a client sends, with the pause before it."""

    model: str
    rows: int
    lane: tuple[str, int, tuple[str, ...]]  # shape, size, the variants it allows
    slack_us: int
    left_us: int | None  # what the client gives it
    pause_us: int


calls = st.builds(
    Call,
    model=models,
    rows=st.sampled_from([1, 1, 1, 2, 1, 2, 3, 12]),
    lane=st.sampled_from(LANES),
    slack_us=st.integers(0, 25),
    left_us=st.none() | st.integers(0, 12),
    pause_us=st.just(0) | pauses_us,
)


class History(RuleBasedStateMachine):
    """Time passes before each event: often none, sometimes past what is due."""

    witness: Witness

    @initialize(
        sorts=st.tuples(sorts, sorts, sorts),
        bounds=st.tuples(st.integers(8, 40), st.integers(3, 10), st.integers(10, 60)),
        up=st.lists(st.tuples(slices, models, variants), min_size=2, max_size=6),
    )
    def begin(
        self,
        sorts: Sequence[tuple[int, int, int | None, int]],
        bounds: tuple[int, int, int],
        up: list[tuple[str, str, str]],
    ) -> None:
        models = [
            served_model(name, batch_max, slo_us, BatchingSpec("static", size, delay_us))
            for name, (batch_max, slo_us, size, delay_us) in zip(MODELS, sorts, strict=True)
        ]
        queue_rows, queue_requests, stall_us = bounds
        limits = Limits(queue_rows=queue_rows, queue_requests=queue_requests, stall_us=stall_us)
        self.now_us = 100
        self.count = 0
        self.reported: list[int] = []  # batches that are no longer in flight
        self.witness = Witness(models, limits)
        for slice_name, model, variant in [("s", name, "a") for name in MODELS] + up:
            self.replica_up(slice_name, model, variant, ([1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 2.0, 3.0]))

    # requests

    @rule(
        calls=st.lists(calls, min_size=1, max_size=5),
        alike=st.sampled_from([True, True, False]),
        then_wake=st.sampled_from([True, True, False]),
    )
    def arrive(self, calls: list[Call], alike: bool, then_wake: bool) -> None:
        """Several calls of one instant or nearly; alike ones may share a batch."""
        for call in calls:
            model, most, (shape, size, variants), slack_us, left_us, pause_us = call
            if alike:
                model, (shape, size, variants) = calls[0].model, calls[0].lane
            self.now_us += pause_us
            self.count += 1
            rows = min(most, 3 * self.witness.models[model].spec.batch_max)
            expires_us = NEVER_US if left_us is None else self.now_us + left_us
            request = Request(self.count, model, rows, self.now_us, min(self.now_us + slack_us, expires_us))
            self.witness.arrive(allow(request, variants, shape, size, expires_us), self.now_us)
        if then_wake:
            self.witness.wake(self.now_us)

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        known = [*self.witness.open, *self.witness.open, self.count + 1, 1]  # open, unknown or ended
        self.witness.cancel(known[pick % len(known)], self.now_us)

    @precondition(lambda self: self.count > 40)
    @rule()
    def drain(self) -> None:
        self.witness.drain()

    # time

    @rule(pause_us=pauses_us | pauses_us | st.integers(5, 60))
    def wake(self, pause_us: int) -> None:
        """Early, late or for nothing."""
        self.now_us += pause_us
        self.witness.wake(self.now_us)

    @rule(early_us=st.integers(0, 1))
    def wake_on_time(self, early_us: int) -> None:
        due_us = self.witness.scheduler.wake_us
        if due_us != NEVER_US:
            self.now_us = max(self.now_us, due_us - early_us)
            self.witness.wake(self.now_us)

    # batches

    def running(self) -> list[int]:
        return [batch_id for site in self.witness.sites.values() for batch_id in site.running]

    @precondition(lambda self: self.running())
    @rule(reports=st.lists(picks, min_size=1, max_size=4), pause_us=pauses_us)
    def batches_done(self, reports: list[int], pause_us: int) -> None:
        self.now_us += pause_us
        for pick in reports:
            if running := self.running():
                self.reported.append(running[pick % len(running)])
                self.witness.batch_done(self.reported[-1], self.now_us)

    @precondition(lambda self: self.running())
    @rule(pick=picks, pause_us=pauses_us)
    def batch_failed(self, pick: int, pause_us: int) -> None:
        self.now_us += pause_us
        self.reported.append(self.running()[pick % len(self.running())])
        self.witness.batch_failed(self.reported[-1], self.now_us)

    @precondition(lambda self: self.reported)
    @rule(pick=picks)
    def report_again(self, pick: int) -> None:
        known = [*self.reported, 10**9]
        self.witness.unknown_batch(known[pick % len(known)], self.now_us)

    # slices

    @rule(slice_name=slices, model=models, variant=variants, latency_us=latencies_us)
    def replica_up(
        self, slice_name: str, model: str, variant: str, latency_us: tuple[list[float], list[float]]
    ) -> None:
        """New, again, or with another latency."""
        self.count += 1
        points = tuple(
            Point(size, rows, max(sum(steps[: power + 1]), 0.1), 99.0, 1)
            for size, steps in zip(SIZES, latency_us, strict=True)
            for power, rows in enumerate((1, 2, 4, 8))
        )
        owner = self.witness.models[model]
        latency = Latency(Profile(model, variant, KIND, points))
        self.witness.replica_up(slice_name, model, Replica(self.count, variant, latency, owner), self.now_us)

    @rule(slice_name=slices, model=models, variant=variants, pause_us=pauses_us)
    def replica_down(self, slice_name: str, model: str, variant: str, pause_us: int) -> None:
        self.now_us += pause_us
        self.witness.replica_down(slice_name, model, variant, self.now_us)

    @rule(slice_name=slices, pause_us=pauses_us, back=st.booleans())
    def slice_down(self, slice_name: str, pause_us: int, back: bool) -> None:
        """The worker is gone; sometimes another takes its place at once, and has loaded all it had."""
        self.now_us += pause_us
        site = self.witness.sites.get(slice_name)
        self.reported += site.running if site else ()
        self.witness.slice_down(slice_name, self.now_us)
        for (model, _), replica in site.replicas.items() if site and back else ():
            self.witness.replica_up(slice_name, model, replica, self.now_us)

    @rule(slice_name=slices, pause_us=pauses_us, again=st.booleans())
    def hold_or_release(self, slice_name: str, pause_us: int, again: bool) -> None:
        self.now_us += pause_us
        site = self.witness.sites.get(slice_name)
        if site is None or site.holds == 0 or (again and site.holds == 1):
            self.witness.hold(slice_name, self.now_us)
        else:
            self.witness.release(slice_name, self.now_us)

    @rule(slice_name=slices)
    def release(self, slice_name: str) -> None:
        self.witness.release(slice_name, self.now_us)

    def teardown(self) -> None:
        """Whatever is open can be brought to its end by reports and wakes alone."""
        if sys.exc_info()[0] is not None or not hasattr(self, "witness"):
            return  # a promise was broken before: that is what to report
        witness = self.witness
        for name, site in witness.sites.items():
            for _ in range(site.holds):
                witness.release(name, self.now_us)
        for _ in range(20 * (len(witness.open) + 1)):
            witness.wake(self.now_us)
            for batch_id in self.running():
                witness.batch_done(batch_id, self.now_us)
            if not witness.open and not self.running():
                break
            self.now_us = max(self.now_us, min(witness.scheduler.wake_us, self.now_us + 100))
        assert not witness.open
        assert witness.scheduler.open_requests == 0
        for name in witness.models:
            assert witness.scheduler.queue_rows(name) == 0
            assert not list(witness.scheduler._models[name].queue.lanes)


History.TestCase.settings = settings(
    max_examples=HISTORIES or 250,
    stateful_step_count=50,
    derandomize=not HISTORIES,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestAnyHistory = pytest.mark.slow(pytest.mark.timeout(0)(History.TestCase))
