"""The live scheduler in virtual time: a heap of events in integer microseconds, and no clock.

The order of events within an instant is fixed: arrivals, then batches that are back, then faults, then what
the scheduler asked to be woken for. So a run follows from its arrivals, its device and its faults alone.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from mypy_extensions import mypyc_attr

from serving.control.state.timeouts import backoff_us, stumbles_after
from serving.policy.estimates.latency import ENOUGH
from serving.policy.limits.rate_limits import RateLimits
from serving.scheduler.commands import Answer, Command, ReplaceWorker, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Request
from serving.simulation.devices.device import BatchDevice, BatchTimes
from serving.simulation.devices.faults import Fault
from serving.simulation.devices.site import Site, SiteReplica, chooses
from serving.simulation.tally import Parts, Tally
from serving.simulation.traffic.arrivals import Arrival
from serving.values.objectives import Objective
from serving.values.specs import ServedModel
from serving.values.vocabulary import NEVER_US, RATE_LIMITED, UNKNOWN_MODEL

ENDLESS = 10_000  # events at one instant: the scheduler asks to be woken again and again


class _Promises:
    """What a model's requests are promised. `chooses`: of some of them several variants may answer."""

    __slots__ = ("by_tier", "chooses", "name", "own", "served")

    def __init__(self, model: ServedModel) -> None:
        self.name = model.name
        self.served = True
        self.own: Objective = model.own
        self.by_tier: dict[str, Objective] = model.by_tier
        self.chooses = chooses(model)


