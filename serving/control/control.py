"""The control plane's state machine: what is wanted of a gateway becomes so, and stays so.

One method per event, each returns commands; `wake_us` says when `tick` is due. It starts workers, loads,
measures and routes the replicas that are wanted, lets go of others once those that replace them get batches,
restarts what dies with back-off, gives up a move that cannot be, refines profiles on idle slices, and
measures stale ones anew.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from serving.control.commands import Command, EndWorker, FindCapacity, Replan, StopWorker, Unroute, Withdraw
from serving.control.desired import DesiredState
from serving.control.isolating import Isolating, Isolation
from serving.control.measuring import Measuring
from serving.control.observed import KnownProfiles, ObservedState
from serving.control.on_demand import Busy, OnDemandLoading
from serving.control.reconciling import LOAD_TRIES, START_TRIES, Reconciling, excused, resolved, start
from serving.control.replicas import ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.control.returning import Returning
from serving.control.rollout import Progress, Rollout, RolloutState
from serving.control.rules import DEFAULT_RULES, Rules
from serving.control.scaling import Scaling
from serving.control.timeouts import ANSWERED_US, HEALTHY_US, backoff_us, overdue
from serving.control.trials import Trials
from serving.objectives import ScalingSpec
from serving.policy.freshness import Freshness
from serving.policy.scaling.capacity import Capacity
from serving.policy.scaling.interface import LoadReport
from serving.policy.scaling.task import ScalingPlan
from serving.specs import Limits, ServedModel, SliceSpec
from serving.vocabulary import NEVER_US

STEPS_MAX = 1000  # states that one event may reach: each has something to do as a rule


class Control:
    """Wants every variant of `models` on each of its slices until `want` says otherwise. `kind_of` names a
    slice's device kind."""

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
        self._holdings = ObservedState(first.models, known, limits, kind_of)
        self._measuring = Measuring(self._holdings, rules.remeasure, rules.refine)
        self._trials = Trials(self._holdings)
        self._reconciling = Reconciling(self._holdings, self._trials.waits_for)
        self._residing = OnDemandLoading(self._holdings)
        self._isolating = Isolating()
        self.scaling = Scaling(self._holdings, rules, kind_of)
        self._returning = Returning(self._holdings, self.scaling.scales)
        self._rollout = Rollout(first)
        self._replan = ""  # why another plan is to be asked for, once a move has turned back
        self._stopping = False
        self.slices: dict[str, SliceRecord] = self._holdings.slices
        self.wake_us = NEVER_US
        self._reconciling.expect(self._isolating.divided(first, first))

    # what the driver may ask

    @property
    def desired(self) -> DesiredState:
        """What is to be so in the end."""
        return self._rollout.target

    @property
    def expected(self) -> DesiredState:
        """What is to be so in the end, as far as the present load asks for it, by worker process."""
        return self._expected(self._rollout.target)

    def isolation(self, model: ServedModel, now_us: int) -> Isolation:
        """Whether a model has worker processes of its own, and how many have died busy with it."""
        return self._isolating.standing(model, self._rollout.target, now_us)

    @property
    def progress(self) -> Progress:
        """How far what is wanted is so."""
        rollout = self._rollout
        differences = list(self._reconciling.differences(self._expected(rollout.current)))
        hopeless = tuple(each.sentence for each in differences if each.hopeless)
        waiting = tuple(each.sentence for each in differences if not each.hopeless)
        return Progress(rollout.movement, *rollout.step, (*rollout.reasons, *hopeless), waiting)

    @property
    def given_up(self) -> tuple[str, ...]:
        """Why the last move was given up; () where it was not."""
        return self._rollout.reasons

    def know(self, known: KnownProfiles) -> None:
        """Stored profiles, for replicas that will be wanted."""
        self._holdings.known.update(known)

    # what is wanted

    def start(self, now_us: int) -> Sequence[Command]:
        """Start every slice's worker."""
        return self._then(now_us, [])

    def stop(self) -> None:
        """Restart, load and measure nothing from now on."""
        self._stopping = True
        self.wake_us = NEVER_US

    def want(self, desired: DesiredState, now_us: int, by: Sequence[DesiredState] = ()) -> Sequence[Command]:
        """From now on this is wanted. `by`: the states to go through before, in order; without, all that is
        new is made before anything goes."""
        *between, last = resolved([*by, desired], self._rollout.passed, self.slices)
        self._rollout.set(last, between)
        self._replan = ""
        return self._then(now_us, self._refuse_lost(last))

    def roll_back(self, now_us: int, reason: str = "it was told to turn back") -> Sequence[Command]:
        """Give up a move under way: what was there before it is wanted again."""
        self._rollout.roll_back(reason)
        return self._then(now_us, [])

    # events of devices and workers

    def device_leaving(self, domain: str, reason: str, now_us: int) -> Sequence[Command]:
        """A device will be lost soon: what follows its load goes elsewhere before that."""
        self.scaling.cordon.leaving[domain] = reason
        self.scaling.changed()
        return self._then(now_us, [])

    def device_lost(self, domain: str, reason: str, now_us: int) -> Sequence[Command]:
        """A device (or what else slices are lost with, `SliceSpec.domain`) is gone with all its slices; none
        can be started there until it is back."""
        self._holdings.lost[domain] = reason
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
        """A device can be used again, or will not be lost."""
        self._holdings.lost.pop(domain, None)
        self.scaling.cordon.leaving.pop(domain, None)
        self.scaling.changed()
        for record in self.slices.values():
            if record.spec.domain == domain and record.status is WorkerStatus.LOST:
                record.status, record.failures, record.stumbles = WorkerStatus.STOPPED, 0, 0
        return self._then(now_us, [])

    def worker_ready(self, slice_name: str, now_us: int) -> Sequence[Command]:
        """A worker process answers: load what is wanted there."""
        record, commands = self.slices.get(slice_name), list[Command]()
        if record is not None and record.status is WorkerStatus.STARTING:
            record.start_us = now_us - record.since_us
            record.status, record.since_us, record.heard_us = WorkerStatus.READY, now_us, now_us
        elif record is not None and record.status is WorkerStatus.STOPPING:
            commands.append(StopWorker(slice_name))  # it was to end before it was there
        return self._then(now_us, commands)

    def worker_lost(
        self,
        slice_name: str,
        reason: str,
        now_us: int,
        busy_with: Collection[str] = (),
        crashed: bool = False,
    ) -> Sequence[Command]:
        """A worker process is gone: withdraw the slice and start it again after a back-off, if it was not to
        end. The scheduler hears first when what it served will be back. `busy_with`: the models that it was
        computing, loading or measuring, as far as that is known; `crashed`: nothing outside of the process
        has ended it."""
        record = self.slices.get(slice_name)
        if record is None or record.status in (WorkerStatus.LOST, WorkerStatus.STOPPED):
            return self._then(now_us, [])  # STOPPED: it was of a slice of that name which has gone before
        ended = record.status is WorkerStatus.STOPPING
        loading = record.replicas.get(record.loading)
        lived_us = now_us - record.since_us if record.status is WorkerStatus.READY else 0
        if lived_us >= HEALTHY_US:
            record.failures = record.stumbles = 0
        elif lived_us >= ANSWERED_US and loading is None:
            record.stumbles = 0
        blamed, routed = record.stuck or (crashed and loading is None), self._returning.routed(record)
        commands: list[Command] = [Withdraw(slice_name, reason, blamed), *self._lose(record, reason, now_us)]
        if ended:
            del self.slices[slice_name]
            return self._then(now_us, commands)
        if isolated := self._isolating.died(busy_with, self._rollout.current, now_us):
            commands += isolated
            record.failures = record.stumbles = 0  # what killed it goes elsewhere
        record.failures += 1
        record.stumbles += 1
        record.restarts += 1
        record.status, record.retry_us = WorkerStatus.WAITING, now_us + backoff_us(record.stumbles)
        if record.failures == START_TRIES and self.scaling.binds(record):
            self._give_up(f"the worker of slice {slice_name} {reason}, {START_TRIES} times")
        if loading is not None:  # they load one after the other: the others had not begun
            commands += self._failed(record, loading, f"its worker {reason}", now_us)
        return self._then(now_us, [*self._returning.expect(routed, now_us), *commands])

    def worker_stuck(self, slice_name: str, reason: str, now_us: int) -> Sequence[Command]:
        """A worker holds a batch for too long: end it; its loss does the rest. One that loads something has
        longer: the load may be what holds the batch."""
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
        """A replica is warm: route it where its profile is known, else measure it first.

        `cost`: microseconds that loading took, bytes of memory that it holds, and the longest time in
        microseconds for which the load kept all else in the process from running. `busy`: the models of which
        something runs or waits on the slice, None where that is not known.
        """
        record, replica = self._find(slice_name, replica_id)
        if record is None or replica is None or replica.status is not ReplicaStatus.LOADING:
            return self._then(now_us, [])
        record.heard_us = now_us
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
        """A replica could not be loaded or measured: tried again after a back-off."""
        record, replica = self._find(slice_name, replica_id)
        if record is None or replica is None:
            return self._then(now_us, [])
        record.heard_us = now_us
        commands: list[Command] = []
        if replica.status is ReplicaStatus.READY:  # it failed on its own sample
            commands.append(Unroute(slice_name, replica.model, replica.variant, reason))
        if record.measuring == replica_id:
            record.measuring = 0
        commands += self._failed(record, replica, reason, now_us)
        return self._then(now_us, commands, record)

    def replica_unloaded(self, slice_name: str, replica_id: int, now_us: int) -> Sequence[Command]:
        """A replica's memory is free again."""
        record, replica = self._find(slice_name, replica_id)
        commands: list[Command] = []
        if record is not None and replica is not None:
            record.heard_us = now_us
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
        """The measurement under way on a slice is done; `batch`: its rows and size; `disturbed`: others used
        the device meanwhile."""
        record = self.slices.get(slice_name)
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
                # which made its batches longer: to be measured anew in quiet
                replica.freshness = Freshness.STALE
            commands = self._measuring.refresh(record, replica, save=True)
        return self._then(now_us, commands, record)

    def profile_flagged(
        self, slice_name: str, replica_id: int, freshness: Freshness, now_us: int
    ) -> Sequence[Command]:
        """Batches say otherwise of a replica's profile than before, or still so of a new one."""
        _, replica = self._find(slice_name, replica_id)
        if replica is not None:
            replica.freshness = freshness
        return self._then(now_us, [])

    def model_retired(self, model: str, now_us: int) -> Sequence[Command]:
        """The last open request of a retired model has been answered."""
        if model in self._holdings.retiring:
            self._holdings.retiring[model] = True
        return self._then(now_us, [])

    def missed(
        self, model: str, variant: str, rates: Mapping[str, float], busy: Busy, now_us: int
    ) -> Sequence[Command]:
        """A request came for a variant that is on no slice. `rates`: requests a second by model; `busy`: by
        slice, the models of which something runs or waits."""
        if self.scaling.scales(model):
            self.scaling.missed(model)
            return self._then(now_us, [])
        return self._then(now_us, self._residing.missed((model, variant), rates, busy, now_us))

    def scale(self, spec: ScalingSpec, now_us: int) -> Sequence[Command]:
        """From now on replicas follow load so."""
        self.scaling.follow(spec)
        return self._then(now_us, [])

    def seen(self, seen: Sequence[LoadReport], now_us: int) -> Sequence[Command]:
        """What models were asked until now, and how they fared: the answer to `Look`."""
        self.scaling.seen(seen, now_us)
        return self._then(now_us, [])

    def scaling_planned(self, plan: ScalingPlan | None, now_us: int) -> Sequence[Command]:
        """The answer to `SolveScaling`; None: there is no plan."""
        self.scaling.planned(plan, now_us)
        return self._then(now_us, [])

    def capacity_found(self, asked: FindCapacity, capacity: Capacity, now_us: int) -> Sequence[Command]:
        """The answer to `FindCapacity`."""
        self.scaling.capacity_found(asked, capacity)
        return self._then(now_us, [])

    # time

    def tick(self, now_us: int, idle: Collection[str]) -> Sequence[Command]:
        """What has become due; `idle`: slices without work in this instant."""
        commands: list[Command] = []
        self._measuring.count_idle(idle)
        self._measuring.look_around()
        for name, record in self.slices.items():
            if record.retry_us <= now_us:
                commands.append(start(record, now_us))
            reason, due_us = overdue(record, self._limits)
            if due_us <= now_us:
                record.heard_us = now_us  # said once; again only after as long a time
                commands.append(EndWorker(name, reason))
            elif record.status is WorkerStatus.READY:
                for replica in record.replicas.values():
                    if replica.retry_us <= now_us:
                        replica.status, replica.retry_us = ReplicaStatus.ABSENT, NEVER_US
                orders = self._measuring.next_coarse(record, now_us) or self._measuring.refine(record, now_us)
                if orders:
                    record.heard_us = now_us
                commands += orders
        return self._then(now_us, commands)

    # steps

    def _then(
        self, now_us: int, commands: list[Command], heard: SliceRecord | None = None
    ) -> Sequence[Command]:
        """Commands, with what follows from what is wanted, after setting the next tick. `heard`: a slice of
        which the next first measurement may be due."""
        if self._stopping:
            return ()
        for _ in range(STEPS_MAX):
            self._isolating.keep(self._rollout.current)
            commands += self.scaling.advance(self._rollout.current, now_us)
            self._trials.look(self._divided(self._rollout.current), self._isolating.is_deadly)
            current = self._expected(self._rollout.current)
            commands += self._reconciling.advance(current, now_us)
            commands += self._residing.advance(current, now_us)
            still = self._rollout.movement is RolloutState.STEADY
            if still or not self._is_reached() or not self._rollout.reached():
                break
        commands += self._returning.review(now_us)
        if self._replan and self._rollout.movement is RolloutState.STEADY:
            commands.append(Replan(self._replan))
            self._replan = ""
        self._measuring.look_around()
        if heard is not None:
            commands += self._measuring.next_coarse(heard, now_us)
        due = [self.scaling.due_us]
        for record in self.slices.values():
            due += [record.retry_us, overdue(record, self._limits)[1]]
            if record.status is WorkerStatus.READY:
                due += [replica.retry_us for replica in record.replicas.values()]
            due += self._measuring.due_us(record, now_us)
        self.wake_us = min(due)
        return commands

    def _refuse_lost(self, desired: DesiredState) -> list[Command]:
        """What is wanted of a device that is lost: a slice that was there before waits for it, others are in
        vain; either way another plan may do better."""
        good = self._rollout.last_good
        last_good = {each.spec.name: each for each in good.slices} if good else {}
        there = [each for each in desired.slices if self.scaling.stays(each)]
        lost = [each for each in there if each.spec.domain in self._holdings.lost]
        changed = [each for each in lost if last_good.get(each.spec.name) != each]
        reasons = [f"{each.spec.domain} is lost: {self._holdings.lost[each.spec.domain]}" for each in changed]
        if all(each.spec.name in last_good for each in changed):
            return [Replan(reason) for reason in reasons[:1]]
        self._give_up(reasons[0])
        return []

    def _is_reached(self) -> bool:
        """Whether the present state is so, but for what nobody should wait for."""
        rollout = self._rollout
        last_good = rollout.last_good and self._isolating.divided(rollout.last_good, rollout.last_good)
        target = self._isolating.divided(rollout.target, rollout.target)
        differences = self._reconciling.differences(self._expected(rollout.current))
        return all(excused(lack, last_good, target) for lack in differences)

    def _expected(self, current: DesiredState) -> DesiredState:
        """What is to be there at the present load, by worker process, those for first loads among them."""
        return self._trials.added(self._divided(current))

    def _divided(self, current: DesiredState) -> DesiredState:
        return self._isolating.divided(self.scaling.filtered(current), current)

    def _find(self, slice_name: str, replica_id: int) -> tuple[SliceRecord | None, ReplicaRecord | None]:
        record = self.slices.get(slice_name)
        return record, record.replicas.get(replica_id) if record is not None else None

    def _give_up(self, reason: str) -> None:
        """What is wanted cannot be: turn back, and ask for another plan once that is done."""
        if self._rollout.roll_back(reason) or self._rollout.movement is not RolloutState.MOVING:
            self._replan = reason

    def _failed(self, record: SliceRecord, replica: ReplicaRecord, reason: str, now_us: int) -> list[Command]:
        """A replica could not be loaded: not to be tried for a while, and too often for a move."""
        gone = replica.status is ReplicaStatus.UNLOADING
        replica.status, replica.reason = ReplicaStatus.FAILED, reason
        replica.failures += 1
        replica.retry_us = now_us + backoff_us(replica.failures)
        self._trials.failed(record, replica)
        commands = self._residing.failed(record, replica, now_us)
        scaled = self.scaling.scales(replica.model)  # then it is brought up elsewhere
        if replica.failures == LOAD_TRIES and not (gone or scaled or record.spec.memory_bytes):
            self._give_up(f"slice {record.spec.name}: {reason}")
        return commands

    def _lose(self, record: SliceRecord, reason: str, now_us: int) -> list[Command]:
        """A slice's worker is gone, and all that it had."""
        record.reason, record.since_us, record.retry_us, record.measuring = reason, now_us, NEVER_US, 0
        record.stuck = False
        for replica in record.replicas.values():
            replica.status, replica.retry_us = ReplicaStatus.ABSENT, NEVER_US
        return self._residing.lost(record, now_us)
