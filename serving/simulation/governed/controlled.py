"""The live controller in virtual time: a heap of events in integer microseconds around it, and no clock.

Its workers are virtual (`virtual_workers.py`), a plan takes its time and may be outdated when it comes, and
devices are lost. What happens follows from a seed and from what was asked beforehand.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, Protocol

from serving.control.commands import (
    Command,
    EndWorker,
    FindCapacity,
    KeepProfile,
    LoadReplica,
    Measure,
    Replan,
    SolveScaling,
    StartWorker,
    StopWorker,
    UnloadReplica,
)
from serving.control.control import Control
from serving.control.failing import FailingLoads
from serving.control.rollouts.rollout import RolloutState
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.slow.planning import plan_scaling
from serving.policy.scaling.slow.task import ScalingPlan, ScalingTask
from serving.simulation.governed.planning import Facts, Planner, VirtualPlan
from serving.simulation.governed.virtual_workers import (
    Chances,
    Happening,
    VirtualWorker,
    Workers,
    WorkerTerms,
)
from serving.values.vocabulary import NEVER_US

ENDLESS = 1_000  # events at one instant: control asks to be woken again and again


class DataPlane(Protocol):
    """The part that routes requests, and also carries commands out."""

    @property
    def wake_us(self) -> int:
        """When something is due."""
        ...

    def carry_out(self, command: Command, now_us: int) -> Iterable[Happening]:
        """Return a command that concerns no worker, or a worker's that holds up its batches. What comes of it
        at once, without a slice: `("model_retired", name)` or `("missed", ...)`."""
        ...

    def wake(self, now_us: int) -> Iterable[Happening]:
        """Return the happenings that were due."""
        ...

    def settled(self, slice_name: str, happening: Happening, now_us: int) -> Iterable[Happening]:
        """Return what a worker told, before control hears of it."""
        ...

    def rest_us(self, slice_name: str, now_us: int) -> int:
        """Return for how long (us) a worker still computes what it was sent."""
        ...

    def quiet(self, slices: Iterable[str], now_us: int) -> Collection[str]:
        """Return those that have had nothing to do for a while: a measurement would delay nothing."""
        ...


class ControlledSimulation:
    """One run. `commanded`, `heard`, `planned` and `settled` may be overridden, to look on; `capacity` and
    `plan`, which are jobs elsewhere, to find something else."""

    def __init__(
        self,
        control: Control,
        terms: WorkerTerms,
        planner: Planner,
        plane: DataPlane,
        seed: int,
        calm_us: int,
    ) -> None:
        """Take control, workers and data plane. From `calm_us` on no worker dies, starts in vain or fails to
        load, except for what is broken."""
        self.control = control
        self.plane = plane
        self.lost: dict[str, str] = {}  # devices, and why
        self.failures = FailingLoads()  # by device
        self.unplanned: list[str] = []  # why there was no other plan
        self.now_us = 0
        self._terms = terms
        self._planner = planner
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = self._repeats = 0
        self._workers = Workers(terms, Chances(terms, seed, calm_us), self._tell)

    # what may be overridden

    def commanded(self, command: Command) -> None:
        """Do nothing; a subclass may note what control asks for now, before it is carried out."""

    def heard(self, slice_name: str, happening: Happening) -> None:
        """Do nothing; a subclass may note what control hears now, on a slice or ("") elsewhere."""

    def planned(self, plan: VirtualPlan) -> None:
        """Do nothing; a subclass may note that control now hears of a plan that is wanted instead."""

    def settled(self) -> None:
        """Do nothing; a subclass may note that all commands of an event have been carried out."""

    def capacity(self, asked: FindCapacity) -> Capacity | None:  # noqa: ARG002  to be overridden
        """Return what a simulated capacity finds; None: nothing is ever found, and guesses have to do."""
        return None

    def plan(self, task: ScalingTask) -> ScalingPlan | None:
        """Return how many replicas there are to be in a while."""
        *_, plan = (None, *plan_scaling(task))
        return plan

    # the run

    def at(self, at_us: int, act: Callable[[int], Sequence[Command]]) -> None:
        """Carry out what `act` returns at that instant; `act` takes the instant."""
        self._push(at_us, lambda now_us: self._carry_out(act(now_us)))

    def lose(self, at_us: int, device: str, back_us: int = NEVER_US) -> None:
        """Lose a device, with all its workers, from `at_us` until `back_us`."""
        self._push(at_us, lambda now_us: self._lose(device, now_us))
        if back_us != NEVER_US:
            self._push(back_us, lambda now_us: self._find(device, now_us))

    def warn(self, at_us: int, device: str, reason: str) -> None:
        """Warn control at `at_us` that a device will be lost."""
        self._push(at_us, lambda now_us: self._pass_on([("device_leaving", device, reason)], now_us))

    def fail(self, at_us: int, device: str, back_us: int = NEVER_US) -> None:
        """Fail a device from `at_us` until `back_us` without a notice to control: no worker lives there."""
        self._push(at_us, lambda now_us: self._fail(device, now_us))
        if back_us != NEVER_US:
            self._push(back_us, lambda _: self._workers.failed.discard(device))

    def crash(self, at_us: int, slice_name: str) -> None:
        """Kill the slice's worker then, if it has one."""

        def die(now_us: int) -> None:
            worker = self._workers.by_slice.get(slice_name)
            if worker is not None:
                self._happen(worker, ("worker_lost", "died"), now_us)

        self._push(at_us, die)

    def play(self, until_us: int) -> None:
        """Play all that happens before that instant."""
        while True:
            event_us = self._events[0][0] if self._events else NEVER_US
            due_us = min(event_us, self.control.wake_us, self.plane.wake_us)
            if due_us >= until_us:
                return
            now_us = max(due_us, self.now_us)
            self._repeats = self._repeats + 1 if now_us == self.now_us else 0
            self.now_us = now_us
            if self._repeats > ENDLESS:
                raise RuntimeError(f"{ENDLESS} events at {now_us} us: control does not get on")
            if event_us == due_us:
                heappop(self._events)[2](now_us)
            elif self.plane.wake_us == due_us:
                self._pass_on(self.plane.wake(now_us), now_us)
            else:
                self._carry_out(
                    self.control.tick(now_us, self.plane.quiet([*self._workers.by_slice], now_us))
                )

    # events

    def _push(self, at_us: int, act: Callable[[int], None]) -> None:
        self._count += 1
        heappush(self._events, (at_us, self._count, act))

    def _tell(self, after_us: int, worker: VirtualWorker, *happening: object) -> None:
        self._push(self.now_us + after_us, lambda now_us: self._happen(worker, happening, now_us))

    def _happen(self, worker: VirtualWorker, happening: Happening, now_us: int) -> None:
        """Handle an event of a worker's link."""
        seen = self._workers.happens(worker, happening, now_us)
        if seen is None:
            return
        event, *arguments = seen
        self._count_failures(worker, event, arguments)
        self._pass_on(self.plane.settled(worker.spec.name, seen, now_us), now_us)
        self.heard(worker.spec.name, seen)
        handle = getattr(self.control, event)
        self._carry_out(handle(worker.spec.name, *arguments, now_us))

    def _count_failures(self, worker: VirtualWorker, event: str, arguments: Sequence[Any]) -> None:
        if event in ("replica_loaded", "replica_failed"):
            replica = self.control.slices[worker.spec.name].replicas[arguments[0]]
            count = self.failures.failed if event == "replica_failed" else self.failures.loaded
            count(worker.spec.device, replica.model)

    def _pass_on(self, happenings: Iterable[Happening], now_us: int) -> None:
        """Pass the events of the data plane on to control."""
        for happening in happenings:
            self.heard("", happening)
            event, *arguments = happening
            self._carry_out(getattr(self.control, event)(*arguments, now_us))

    def _lose(self, device: str, now_us: int) -> None:
        reason = f"{device} fell off the bus"
        self.lost[device] = reason
        self.heard("", ("device_lost", device, reason))
        self._carry_out(self.control.device_lost(device, reason, now_us))
        for worker in [*self._workers.by_slice.values()]:
            if worker.spec.domain == device:
                self._happen(worker, ("worker_lost", reason), now_us)

    def _fail(self, device: str, now_us: int) -> None:
        self._workers.failed.add(device)
        for worker in [*self._workers.by_slice.values()]:
            if worker.spec.domain == device:
                self._happen(worker, ("worker_lost", "died"), now_us)

    def _find(self, device: str, now_us: int) -> None:
        self.lost.pop(device, None)
        self.heard("", ("device_back", device))
        self._carry_out(self.control.device_back(device, now_us))

    # commands

    def _carry_out(self, commands: Iterable[Command]) -> None:
        later: list[Happening] = []
        for command in commands:
            self.commanded(command)
            later += self._do(command)
        self.settled()
        for happening in later:
            self._push(self.now_us, lambda now_us, one=happening: self._pass_on([one], now_us))  # type: ignore[misc]

    def _do(self, command: Command) -> Iterable[Happening]:
        now_us = self.now_us
        match command:
            case StartWorker(slice=name):
                self._workers.start(self.control.slices[name].spec, now_us)
            case EndWorker(slice=name, reason=reason):
                worker = self._workers.by_slice.get(name)
                if worker is not None:
                    self._tell(0, worker, "worker_lost", f"was ended: {reason}")
            case StopWorker(slice=name):
                self._workers.stop(name, self.plane.rest_us(name, now_us), now_us)
            case LoadReplica():
                self._workers.load(command, now_us)
            case UnloadReplica(slice=name, replica=replica):
                self._workers.unload(name, replica, self.plane.rest_us(name, now_us), now_us)
            case Measure():
                self._workers.measure(command)
            case Replan() | FindCapacity() | SolveScaling():
                self._begin(command)
            case KeepProfile():
                pass
        return self.plane.carry_out(command, now_us)

    def _begin(self, job: Replan | FindCapacity | SolveScaling) -> None:
        """Begin a job that takes its time elsewhere; control hears its result then, whatever has happened
        since."""
        if isinstance(job, Replan):
            self._replan()
        elif isinstance(job, SolveScaling):
            self._tell_later("scaling_planned", self.plan(job.task))
        elif (table := self.capacity(job)) is not None:
            self._tell_later("capacity_found", job, table)

    def _tell_later(self, *happening: object) -> None:
        self._push(self.now_us + self._terms.plan_us, lambda now_us: self._pass_on([happening], now_us))

    def _rests(self, facts: Facts) -> bool:
        return self.control.progress.state is RolloutState.STEADY and self.control.desired == facts.standing

    def _replan(self) -> None:
        """Make a plan from what is known now; it is there after a while, whatever has happened since."""
        facts = Facts(frozenset(self.lost), self.failures.found, self.control.desired)

        def answer(now_us: int) -> None:
            if self._planner.from_rest and not self._rests(facts):
                self._replan()  # its way would not begin where control is now
                return
            plan = self._planner.plan(facts)
            if isinstance(plan, str):
                self.unplanned.append(plan)
            else:
                self.planned(plan)
                self._carry_out(self.control.want(plan.wanted, now_us, plan.by))

        self._push(self.now_us + self._terms.plan_us, answer)