@mypyc_attr(allow_interpreted_subclasses=True)
class Simulation:
    """One run of a site. `build`, `begin`, `take`, `answered`, `ran`, `told`, `advance`, `crash`, `stuck` and
    `stall` may be overridden."""

    def __init__(self, site: Site, device: BatchDevice, faults: Sequence[Fault] = ()) -> None:
        self.site = site
        self.device = device
        self.tally = Tally()
        self.scheduler = self.build()
        self._models = [_Promises(model) for model in site.served]
        self._choosing = {each.name for each in self._models if each.chooses}
        self._limits = RateLimits(site.tenants)
        self._tiers = {each.name: each.tier for each in site.tenants if each.tier}
        self._parts: dict[
            int, list[tuple[str, int]]
        ] = {}  # by request: which variant computed what, if several batches did
        self._finishes: list[tuple[int, int, int]] = []  # heap of (instant, batch id, compute_us)
        self._happenings: list[tuple[int, int, Fault | SiteReplica]] = [
            (fault.at_us, count, fault) for count, fault in enumerate(faults)
        ]
        heapify(self._happenings)
        self._running: dict[str, dict[int, tuple[RunBatch, int]]] = {}  # slice -> batch id -> it, its end
        self._computed_us: dict[str, int] = {}  # by slice: when the worker is done with the latest batch
        self._stalled_us: dict[str, int] = {}  # by slice: until when its worker starts nothing
        self._started_us: dict[str, int] = {}  # by slice: when its worker could load
        self._stumbles: dict[str, int] = {}  # by slice: deaths that count toward the back-off
        self._now_us = self._repeats = self._replicas = self._count = 0
        self.begin()

    # what may be overridden

    def build(self) -> Scheduler:
        """Return the scheduler that is run."""
        return Scheduler(self.site.served, self.site.limits, {each.name: each for each in self.site.tenants})

    def begin(self) -> None:
        """Begin with what is there before the first arrival: every resident."""
        for resident in self.site.residents:
            self._bring_up(resident, 0)

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        """Return how long a batch takes that starts beside `running` others."""
        return self.device.take(batch, start_us, running)

    def answered(self, answer: Answer, now_us: int) -> None:
        """Do nothing; a subclass may note that a request ended."""

    def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
        """Do nothing; a subclass may note that a batch starts, and when it will be back (if nothing goes
        wrong)."""

    def told(self, command: Command, now_us: int) -> None:
        """Do nothing; a subclass may note a command that concerns neither a request nor a batch."""

    def parts_of(self, answer: Answer) -> Parts:
        """Return which variants computed how many rows of a request that was completed."""
        if answer.batch is None:
            return ()
        whole = ((answer.batch.variant, answer.request.rows),)
        return self._parts.get(answer.request.id, whole) if self._parts else whole

    # the run

    def play(self, arrivals: Iterable[Arrival]) -> Tally:
        """Return all arrivals, and what follows until everything is answered."""
        for arrival in arrivals:
            self.advance(arrival.at_us)
            self.arrive(arrival)
        self.advance(NEVER_US)
        return self.tally

    def arrive(self, arrival: Arrival) -> None:
        """Submit a request to the scheduler at its instant."""
        at_us, number, rows, slack_us, tenant, size, variant, expires, bucket, tier = arrival
        promises = self._models[number]
        self._count += 1
        if not tier and self._tiers:
            tier = self._tiers.get(tenant, "")
        objective = promises.by_tier.get(tier, promises.own) if tier else promises.own
        deadline_us = at_us + (objective.due_us(rows) if slack_us is None else slack_us)
        request = Request(self._count, promises.name, rows, at_us, deadline_us)
        request.parts = objective.parts(rows)
        request.variants = objective.variants
        request.tenant = tenant
        if size or bucket or variant or tier or promises.chooses:
            request.size = size
            request.bucket = bucket or size
            request.tier = objective.tier
            request.kin = (request.bucket,)
            if variant:
                request.variants = (variant,)
                request.lane_key = (variant, request.bucket)
            else:
                request.optimize, request.cost_max = objective.optimize, objective.cost_max
                request.lane_key = (objective.wants, request.bucket)
        if expires:
            request.expires_us = deadline_us
        if at_us >= self.site.settle_us:
            self.tally.offered += 1
            self.tally.offered_rows += rows
        rate = self._limits.by_tenant.get(tenant) if self._limits.by_tenant else None
        if rate is not None and rate.enter(rows, at_us) is not None:
            self._carry_out((Answer(request, RATE_LIMITED, None, "over its rate"),), at_us)
            return
        if not promises.served:
            gone = f"{promises.name} is not served any more"
            self._carry_out((Answer(request, UNKNOWN_MODEL, None, gone),), at_us)
            return
        commands = self.scheduler.arrive(request, at_us)
        if commands:
            self._carry_out(commands, at_us)

    def promise(self, model: ServedModel) -> None:
        """Promise this to requests for a model from now on."""
        for number, each in enumerate(self._models):
            if each.name == model.name:
                self._models[number] = _Promises(model)
                self._choosing.discard(model.name)
                if self._models[number].chooses:
                    self._choosing.add(model.name)

    def unserved(self, model: str) -> None:
        """Stop serving a model from now on."""
        for each in self._models:
            if each.name == model:
                each.served = False

    def advance(self, until_us: int) -> None:
        """Run the events before that instant; with NEVER_US, run until every request has ended."""
        while True:
            now_us = self.due_us
            if now_us >= until_us:
                return
            if until_us == NEVER_US and not self.scheduler.open_requests:
                return
            self._repeats = self._repeats + 1 if now_us <= self._now_us else 0
            self._now_us = now_us
            if self._repeats > ENDLESS:
                raise RuntimeError(f"{ENDLESS} events at {now_us} us: the scheduler does not get on")
            self.step(now_us)

    @property
    def due_us(self) -> int:
        """When the next thing happens that is no arrival."""
        finish_us = self._finishes[0][0] if self._finishes else NEVER_US
        fault_us = self._happenings[0][0] if self._happenings else NEVER_US
        return min(finish_us, fault_us, self.scheduler.wake_us)

    def step(self, now_us: int) -> None:
        """Carry out one thing that is due."""
        if self._finishes and self._finishes[0][0] <= now_us:
            self._finish(now_us)
        elif self._happenings and self._happenings[0][0] <= now_us:
            self._happen(heappop(self._happenings)[2], now_us)
        else:
            self._carry_out(self.scheduler.wake(now_us), now_us)

    def befall(self, fault: Fault) -> None:
        """Schedule a fault."""
        heappush(self._happenings, (fault.at_us, len(self._happenings), fault))

    def _carry_out(self, commands: Iterable[Command], now_us: int) -> None:
        for command in commands:
            if type(command) is RunBatch:
                self._run(command, now_us)
            elif type(command) is Answer:
                if self._limits.by_tenant:
                    self._leave(command)
                if command.request.arrived_us >= self.site.settle_us:
                    self.tally.add(command, now_us, self.parts_of(command))
                self.answered(command, now_us)
                if self._parts:
                    self._parts.pop(command.request.id, None)
            elif type(command) is ReplaceWorker:
                self.stuck(command.slice, command.reason, now_us)
            else:
                self.told(command, now_us)

    def _leave(self, answer: Answer) -> None:
        """Note for its tenant's limits that a request is answered."""
        rate = self._limits.by_tenant.get(answer.request.tenant)
        if rate is not None and answer.outcome is not RATE_LIMITED:
            rate.leave()

    def _run(self, batch: RunBatch, now_us: int) -> None:
        here = self._running.setdefault(batch.slice, {})
        others = sum(1 for name, running in self._running.items() if running and name != batch.slice)
        taken = self.take(batch, now_us, others + len(here) - batch.staged)
        way_us = (taken.elapsed_us - taken.compute_us) // 2  # there, and as long back
        start_us = max(now_us + way_us, self._stalled_us.get(batch.slice, 0))
        if batch.staged:  # the worker starts it when it has computed the one before it
            start_us = max(start_us, self._computed_us[batch.slice])
        computed_us = self._computed_us[batch.slice] = start_us + taken.compute_us
        end_us = computed_us + way_us
        here[batch.id] = (batch, end_us)
        heappush(self._finishes, (end_us, batch.id, taken.compute_us))
        if now_us >= self.site.settle_us:
            self.tally.batches += 1
            self.tally.rows += batch.rows
            self.tally.busy_us += taken.compute_us
            if batch.downgrade:
                self.tally.downgraded_rows[batch.downgrade] += batch.rows
        self.ran(batch, start_us, end_us)

    def _finish(self, now_us: int) -> None:
        _, batch_id, compute_us = heappop(self._finishes)
        for here in self._running.values():
            if batch_id in here:
                batch, end_us = here[batch_id]
                if end_us > now_us:  # it was held up in between
                    heappush(self._finishes, (end_us, batch_id, compute_us + end_us - now_us))
                    return
                del here[batch_id]
                if batch.model in self._choosing:
                    self._note_parts(batch)
                break
        self._carry_out(self.scheduler.batch_done(batch_id, compute_us, now_us), now_us)

    def _note_parts(self, batch: RunBatch) -> None:
        """Note the variants that computed the parts of requests in several parts."""
        for piece in batch.pieces:
            request = piece.request
            if piece.rows < request.rows:
                self._parts.setdefault(request.id, []).append((batch.variant, piece.rows))

    # faults

    def _happen(self, what: "Fault | SiteReplica", now_us: int) -> None:
        if isinstance(what, SiteReplica):
            self._bring_up(what, now_us)
        elif what.crash:
            self.crash(what.slice, "died", now_us)
        else:
            self.stall(what.slice, what.stall_us, now_us)

    def stall(self, slice_name: str, stall_us: int, now_us: int) -> None:
        """Stall a worker: it computes nothing for `stall_us`."""
        self._stalled_us[slice_name] = max(self._stalled_us.get(slice_name, 0), now_us) + stall_us
        here = self._running.get(slice_name, {})
        for batch_id, (batch, end_us) in here.items():
            here[batch_id] = (batch, end_us + stall_us)
        self._computed_us[slice_name] = self._computed_us.get(slice_name, 0) + stall_us

    def stuck(self, slice_name: str, reason: str, now_us: int) -> None:
        """Crash a worker that holds a batch for longer than any batch may take."""
        self.crash(slice_name, reason, now_us)

    def crash(self, slice_name: str, reason: str, now_us: int) -> None:
        """Crash a worker, with the variants that it was loading. As in `serving.control`, another worker
        starts after a back-off. Each variant is back after its load, one after the other. The scheduler first
        gets the times when they are back."""
        lived_us = now_us - self._started_us.get(slice_name, 0)
        kept = [each for each in self._happenings if not _is_load(each[2], slice_name)]
        loads = len(kept) < len(self._happenings)
        stumbles = stumbles_after(self._stumbles.get(slice_name, 0), lived_us, loads)
        self._stumbles[slice_name] = stumbles
        back_us = self._started_us[slice_name] = now_us + backoff_us(stumbles) + self.site.start_us
        self.forget(slice_name)
        self._happenings = kept
        heapify(self._happenings)
        for resident in self.site.residents:
            if resident.slice == slice_name:
                self._replicas += 1
                back_us += resident.load_us
                heappush(self._happenings, (back_us, -self._replicas, resident))
                expected = self.scheduler.expect(resident.model, resident.variant, back_us, now_us)
                self._carry_out(expected, now_us)
        self._carry_out(self.scheduler.slice_down(slice_name, reason, now_us), now_us)

    def forget(self, slice_name: str) -> None:
        """Forget what a lost worker was doing."""
        self._running.pop(slice_name, None)
        self._stalled_us.pop(slice_name, None)

    def rest_us(self, slice_name: str, now_us: int) -> int:
        """Return for how long (us) a worker still computes what it was sent."""
        here = self._running.get(slice_name)
        return max(0, max(end_us for _, end_us in here.values()) - now_us) if here else 0

    def _bring_up(self, resident: SiteReplica, now_us: int) -> None:
        self._replicas += 1
        served = next(model for model in self.site.served if model.name == resident.model)
        replica = Replica(self._replicas, resident.variant, resident.latency, served)
        replica.price = resident.price
        for _ in range(ENOUGH if self.site.learned and now_us == 0 else 0):
            replica.residuals.add(1.0, 1, 1)
        self._carry_out(self.scheduler.replica_up(resident.slice, resident.model, replica, now_us), now_us)


def _is_load(happening: Fault | SiteReplica, slice_name: str) -> bool:
    """Return whether it is the end of a load on that slice."""
    return isinstance(happening, SiteReplica) and happening.slice == slice_name
