"""A site where control says what is where: the live controller beside the live scheduler in virtual time,
for models whose replicas follow their load, and for slices on which not all models have room.

Before the first request comes, workers start and load what is held without any load: a run begins there.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from serving.control.commands import Command, FindCapacity, Route, StartWorker, Unroute, Withdraw
from serving.control.control import Control
from serving.control.reconciling import START_TRIES
from serving.control.state.observed import KnownProfiles
from serving.control.state.replicas import ReplicaStatus, WorkerStatus
from serving.control.state.rules import Rules
from serving.policy.scaling.carried.capacity import Capacity
from serving.profile.device import device_kind
from serving.simulation.devices.device import BatchDevice
from serving.simulation.devices.faults import Fault
from serving.simulation.devices.held import HeldSlices, Presence, Replicas
from serving.simulation.devices.losses import Loss, LossCourse, LossFigures
from serving.simulation.devices.site import Site
from serving.simulation.governed.controlled import ControlledSimulation
from serving.simulation.governed.dataplane import Steered
from serving.simulation.governed.planning import Stubborn
from serving.simulation.governed.virtual_workers import Happening, Weight, WorkerTerms
from serving.simulation.results.series import Chronicle, Span
from serving.simulation.tally import Tally
from serving.simulation.traffic.arrivals import Arrival
from serving.values.objectives import ScalingSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel
from serving.values.vocabulary import NEVER_US

_SECOND = 1_000_000
_LEAD_S_MAX = 600
"""What a start may take: a worker that starts and loads a few large models needs less."""
_END_S_MAX = 3600
"""How long the last requests may take to end."""
_UNDER_WAY = (ReplicaStatus.LOADING, ReplicaStatus.MEASURING, ReplicaStatus.UNLOADING)


class NotReadyError(Exception):
    """What is wanted without any load is never there; the text says what it waits for."""


@dataclass(frozen=True)
class Governance:
    """What control is given. `models`: all that the gateway serves, those without requests included, with
    `profiles` of every variant on each of its slices. `capacity`: what is known of what replicas carry. None:
    a guess has to do, as in a gateway that has just started."""

    slices: tuple[SliceSpec, ...]
    models: tuple[ServedModel, ...]
    profiles: KnownProfiles
    scaling: ScalingSpec
    capacity: Callable[[FindCapacity], Capacity | None]

    def terms(self, start_us: int) -> WorkerTerms:
        """Return the terms of workers that do what they are ordered, and load as slowly as was measured."""
        weights = {
            (model, variant): Weight(profile.load_us, profile.memory_bytes)
            for (_, model, variant), profile in self.profiles.items()
        }
        return WorkerTerms(MappingProxyType(weights), start_us=start_us)

    def control(self, site: Site) -> Control:
        """Return the live controller. Nothing is measured: profiles are what is true, of slices on which one
        batch runs at a time, so that no model has a process of its own beside."""
        rules = Rules(remeasure=False, refine=False, scaling=self.scaling)
        models = [replace(model, isolate="never") for model in self.models]
        return Control(self.slices, models, self.profiles, site.limits, device_kind, rules)


@dataclass(frozen=True, slots=True)
class Mishaps:
    """What goes wrong in a run, at instants from its 0 on."""

    faults: Sequence[Fault] = ()
    losses: Sequence[Loss] = ()


class _Governing(ControlledSimulation):
    """Keeps what is held, and which capacities had to be guessed."""

    def __init__(self, governed: "Governed", governance: Governance, seed: int) -> None:
        self._governance = governance
        self.held = HeldSlices()
        self.guessed: set[str] = set()
        self.losses: list[LossCourse] = []
        site = governed.site
        control, terms = governance.control(site), governance.terms(site.start_us)
        super().__init__(control, terms, Stubborn(), governed, seed, calm_us=0)

    def commanded(self, command: Command) -> None:
        """See `ControlledSimulation`."""
        if isinstance(command, StartWorker):
            self.held.started(command.slice, self.now_us)

    def heard(self, slice_name: str, happening: Happening) -> None:
        """See `ControlledSimulation`."""
        if happening[0] == "worker_lost":
            self.held.lost(slice_name, self.now_us)

    def settled(self) -> None:
        """See `ControlledSimulation`."""
        for each in self.losses:
            if each.begun and each.found_us == NEVER_US and self._knows(each):
                each.found_us = self.now_us

    def _knows(self, course: LossCourse) -> bool:
        """Return whether control counts on one of these slices no more: no worker starts there."""
        specs = (spec for spec in self._governance.slices if spec.name in course.slices)
        records = (self.control.slices.get(name) for name in course.slices)
        return any(record is not None and record.failures >= START_TRIES for record in records) or any(
            self.control.scaling.cordon.is_cordoned(spec, model, self.now_us)
            for spec in specs
            for model in course.before
        )

    def capacity(self, asked: FindCapacity) -> Capacity | None:
        """See `ControlledSimulation`."""
        found = self._governance.capacity(asked)
        if found is None:
            self.guessed.add(f"{asked.model.name} {asked.variant}")
        return found

    @property
    def rests(self) -> bool:
        """Whether what is wanted without any load is there."""
        control = self.control
        starting = (WorkerStatus.STARTING, WorkerStatus.WAITING)
        return not control.progress.waiting and not any(
            record.status in starting or any(each.status in _UNDER_WAY for each in record.replicas.values())
            for record in control.slices.values()
        )


class Governed(Steered, Chronicle):
    """One run, which keeps what happens. Its instant 0 is when what is wanted without any load is there, and
    requests come from then on for `length_us`."""

    def __init__(
        self,
        site: Site,
        device: BatchDevice,
        mishaps: Mishaps,
        governance: Governance,
        seed: int,
        length_us: int,
    ) -> None:
        """Take the governance of a site. The residents of `site` say what may be where, and what is true of
        it there."""
        self._presence = Presence([model.name for model in governance.models])
        self._mishaps = mishaps
        self._seed = seed
        self._length_us = length_us
        super().__init__(site, device, governance.models, governance.slices)
        self._governing = _Governing(self, governance, seed)

    # what came of it

    @property
    def guessed(self) -> Collection[str]:
        """The variants with unknown capacity."""
        return self._governing.guessed

    def replicas(self, span: Span) -> dict[str, Replicas]:
        """Return how many slices gave batches of each model a place."""
        start_us, end_us = self.epoch_us + span.start_us, self.epoch_us + span.end_us
        return {
            model.name: self._presence.replicas(model.name, start_us, end_us) for model in self.site.served
        }

    def held(self, span: Span) -> dict[str, float]:
        """Return, by slice, the share of the time in which it was held."""
        total: Counter[str] = Counter()
        held = self._governing.held
        for name, held_us in held.within_us(self.epoch_us + span.start_us, self.epoch_us + span.end_us):
            total[name] += held_us
        return {name: total[name] / (span.end_us - span.start_us) for name in self.site.slices}

    def losses(self) -> list[LossFigures]:
        """Return what became of each loss that was asked for."""
        return [self._figures(course) for course in self._governing.losses]

    def _figures(self, course: LossCourse) -> LossFigures:
        run, epoch_us = self.columns(), self.epoch_us
        start_us, end_us = (each - epoch_us for each in course.span_us(epoch_us + self._length_us))
        numbers = [number for number, model in enumerate(self.site.served) if model.name in course.before]
        felt = np.isin(run.model, numbers) & (run.at_us >= start_us) & (run.at_us < end_us)
        found_s, replaced_s = (
            None if at_us == NEVER_US else (at_us - epoch_us) / 1e6
            for at_us in (course.found_us, course.replaced_us)
        )
        return LossFigures(
            course.loss, self._seed, course.slices, tuple(course.before), found_s, replaced_s,
            (end_us - start_us) / 1e6, int(felt.sum()), int((run.ending[felt] == 0).sum()),
        )  # fmt: skip

    # as a simulation

    def play(self, arrivals: Iterable[Arrival]) -> Tally:
        """See `Simulation`. NotReadyError where that can be."""
        governing = self._governing
        governing.at(0, governing.control.start)
        until_us = 2 * _SECOND  # control has looked at the load once
        governing.play(until_us)
        while not governing.rests:
            if until_us > _LEAD_S_MAX * _SECOND:
                waiting = ", ".join(governing.control.progress.waiting)
                raise NotReadyError(f"the gateway is not ready within {_LEAD_S_MAX} s: {waiting}")
            until_us += _SECOND
            governing.play(until_us)
        self.epoch_us = until_us
        for fault in self._mishaps.faults:
            self.befall(fault._replace(at_us=fault.at_us + until_us))
        for loss in self._mishaps.losses:
            self._lose(loss)
        self.ask(each._replace(at_us=each.at_us + self.epoch_us) for each in arrivals)
        until_us += self._length_us
        governing.play(until_us)
        last_us = until_us + _END_S_MAX * _SECOND
        while self.open and until_us < last_us:
            until_us += _SECOND
            governing.play(until_us)
        return self.tally

    def crash(self, slice_name: str, reason: str, now_us: int) -> None:  # noqa: ARG002  a Simulation
        """See `Simulation`: its loss comes back from its link."""
        if slice_name in self._governing.held:
            self.broken.append(Fault(now_us, slice_name))
            self._governing.crash(now_us, slice_name)

    def stall(self, slice_name: str, stall_us: int, now_us: int) -> None:
        """See `Simulation`."""
        if slice_name in self._governing.held:
            self.broken.append(Fault(now_us, slice_name, stall_us))
            super().stall(slice_name, stall_us, now_us)

    # as a data plane

    def carry_out(self, command: Command, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`."""
        match command:
            case Route(slice=name, model=model, variant=variant):
                self._presence.up(name, model, variant, now_us)
            case Unroute(slice=name, model=model, variant=variant):
                self._presence.down(name, model, variant, now_us)
            case Withdraw(slice=name):
                self._presence.gone(name, now_us)
        for each in self._governing.losses:
            each.look(self._presence, now_us)
        return super().carry_out(command, now_us)

    # losses

    def _lose(self, loss: Loss) -> None:
        """Let it come, with all slices that go with its slice."""
        governing = self._governing
        if loss.node:
            domains = dict.fromkeys(each.domain for each in self._specs.values() if each.node == loss.slice)
        else:
            domains = {self._specs[loss.slice].domain: None}
        slices = tuple(name for name, spec in self._specs.items() if spec.domain in domains)
        course = LossCourse(loss, slices, self.epoch_us)
        governing.losses.append(course)

        def begin(now_us: int) -> Sequence[Command]:
            course.begin(self._presence, self._served, now_us)
            return ()

        governing.at(course.at_us, begin)
        for domain in domains:
            if loss.notice_s is not None:
                governing.warn(course.at_us, domain, f"goes in {loss.notice_s:g} s")
            if loss.told:
                governing.lose(course.gone_us, domain, course.back_us)
            else:
                governing.fail(course.gone_us, domain, course.back_us)
