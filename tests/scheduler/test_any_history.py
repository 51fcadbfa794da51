"""Whatever happens in whatever order, every request ends once and no row is lost, doubled or misplaced.

Hypothesis writes histories of events (`draws.py`); `witness.py` and `verdicts.py` hold the promises,
`rules.py` what they rest on.
PENSTOCK_SEEDS raises their number and draws others: `PENSTOCK_SEEDS=800 pytest tests/scheduler` plays 20,000.
"""

import sys
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Request, wants_of
from serving.values.specs import Limits
from serving.values.vocabulary import NEVER_US
from tests.builders import KIND
from tests.scheduler.draws import (
    AIMD,
    GRAINS_US,
    MODELS,
    SIZES,
    SLO,
    STATIC,
    TENANTS,
    Call,
    calls,
    floors,
    kinds,
    knobs,
    latencies,
    models,
    pauses,
    picks,
    policies,
    slices,
    sorts,
    variants,
)
from tests.scheduler.values import RUNGS, allow, served_model
from tests.scheduler.witness import Witness
from tests.seeds import drawn


class History(RuleBasedStateMachine):
    """Time passes before each event: often none, sometimes past what is due."""

    witness: Witness

    @initialize(
        grain_us=st.sampled_from(GRAINS_US),
        policies=policies,
        sorts=st.tuples(sorts, sorts, sorts),
        bounds=st.tuples(st.integers(8, 60), st.integers(3, 20), st.integers(10, 60)),
        up=st.lists(st.tuples(slices, models, variants), min_size=2, max_size=6),
    )
    def begin(
        self,
        grain_us: int,
        policies: Sequence[tuple[str, str]],
        sorts: Sequence[tuple[int, int, int | None, int]],
        bounds: tuple[int, int, int],
        up: list[tuple[str, str, str]],
    ) -> None:
        self.grain_us = grain_us
        models = [
            served_model(name, batch_max, slo * grain_us, knobs(kind, size, delay * grain_us, grain_us // 2))
            for name, kind, (batch_max, slo, size, delay) in zip(MODELS, policies, sorts, strict=True)
        ]
        limits = Limits(queue_rows=bounds[0], queue_requests=bounds[1], stall_us=bounds[2] * grain_us)
        self.now_us = 100
        self.count = 0
        self.reported: list[int] = []  # batches that are no longer in flight
        self.witness = Witness(models, limits, TENANTS)
        for slice_name, model, variant in [("s", name, "a") for name in MODELS] + up:
            self.replica_up(slice_name, model, variant, ([1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 2.0, 3.0]))

    def pass_time(self, pause: int) -> None:
        self.now_us += pause * self.grain_us

    # requests

    @rule(
        calls=st.lists(calls, min_size=1, max_size=5),
        alike=st.sampled_from([True, True, False]),
        then_wake=st.sampled_from([True, True, False]),
    )
    def arrive(self, calls: list[Call], alike: bool, then_wake: bool) -> None:
        """Several calls of one instant or nearly; alike ones may share a batch."""
        for call in calls:
            first = calls[0] if alike else call
            self.pass_time(call.pause)
            like = call._replace(model=first.model, lane=first.lane, optimize=first.optimize)
            self.send(like._replace(declared=first.declared))
        if then_wake:
            self.witness.wake(self.now_us)

    @rule(call=calls, slacks=st.lists(st.integers(1, 25), min_size=2, max_size=12), lag=pauses, floors=floors)
    def rush(self, call: Call, slacks: list[int], lag: int, floors: list[tuple[str, ...]]) -> None:
        """Calls of one instant that are alike but for their floors, which the driver comes to `lag` later."""
        for n, slack in enumerate(slacks):
            self.send(call._replace(slack=slack, left=None, lane=(*call.lane[:2], floors[n % len(floors)])))
        self.pass_time(lag)
        self.witness.wake(self.now_us)

    def send(self, call: Call) -> None:
        self.count += 1
        rows = min(call.rows, 3 * self.witness.models[call.model].spec.batch_max)
        expires_us = NEVER_US if call.left is None else self.now_us + call.left * self.grain_us
        due_us = min(self.now_us + call.slack * self.grain_us, expires_us)
        request = Request(self.count, call.model, rows, self.now_us, due_us)
        request.tenant = call.tenant
        shape, bucket, variants = call.lane
        allow(request, variants, shape, bucket, expires_us, bucket * call.part // 4)
        request.optimize = call.optimize
        request.declared_us = call.declared * self.grain_us
        request.kin = (shape, bucket, request.declared_us)
        request.lane_key = (*request.kin, wants_of(request))
        self.witness.arrive(request, self.now_us)

    @precondition(lambda self: self.count > 10)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        known = [*self.witness.open, *self.witness.open, self.count + 1, 1]  # open, unknown or ended
        self.witness.cancel(known[pick % len(known)], self.now_us)

    @precondition(lambda self: self.witness.open)
    @rule(pick=picks, slack=st.integers(-2, 12), then_wake=st.booleans())
    def tighten(self, pick: int, slack: int, then_wake: bool) -> None:
        """Others ask the same, sometimes in vain."""
        known = [*self.witness.open, self.count + 1]
        self.witness.tighten(known[pick % len(known)], self.now_us + slack * self.grain_us, self.now_us)
        if then_wake:
            self.witness.wake(self.now_us)

    @precondition(lambda self: self.witness.open)
    @rule(pick=picks, slack=st.integers(0, 25), left=st.none() | st.integers(0, 25),
          tenant=st.sampled_from([each.name for each in TENANTS]))  # fmt: skip
    def pass_on(self, pick: int, slack: int, left: int | None, tenant: str) -> None:
        """The client leaves, another waits for the same; its own deadline may be seen to elsewhere."""
        request_id = list(self.witness.open)[pick % len(self.witness.open)]
        request = self.witness.open[request_id].request
        due_us = self.now_us + slack * self.grain_us
        successor = Request(0, request.model, request.rows, self.now_us, due_us)
        successor.tenant = tenant
        successor.expires_us = NEVER_US if left is None else due_us + left * self.grain_us
        self.witness.expire(request_id, successor.expires_us, self.now_us)
        self.witness.pass_on(request_id, successor, self.now_us)

    @precondition(lambda self: self.witness.open)
    @rule(pick=picks, left=st.none() | st.integers(-2, 12), then_wake=st.booleans())
    def expire(self, pick: int, left: int | None, then_wake: bool) -> None:
        """Somebody else sees to its client's deadline, or its last client's has passed."""
        request_id = list(self.witness.open)[pick % len(self.witness.open)]
        expires_us = NEVER_US if left is None else self.now_us + left * self.grain_us
        self.witness.expire(request_id, expires_us, self.now_us)
        if then_wake:
            self.witness.wake(self.now_us)

    @precondition(lambda self: self.count > 150)
    @rule()
    def drain(self) -> None:
        self.witness.drain()

    # models

    @rule(
        model=models,
        variant=variants,
        load=st.sampled_from([0, 2, 5, 9, 5, 20]) | st.none(),
        down=st.sampled_from([True, True, False]),
        pause=pauses,
    )
    def cold(self, model: str, variant: str, load: int | None, down: bool, pause: int) -> None:
        """It can be loaded, or no more; often as it is evicted from every slice that holds it."""
        self.pass_time(pause)
        load_us = NEVER_US if load is None else load * self.grain_us
        self.witness.cold(model, variant, load_us, self.now_us)
        for name in list(self.witness.sites) if down else ():
            self.witness.replica_down(name, model, variant, self.now_us)

    @rule(
        calls=st.lists(calls, min_size=1, max_size=4),
        load=st.integers(0, 9),
        then=st.lists(st.sampled_from(["wait", "decline", "expect", "load", "load"]), max_size=3),
        pause=pauses,
    )
    def start_cold(self, calls: list[Call], load: int, then: list[str], pause: int) -> None:
        """A model that is nowhere is asked for; sometimes it is loaded, sometimes that is put off."""
        model = calls[0].model
        for variant in RUNGS:
            self.cold(model, variant, load, True, 0)
        for call in calls:
            self.send(call._replace(model=model, slack=2 * call.slack + load))
        for what in then:
            self.pass_time(pause)
            if what == "expect":
                self.witness.expect(model, "a", self.now_us + load * self.grain_us, self.now_us)
            elif what == "decline":
                self.witness.cold(model, "a", load * self.grain_us, self.now_us)
            elif what == "load":
                self.replica_up("s", model, "a", ([2.0, 2.0, 4.0, 8.0], [2.0, 2.0, 9.0, 9.0]))
            self.witness.wake(self.now_us)

    @rule(model=models, variant=variants, ready=st.integers(-2, 20), pause=pauses, up=st.booleans())
    def expect(self, model: str, variant: str, ready: int, pause: int, up: bool) -> None:
        """It is being loaded; sometimes it is there soon."""
        self.pass_time(pause)
        self.witness.expect(model, variant, self.now_us + ready * self.grain_us, self.now_us)
        if up:
            self.pass_time(pause)
            self.replica_up("s", model, variant, ([1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 2.0, 3.0]))

    @rule(model=models, kind=st.sampled_from([SLO, STATIC, AIMD]) | kinds, sort=sorts, routed=st.booleans())
    def serve(
        self, model: str, kind: tuple[str, str], sort: tuple[int, int, int | None, int], routed: bool
    ) -> None:
        """Otherwise than before; then its replicas hear of it."""
        batch_max, slo, size, delay = sort
        batching = knobs(kind, size, delay * self.grain_us, self.grain_us // 2)
        self.witness.serve(served_model(model, batch_max, slo * self.grain_us, batching), self.now_us)
        self.route_again(model)

    def route_again(self, model: str) -> None:
        owner = self.witness.models[model]
        for name, site in self.witness.sites.items():
            for (other, _), replica in list(site.replicas.items()):
                if other == model:
                    again = Replica(replica.id, replica.variant, replica.profiled, owner)
                    self.witness.replica_up(name, model, again, self.now_us)
        self.witness.largest[model] = owner.spec.batch_max

    @rule(model=models, gone=st.booleans(), again=st.booleans(), pause=pauses)
    def retire(self, model: str, gone: bool, again: bool, pause: int) -> None:
        """And forget it where nothing of it is left: what runs comes back in vain. Then serve it again."""
        served = self.witness.models[model]
        self.witness.retire(model, self.now_us)
        self.pass_time(pause)
        for name in list(self.witness.sites) if gone else ():
            for variant in RUNGS:
                self.witness.replica_down(name, model, variant, self.now_us)
        forgotten = self.witness.forget(model)
        for site in self.witness.sites.values() if forgotten and again else ():
            while site.running and site.runs.model == model:
                self.report_done(site.runs.id)
            self.witness.heard_us.pop(model, None)
        if forgotten or again:
            self.witness.serve(served, self.now_us)
            self.route_again(model)

    # time

    @rule(pause=pauses | pauses | st.integers(5, 60))
    def wake(self, pause: int) -> None:
        """Early, late or for nothing."""
        self.pass_time(pause)
        self.witness.wake(self.now_us)

    @precondition(lambda self: self.witness.open or self.running())
    @rule(silence_us=st.sampled_from([9_999, 10_100, 1_000_000]))
    def wake_after_a_silence(self, silence_us: int) -> None:
        """Long enough to doubt a slice, or what is known of a model."""
        self.now_us += silence_us
        self.witness.wake(self.now_us)

    @rule(early_us=st.integers(0, 1))
    def wake_on_time(self, early_us: int) -> None:
        due_us = self.witness.scheduler.wake_us
        if due_us != NEVER_US:
            self.now_us = max(self.now_us, due_us - early_us)
            self.witness.wake(self.now_us)

    # batches

    def running(self) -> list[int]:
        """Of each slice the one that runs: a worker computes what was sent ahead after it."""
        return [site.runs.id for site in self.witness.sites.values() if site.running]

    @precondition(lambda self: self.running())
    @rule(reports=st.lists(picks, min_size=1, max_size=4), pause=pauses, quick=st.booleans())
    def batches_done(self, reports: list[int], pause: int, quick: bool) -> None:
        """`quick`: the worker says that it took next to nothing; what else it took was the way."""
        self.pass_time(pause)
        for pick in reports:
            if running := self.running():
                self.report_done(running[pick % len(running)], quick)

    def report_done(self, batch_id: int, quick: bool = False) -> None:
        (site,) = (site for site in self.witness.sites.values() if batch_id in site.running)
        self.reported.append(batch_id)
        compute_us = 1 if quick else max(self.now_us - site.since_us, 1)
        self.witness.batch_done(batch_id, compute_us, self.now_us)

    @precondition(lambda self: self.running())
    @rule(reports=st.lists(picks, min_size=1, max_size=4), pause=pauses)
    def batches_failed(self, reports: list[int], pause: int) -> None:
        self.pass_time(pause)
        for pick in reports:
            if running := self.running():
                self.reported.append(running[pick % len(running)])
                self.witness.batch_failed(self.reported[-1], self.now_us)

    @precondition(lambda self: self.reported)
    @rule(pick=picks)
    def report_again(self, pick: int) -> None:
        known = [*self.reported, 10**9]
        self.witness.unknown_batch(known[pick % len(known)], self.now_us)

    # slices

    def replica_up(
        self, slice_name: str, model: str, variant: str, latency: tuple[list[float], list[float]]
    ) -> None:
        points = tuple(
            Point(size, rows, max(sum(steps[: power + 1]), 0.1) * self.grain_us, 99.0, 1)
            for size, steps in zip(SIZES, latency, strict=True)
            for power, rows in enumerate((1, 2, 4, 8))
        )
        self.count += 1
        owner = self.witness.models[model]
        site = self.witness.sites.get(slice_name)
        before = site.replicas.get((model, variant)) if site else None
        known = before.id if before is not None and self.count % 4 else self.count  # or loaded anew
        replica = Replica(known, variant, Latency(Profile(model, variant, KIND, points)), owner)
        for _ in range(2 * (self.count % 2)):  # every other one is known to be a long way off
            replica.residuals.add(1.0, 1, 1 + self.grain_us)
        self.witness.replica_up(slice_name, model, replica, self.now_us)

    @rule(slice_name=slices, model=models, variant=variants, latency=st.none() | latencies, pause=pauses)
    def change_replica(
        self,
        slice_name: str,
        model: str,
        variant: str,
        latency: tuple[list[float], list[float]] | None,
        pause: int,
    ) -> None:
        """Gone, new, again, or with another latency."""
        self.pass_time(pause)
        if latency is None:
            self.witness.replica_down(slice_name, model, variant, self.now_us)
        else:
            self.replica_up(slice_name, model, variant, latency)

    @precondition(lambda self: self.running())
    @rule(
        slice_name=slices,
        pause=pauses,
        back=st.sampled_from([True, True, False]),
        blamed=st.sampled_from([False, False, True]),
    )
    def slice_down(self, slice_name: str, pause: int, back: bool, blamed: bool) -> None:
        """The worker is gone, sometimes by what it computed; sometimes another takes its place at once, and
        has loaded all it had."""
        self.pass_time(pause)
        site = self.witness.sites.get(slice_name)
        self.reported += site.running if site else ()
        self.witness.slice_down(slice_name, self.now_us, blamed)
        for model, variant in site.replicas if site and back else ():
            self.replica_up(slice_name, model, variant, ([1.0, 0.4, 2.0, 2.0], [2.0, 1.0, 2.0, 3.0]))

    @rule(slice_name=slices, pause=pauses, contrary=st.sampled_from([False, False, True]))
    def hold_or_release(self, slice_name: str, pause: int, contrary: bool) -> None:
        """In turns; or twice, or a release without a hold."""
        self.pass_time(pause)
        site = self.witness.sites.get(slice_name)
        if (site is None or site.holds == 0) != contrary:
            self.witness.hold(slice_name, self.now_us)
        else:
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
                self.report_done(batch_id)
            if not witness.open and not self.running():
                break
            self.now_us = max(self.now_us, min(witness.scheduler.wake_us, self.now_us + 100 * self.grain_us))
        assert not witness.open
        assert witness.scheduler.open_requests == 0
        for name in witness.models:
            assert witness.scheduler.queue_rows(name) == 0
            assert not list(witness.scheduler._models[name].queue.lanes)


History.TestCase.settings = settings(
    max_examples=drawn(250),
    stateful_step_count=50,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestAnyHistory = pytest.mark.slow(pytest.mark.timeout(0)(History.TestCase))
