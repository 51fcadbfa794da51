"""The engine as control's data plane: control says what is served and what is where, and requests come."""

from collections.abc import Collection, Iterable, Iterator

from serving.control.commands import (
    Cold,
    Expect,
    ForgetModel,
    Look,
    Measure,
    RetireModel,
    Route,
    ServeModel,
    Unroute,
    Withdraw,
)
from serving.control.commands import Command as ControlCommand
from serving.control.state.observed import plain
from serving.profile.derived.latency import Latency
from serving.scheduler.commands import Command, FlagProfile, Miss
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.simulation.devices.device import BatchDevice
from serving.simulation.devices.site import Site
from serving.simulation.engine import Simulation
from serving.simulation.governed.virtual_workers import Happening
from serving.simulation.traffic.arrivals import Arrival
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel


class Steered(Simulation):
    """A simulation that control steers; a `serving.simulation.governed.controlled.DataPlane`.

    `models`: all that the gateway serves; those of the site are asked for. `slices`: all that may be used.
    """

    def __init__(
        self, site: Site, device: BatchDevice, models: Iterable[ServedModel], slices: Iterable[SliceSpec]
    ) -> None:
        self._served = {model.name: model for model in models}
        self._specs = {spec.name: spec for spec in slices}
        self._used: set[str] = set()  # slices that ever had a replica
        self._asked: Iterator[Arrival] = iter(())
        self._next: Arrival | None = None
        self._retiring: set[str] = set()
        self._found: list[Happening] = []
        super().__init__(site, device)

    def ask(self, arrivals: Iterable[Arrival]) -> None:
        """Take these requests from now on, in ascending order."""
        self._asked = iter(arrivals)
        self._next = next(self._asked, None)

    @property
    def open(self) -> int:
        """The requests without an answer."""
        return self.scheduler.open_requests

    # as a simulation

    def build(self) -> Scheduler:
        """See `Simulation`."""
        tenants = {each.name: each for each in self.site.tenants}
        devices = {spec.name: spec.device for spec in self._specs.values()}
        return Scheduler(self._served.values(), self.site.limits, tenants, devices=devices)

    def begin(self) -> None:
        """See `Simulation`: nothing is there before control says so."""

    def told(self, command: Command, now_us: int) -> None:
        """See `Simulation`."""
        match command:
            case Miss(model=model, variant=variant):
                busy = {name: self.scheduler.busy(name) for name in sorted(self._used)}
                self._found.append(("missed", model, variant, self.scheduler.rates(now_us), busy))
            case FlagProfile(slice=name, replica=replica, freshness=freshness):
                self._found.append(("profile_flagged", name, replica, freshness))

    def stuck(self, slice_name: str, reason: str, now_us: int) -> None:  # noqa: ARG002  a Simulation
        """See `Simulation`: control decides about it."""
        self._found.append(("worker_stuck", slice_name, reason))

    # as a data plane

    @property
    def wake_us(self) -> int:
        """See `DataPlane`."""
        due_us = self.due_us
        return due_us if self._next is None else min(due_us, self._next.at_us)

    def wake(self, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`: all requests of that instant, or one other thing."""
        if self._next is None or self._next.at_us > now_us:
            self.step(now_us)
        while self._next is not None and self._next.at_us <= now_us:
            self.arrive(self._next)
            self._next = next(self._asked, None)
        return self._happened()

    def carry_out(self, command: ControlCommand, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`."""
        match command:
            case Look():
                return (("seen", self.scheduler.seen(now_us)),)
            case Measure(slice=name):
                self.scheduler.hold(name)
            case RetireModel(model=model):
                self._retiring.add(model)
                self.scheduler.retire(model)
            case ForgetModel(model=model):
                del self._served[model]
                self.unserved(model)
                self.scheduler.forget(model)
            case _:
                self._carry_out(self._ordered(command, now_us), now_us)
        return self._happened()

    def settled(self, slice_name: str, happening: Happening, now_us: int) -> Iterable[Happening]:
        """See `DataPlane`."""
        if happening[0] == "worker_lost":
            self.forget(slice_name)
        elif happening[0] == "measured":
            self._carry_out(self.scheduler.release(slice_name, now_us), now_us)
        return self._happened()

    def quiet(self, slices: Iterable[str], now_us: int) -> Collection[str]:
        """See `DataPlane`."""
        return [name for name in slices if self.scheduler.is_quiet(name, now_us)]

    # steps

    def _ordered(self, command: ControlCommand, now_us: int) -> Iterable[Command]:
        """Tell the scheduler what is served, and where variants are or will be."""
        scheduler = self.scheduler
        match command:
            case ServeModel(model=served):
                self._served[served.name] = served
                self._retiring.discard(served.name)
                self.promise(served)
                return scheduler.serve(served, now_us)
            case Route(slice=name, model=model, variant=variant, profile=profile):
                replica = Replica(command.replica, variant, Latency(profile), self._served[model])
                spec = self._specs.get(plain(name))
                replica.price = spec.price if spec is not None else 0.0
                self._used.add(name)
                return scheduler.replica_up(name, model, replica, now_us)
            case Unroute(slice=name, model=model, variant=variant, reason=reason):
                return scheduler.replica_down(name, model, variant, reason, now_us)
            case Withdraw(slice=name, reason=reason, blamed=blamed):
                return scheduler.slice_down(name, reason, now_us, blamed)
            case Cold(model=model, variant=variant, load_us=load_us, reason=reason):
                return scheduler.cold(model, variant, load_us, now_us, reason)
            case Expect(model=model, variant=variant, ready_us=ready_us):
                return scheduler.expect(model, variant, ready_us, now_us)
        return ()

    def _happened(self) -> Iterable[Happening]:
        """Return the events for control, each once."""
        found, self._found = self._found, []
        for model in sorted(self._retiring) if self._retiring else ():
            if not self.scheduler.models[model].open:
                self._retiring.discard(model)
                found.append(("model_retired", model))
        return found
