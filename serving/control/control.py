"""The control plane's state machine: it brings the gateway to its desired state and keeps it there.

Each event has one method, which returns commands; `wake_us` says when `tick` is due. The controller starts
workers, and loads, measures and routes the desired replicas. It unloads other replicas once their
replacements get batches. It restarts what dies, with back-off, and rolls back a rollout that cannot succeed.
It refines profiles on idle slices, and measures stale ones again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from serving.control.commands import Command, EndWorker, FindCapacity, Replan, StopWorker, Unroute, Withdraw
from serving.control.isolating import Isolating, Isolation
from serving.control.measuring import Measuring
from serving.control.on_demand.on_demand import Busy, OnDemandLoading
from serving.control.reconciling import LOAD_TRIES, START_TRIES, Reconciling, excused, resolved
from serving.control.returning import Returning
from serving.control.rollouts.rollout import Progress, Rollout, RolloutState
from serving.control.scaling.scaling import Scaling
from serving.control.sparing import Sparing
from serving.control.state.desired import DesiredState
from serving.control.state.observed import KnownProfiles, ObservedState
from serving.control.state.replicas import ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.control.state.rules import DEFAULT_RULES, Rules
from serving.control.state.timeouts import HEALTHY_US, backoff_us, stumbles_after
from serving.control.trials import Trials
from serving.control.upkeep import Upkeep
from serving.policy.estimates.freshness import Freshness
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import LoadReport
from serving.policy.scaling.slow.task import ScalingPlan
from serving.values.objectives import ScalingSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import NEVER_US

STEPS_MAX = 1000  # states that one event may reach: usually each has something to do


class Control:
    """The controller; until `want` is called, it desires every variant of `models` on each of its slices.

    `kind_of` returns a slice's device kind.
    """

    def __init__(
        self,
        slices: Iterable[SliceSpec],
        models: Iterable[ServedModel],
        known: KnownProfiles,
        limits: Limits,
        kind_of: Callable[[SliceSpec], str],
        rules: Rules = DEFAULT_RULES,
    ) -> None:
        first = DesiredState.of(slices, models)
        self._limits = limits
        self._observed = ObservedState(first.models, known, limits, kind_of)
        self._measuring = Measuring(self._observed, rules.remeasure, rules.refine)
        self._upkeep = Upkeep(self._observed, self._measuring, limits)
        self._trials = Trials(self._observed)
        self._reconciling = Reconciling(self._observed, self._trials.waits_for)
        self._residing = OnDemandLoading(self._observed)
        self._isolating = Isolating()
        self._sparing = Sparing(self._observed.slices)
        self.scaling = Scaling(self._observed, rules, kind_of)
        self._returning = Returning(self._observed, self.scaling.scales)
        self._rollout = Rollout(first)
        self._replan = ""  # why to ask for another plan once a rollback is done
        self._stopping = False
        self.slices: dict[str, SliceRecord] = self._observed.slices
        self.wake_us = NEVER_US
        self._reconciling.expect(self._isolating.divided(first, first))

    # what the driver may ask

    @property
    def desired(self) -> DesiredState:
        """The desired state in the end."""
        return self._rollout.target

    @property
    def expected(self) -> DesiredState:
        """The desired state in the end as far as the present load needs it, by worker process."""
        return self._expected(self._rollout.target)

    @property
    def measured_slices(self) -> Collection[str]:
        """The slices whose idle time counts: rehearsed ones are never measured."""
        return self._observed.measured

    def isolation(self, model: ServedModel, now_us: int) -> Isolation:
        """Return whether a model has own processes, and how many processes have died busy with it."""
        return self._isolating.standing(model, self._rollout.target, now_us)

    @property
    def movement(self) -> RolloutState:
        """Whether the desired state is reached; `progress` also says what is missing."""
        return self._rollout.movement

    @property
    def progress(self) -> Progress:
        """How far the desired state is reached."""
        rollout = self._rollout
        differences = list(self._reconciling.differences(self._expected(rollout.current)))
        hopeless = tuple(each.sentence for each in differences if each.hopeless)
        waiting = tuple(each.sentence for each in differences if not each.hopeless)
        return Progress(rollout.movement, *rollout.step, (*rollout.reasons, *hopeless), waiting)

    @property
    def given_up(self) -> tuple[str, ...]:
        """Why the last rollout was given up; () if it was not."""
        return self._rollout.reasons

    def know(self, known: KnownProfiles) -> None:
        """Add stored profiles, for replicas of later desired states."""
        self._observed.known.update(known)

    # the desired state

    def start(self, now_us: int) -> Sequence[Command]:
        """Start every slice's worker."""
        return self._then(now_us, [])

    def stop(self) -> None:
        """Restart, load and measure nothing from now on."""
        self._stopping = True
        self.wake_us = NEVER_US

    def want(self, desired: DesiredState, now_us: int, by: Sequence[DesiredState] = ()) -> Sequence[Command]:
        """Make `desired` the desired state. `by`: the states to reach before it, in order.

        Without `by`, all that is new is made before anything is removed.
        """
        *between, last = resolved([*by, desired], self._rollout.passed, self.slices)
        self._rollout.set(last, between)
        self._replan = ""
        return self._then(now_us, self._refuse_lost(last))

    def roll_back(self, now_us: int, reason: str = "an operator rolled it back") -> Sequence[Command]:
        """Give up the present rollout, and return to the desired state before it."""
        self._rollout.roll_back(reason)
        return self._then(now_us, [])

    # events of devices and workers

    def device_leaving(self, domain: str, reason: str, now_us: int) -> Sequence[Command]:
        """Let scaled models leave a device, because it will be lost soon."""
        self.scaling.cordon.leaving[domain] = reason
        self.scaling.changed()
        return self._then(now_us, [])

    def device_lost(self, domain: str, reason: str, now_us: int) -> Sequence[Command]:
        """Remove a device with all its slices; none can start there until the device is back.

        `domain`: a device, or whatever else slices are lost with (`SliceSpec.domain`).
        """
        self._observed.lost[domain] = reason
        self._observed.touched.update(self.slices)
        self.scaling.changed()
        commands: list[Command] = []
        for name, record in self.slices.items():
            if record.spec.domain == domain and record.status is not WorkerStatus.LOST:
                if record.status in (WorkerStatus.READY, WorkerStatus.STARTING, WorkerStatus.STOPPING):
                    commands.append(Withdraw(name, reason))
                commands += self._lose(record, reason, now_us)
                record.status = WorkerStatus.LOST
        rollout = self._rollout
        there = (
            each for each in (*rollout.target.slices, *rollout.current.slices) if each.spec.domain == domain
        )
        if any(self.scaling.stays(each) for each in there):
            self._give_up(f"{domain} is lost: {reason}")
        return self._then(now_us, commands)

    def device_back(self, domain: str, now_us: int) -> Sequence[Command]:
        """Use a device again: it is back, or will not be lost."""
        self._observed.lost.pop(domain, None)
        self._observed.touched.update(self.slices)
        self.scaling.cordon.leaving.pop(domain, None)
        self.scaling.changed()
        for record in self.slices.values():
            if record.spec.domain == domain and record.status is WorkerStatus.LOST:
                record.status, record.failures, record.stumbles = WorkerStatus.STOPPED, 0, 0
        return self._then(now_us, [])

    def worker_ready(self, slice_name: str, now_us: int) -> Sequence[Command]:
        """Load the desired replicas on a slice, because its worker process answers."""
        record, commands = self._touch(slice_name), list[Command]()
        if record is not None and record.status is WorkerStatus.STARTING:
            record.start_us = now_us - record.since_us
            record.status, record.since_us, record.heard_us = WorkerStatus.READY, now_us, now_us
        elif record is not None and record.status is WorkerStatus.STOPPING:
            commands.append(StopWorker(slice_name))  # the order to stop came before it was ready
        return self._then(now_us, commands)

    def worker_lost(
        self,
        slice_name: str,
        reason: str,
        now_us: int,
        busy_with: Collection[str] = (),
        crashed: bool = False,
        free_bytes: int = 0,
    ) -> Sequence[Command]:
        """Take the loss of a worker: withdraw its slice, and start it again after a back-off.

        It does not start again if it was to end. The scheduler hears first when the slice's replicas will be
        back. `busy_with`: the models that the worker was computing, loading or measuring, as far as known.
        `crashed`: nothing outside the process has ended it. `free_bytes`: memory for a spare.
        """
        record = self._touch(slice_name)
        if record is None or record.status in (WorkerStatus.LOST, WorkerStatus.STOPPED):
            return self._then(now_us, [])  # STOPPED: the worker of an earlier slice of that name
        ended = record.status is WorkerStatus.STOPPING
        loading = record.replicas.get(record.loading)
        lived_us = now_us - record.since_us if record.status is WorkerStatus.READY else 0
        if lived_us >= HEALTHY_US:
            record.failures = 0
        record.stumbles = stumbles_after(record.stumbles, lived_us, loading is not None)
        if not (ended or crashed or record.stuck or loading):
            self._sparing.killed(record, free_bytes, now_us)
        blamed, routed = record.stuck or (crashed and loading is None), self._returning.routed(record)
        commands: list[Command] = [Withdraw(slice_name, reason, blamed), *self._lose(record, reason, now_us)]
        if ended:
            self._observed.remove(slice_name)
            return self._then(now_us, commands)
        if isolated := self._isolating.died(busy_with, self._rollout.current, now_us):
            commands += isolated
            record.failures, record.stumbles = 0, 1  # the model that killed it moves away
        record.failures += 1
        record.restarts += 1
        record.status, record.retry_us = WorkerStatus.WAITING, now_us + backoff_us(record.stumbles)
        if record.failures == START_TRIES and self._sparing.is_spare(slice_name):
            self._sparing.failed(slice_name)
        elif record.failures == START_TRIES and self.scaling.binds(record):
            self._give_up(f"the worker of slice {slice_name} {reason}, {START_TRIES} times")
        if loading is not None:  # replicas load one by one: no other had begun
            commands += self._failed(record, loading, f"its worker {reason}", now_us)
        return self._then(now_us, [*self._returning.expect(routed, now_us), *commands])

    def worker_stuck(self, slice_name: str, reason: str, now_us: int) -> Sequence[Command]:
        """End a worker that holds a batch for too long; its loss does the rest.

        A worker that loads a replica gets longer, because the load may be what holds the batch.
        """
        record, limits = self.slices.get(slice_name), self._limits
        if record is not None:
            load_us = self._trials.patience_us(record, int(limits.startup_s * 1e6), limits.stall_us)
            if now_us < record.heard_us + load_us:
                return ()
            record.stuck = True
        return (EndWorker(slice_name, reason),)

    # events of replicas

    def replica_loaded(
        self,
        slice_name: str,
        replica_id: int,
        cost: tuple[int, int] | tuple[int, int, int],
        now_us: int,
        busy: Collection[str] | None = None,
    ) -> Sequence[Command]:
        """Route a replica that is warm, or measure it first if it has no profile.

        `cost`: microseconds of the load, bytes of memory that the replica holds, and the longest time in
        microseconds that the load kept everything else in the process from running. `busy`: the models with
        running or waiting requests on the slice, None if unknown.
        """
        record, replica = self._find(slice_name, replica_id)
        if record is None or replica is None or replica.status is not ReplicaStatus.LOADING:
            return self._then(now_us, [])
        record.heard_us = now_us
        record.end_load(replica, now_us)
        replica.load_us, replica.memory_bytes, *held_us = cost
        replica.failures, replica.reason = 0, ""
        self._trials.loaded(replica.key, replica.load_us)
        known, replica.loaded_us = replica.profile is not None, now_us
        replica.status = ReplicaStatus.STANDING if known else ReplicaStatus.MEASURING
        commands: list[Command] = [*self._residing.loaded(record, replica, busy, now_us)]
        for each_us in held_us:
            commands += self._isolating.held(replica.served, each_us, self._rollout.current)
        return self._then(now_us, commands, record)

    def replica_failed(self, slice_name: str, replica_id: int, reason: str, now_us: int) -> Sequence[Command]:
        """Try a replica that could not be loaded or measured again after a back-off."""
        record, replica = self._find(slice_name, replica_id)
        if record is None or replica is None:
            return self._then(now_us, [])
        record.heard_us = now_us
        record.end_load(replica, now_us)
        commands: list[Command] = []
        if replica.status is ReplicaStatus.READY:  # it failed on its own sample
            commands.append(Unroute(slice_name, replica.model, replica.variant, reason))
        if record.measuring == replica_id:
            record.measuring = 0
        commands += self._failed(record, replica, reason, now_us)
        return self._then(now_us, commands, record)

    def replica_unloaded(self, slice_name: str, replica_id: int, now_us: int) -> Sequence[Command]:
        """Remove a replica, because its memory is free again."""
        record, replica = self._find(slice_name, replica_id)
        commands: list[Command] = []
        if record is not None and replica is not None:
            record.heard_us = now_us
            record.end_load(replica, now_us)
            if record.measuring == replica_id:
                record.measuring = 0
            del record.replicas[replica_id]
            commands = self._residing.unloaded(record, replica, now_us)
        return self._then(now_us, commands, record)

    def measured(
        self,
        slice_name: str,
        batch: tuple[int, int],
        latencies_us: Sequence[int],
        now_us: int,
        disturbed: bool = False,
    ) -> Sequence[Command]:
        """Take the result of the measurement under way on a slice.

        `batch`: its rows and size. `disturbed`: others used the device in that time.
        """
        record = self._touch(slice_name)
        if record is None:
            return ()
        replica = record.replicas.get(record.measuring)
        record.measuring, record.heard_us = 0, now_us
        if replica is None:
            return self._then(now_us, [], record)
        replica.sweep.take(*batch, latencies_us, disturbed)
        replica.unsaved += 1
        commands: list[Command] = []
        if replica.status is ReplicaStatus.READY:
            renewed = self._measuring.is_renewed(record, replica, now_us)
            commands = self._measuring.refresh(record, replica, renewed)
        elif replica.status is ReplicaStatus.MEASURING and replica.sweep.next_coarse() is None:
            replica.status = ReplicaStatus.STANDING
            if self._measuring.is_loading(record):
                # The load made its batches longer: measure it again while nothing loads.
                replica.freshness = Freshness.STALE
            commands = self._measuring.refresh(record, replica, save=True)
        return self._then(now_us, commands, record)

    def profile_flagged(
        self, slice_name: str, replica_id: int, freshness: Freshness, now_us: int
    ) -> Sequence[Command]:
        """Set a profile's freshness: its batches have changed it, or confirm it for a new profile."""
        if (replica := self._find(slice_name, replica_id)[1]) is not None:
            replica.freshness = freshness
        return self._then(now_us, [])

    def model_retired(self, model: str, now_us: int) -> Sequence[Command]:
        """Mark a retired model as done, because its last open request has been answered."""
        if model in self._observed.retiring:
            self._observed.retiring[model] = True
        return self._then(now_us, [])

    def missed(
        self, model: str, variant: str, rates: Mapping[str, float], busy: Busy, now_us: int
    ) -> Sequence[Command]:
        """Load a variant that is on no slice, because a request came for it.

        `rates`: requests a second by model. `busy`: by slice, the models with running or waiting requests.
        """
        if self.scaling.scales(model):
            self.scaling.missed(model)
            return self._then(now_us, [])
        return self._then(now_us, self._residing.missed((model, variant), rates, busy, now_us))

    def scale(self, spec: ScalingSpec, now_us: int) -> Sequence[Command]:
        """Let replicas follow load by `spec` from now on."""
        self.scaling.follow(spec)
        return self._then(now_us, [])

    def seen(self, seen: Sequence[LoadReport], now_us: int) -> Sequence[Command]:
        """Take the answer to `Look`: the models' requests until now, and how they ended."""
        self.scaling.seen(seen, now_us)
        return self._then(now_us, [])

    def scaling_planned(self, plan: ScalingPlan | None, now_us: int) -> Sequence[Command]:
        """Take the answer to `SolveScaling`; None: there is no plan."""
        self.scaling.planned(plan, now_us)
        return self._then(now_us, [])

    def capacity_found(self, asked: FindCapacity, capacity: Capacity, now_us: int) -> Sequence[Command]:
        """Take the answer to `FindCapacity`."""
        self.scaling.capacity_found(asked, capacity)
        return self._then(now_us, [])

    # time

    def tick(self, now_us: int, idle: Collection[str]) -> Sequence[Command]:
        """Do what has become due; `idle`: slices that have had no work for a while."""
        self._sparing.expire(now_us)
        return self._then(now_us, self._upkeep.tick(now_us, idle))

    # steps

    def _then(
        self, now_us: int, commands: list[Command], heard: SliceRecord | None = None
    ) -> Sequence[Command]:
        """Return `commands` with those that the desired state needs, and set the next tick.

        `heard`: a slice that may be due for its next first measurement.
        """
        if self._stopping:
            self._observed.pay(self._reconciling.changed())
            return ()
        for _ in range(STEPS_MAX):
            self._isolating.keep(self._rollout.current)
            commands += self.scaling.advance(self._rollout.current, now_us)
            if self._trials.look(self._divided(self._rollout.current), self._isolating.is_deadly):
                self._reconciling.look_again()
            current = self._expected(self._rollout.current)
            commands += self._reconciling.advance(current, now_us)
            commands += self._residing.advance(current, now_us)
            still = self._rollout.movement is RolloutState.STEADY
            if still or not self._is_reached() or not self._rollout.reached():
                break
        changed = self._reconciling.changed()
        commands += self._returning.review(changed, now_us)
        if self._replan and self._rollout.movement is RolloutState.STEADY:
            commands.append(Replan(self._replan))
            self._replan = ""
        if heard is not None:
            commands += self._measuring.next_coarse(heard, now_us)
        self._observed.pay(changed)
        due_us = self._upkeep.due_us(changed, now_us)
        self.wake_us = min(self.scaling.due_us, self._sparing.due_us, self._residing.due_us(now_us), due_us)
        return commands

    def _refuse_lost(self, desired: DesiredState) -> list[Command]:
        """Give up a desired state that needs a lost device, or ask for another plan.

        A slice that was there before waits for its device; a new slice cannot be made. Another plan may do
        better in both cases.
        """
        good = self._rollout.last_good
        last_good = {each.spec.name: each for each in good.slices} if good else {}
        there = [each for each in desired.slices if self.scaling.stays(each)]
        lost = [each for each in there if each.spec.domain in self._observed.lost]
        changed = [each for each in lost if last_good.get(each.spec.name) != each]
        reasons = [f"{each.spec.domain} is lost: {self._observed.lost[each.spec.domain]}" for each in changed]
        if all(each.spec.name in last_good for each in changed):
            return [Replan(reason) for reason in reasons[:1]]
        self._give_up(reasons[0])
        return []

    def _is_reached(self) -> bool:
        """Return whether the present state is reached, but for differences that need no wait."""
        rollout, spare = self._rollout, self._sparing.is_spare
        last_good = rollout.last_good and self._isolating.divided(rollout.last_good, rollout.last_good)
        target = self._isolating.divided(rollout.target, rollout.target)
        differences = self._reconciling.differences(self._expected(rollout.current), in_order=False)
        return all(spare(lack.slice) or excused(lack, last_good, target) for lack in differences)

    def _expected(self, current: DesiredState) -> DesiredState:
        """Return the desired state at the present load, by worker process: with spares and first loads."""
        return self._trials.added(self._sparing.added(self._divided(current)))

    def _divided(self, current: DesiredState) -> DesiredState:
        return self._isolating.divided(self.scaling.filtered(current), current)

    def _find(self, slice_name: str, replica_id: int) -> tuple[SliceRecord | None, ReplicaRecord | None]:
        record = self._touch(slice_name)
        return record, record.replicas.get(replica_id) if record is not None else None

    def _touch(self, slice_name: str) -> SliceRecord | None:
        """Return the record of a slice that an event concerns, and have it looked at again."""
        self._observed.touched.add(slice_name)
        return self.slices.get(slice_name)

    def _give_up(self, reason: str) -> None:
        """Roll back because the desired state cannot be reached, and ask for another plan after that."""
        if self._rollout.roll_back(reason) or self._rollout.movement is not RolloutState.MOVING:
            self._replan = reason

    def _failed(self, record: SliceRecord, replica: ReplicaRecord, reason: str, now_us: int) -> list[Command]:
        """Let a failed replica wait for its next try; after too many failures, give up the rollout."""
        gone = replica.status is ReplicaStatus.UNLOADING
        replica.status, replica.reason = ReplicaStatus.FAILED, reason
        replica.failures += 1
        replica.retry_us = now_us + backoff_us(replica.failures)
        self._trials.failed(record, replica)
        commands = self._residing.failed(record, replica, now_us)
        scaled = self.scaling.scales(replica.model)  # if so, it is loaded elsewhere
        if self._sparing.is_spare(record.spec.name):
            self._sparing.failed(record.spec.name)
        elif replica.failures == LOAD_TRIES and not (gone or scaled or record.spec.memory_bytes):
            self._give_up(f"slice {record.spec.name}: {reason}")
        return commands

    def _lose(self, record: SliceRecord, reason: str, now_us: int) -> list[Command]:
        """Mark a slice's worker and all its replicas as gone."""
        record.reason, record.since_us, record.retry_us, record.measuring = reason, now_us, NEVER_US, 0
        record.stuck = False
        for replica in record.replicas.values():
            replica.status, replica.retry_us, replica.load_order = ReplicaStatus.ABSENT, NEVER_US, 0
        return self._residing.lost(record, now_us)
