"""What `GET /v2/status` says of a gateway, and what its explanations and its page are made of."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from router.management.cells import CellBoard
from router.management.devices import DeviceBoard
from router.management.nodes import NodeBoard
from router.management.operations.notices import slices_of
from router.management.operations.operations import Operations
from router.observing.cache_status import CacheStatus, cache_status
from router.observing.isolation import isolation_status
from router.observing.rates_status import rates_status
from router.observing.rollout_status import RolloutStatus
from router.observing.scaled_status import scaled_status
from router.observing.sequence_status import sequence_status
from router.observing.status import ModelStatus, MoveStatus, ProposalStatus, SliceStatus, Status, describe
from router.observing.telemetry import Counters, Telemetry
from router.security.auth.following import KeyWatch
from router.startup.edges import Edges
from router.startup.encryption import Encryption
from router.startup.picture import replicas_of
from router.verbs.explain.body import Explanation
from router.verbs.explain.body import describe as explain
from router.verbs.explain.scaled import scaled_model
from serving.policy.limits.rate_limits import RateLimits
from serving.ports import Serving
from serving.runtime.caching.caching import CachedServing
from serving.runtime.calls.gateway import Gateway
from serving.runtime.fleet import Fleet
from serving.values.specs import ServedModel


@dataclass(frozen=True, slots=True)
class StatusParts:
    """The parts of a gateway that its status is read from. `cells`, `cache`, `keys` and `tls` are None where
    it has none. `proposal` returns the plan that control asked for."""

    serving: Serving
    gateway: Gateway
    fleet: Fleet
    telemetry: Telemetry
    operations: Operations
    devices: DeviceBoard
    nodes: NodeBoard
    cells: CellBoard | None
    edges: Edges
    rates: RateLimits
    cache: CachedServing | None
    keys: KeyWatch | None
    tls: Encryption | None
    proposal: Callable[[], ProposalStatus | None]
    rollouts: Callable[[], list[RolloutStatus]]
    shifts: Callable[[], dict[str, dict[str, float]]]


class StatusBoard:
    """Reads all of them. `started_us`: when the gateway began, by its clock."""

    def __init__(self, parts: StatusParts, started_us: int) -> None:
        self._parts = parts
        self._started_us = started_us

    def explain(self, model: ServedModel) -> Explanation:
        """Return the body of a model's explanation."""
        parts, control = self._parts, self._parts.fleet.control
        now_us = parts.gateway.now_us()
        explanation = explain(
            model,
            parts.gateway.standing(model.name),
            replicas_of(control, parts.gateway),
            parts.telemetry.counters(model.name, now_us),
            (now_us - self._started_us) / 1e6,
            scaled_model(control, model.name, parts.operations.current.settings.scaling.policy),
        )
        explanation["cache"] = self._cached(model)
        explanation["isolation"] = isolation_status(control.isolation(model, now_us))
        return explanation

    async def describe(self) -> Status:
        """Return the body of the status."""
        parts = self._parts
        gateway, telemetry, now_us = parts.gateway, parts.telemetry, parts.gateway.now_us()
        slices = self._slices()
        counters: dict[str, Counters] = {}
        for name, counted in telemetry.snapshot(now_us):
            counters[name] = counted
            await asyncio.sleep(0)  # requests first
        known = [name for name in gateway.models if name in counters]  # others came in between
        queue_rows = {name: gateway.queue_rows(name) for name in known}
        replicas = replicas_of(parts.fleet.control, gateway)
        uptime_s = (now_us - self._started_us) / 1e6
        status = describe(parts.serving, counters, queue_rows, replicas, slices, uptime_s)
        standings = parts.fleet.control.scaling.standings()
        for model in status["models"]:
            if (standing := standings.get(model["name"])) is not None:
                model["scaling"] = scaled_status(standing)
            self._complete(model, now_us)
        status["tenants"] = telemetry.tenants(now_us)
        self._add_machines(status)
        if rates := rates_status(parts.rates):
            status["rates"] = rates
        if proposal := parts.proposal():
            status["proposal"] = proposal
        if rollouts := parts.rollouts():
            status["rollouts"] = rollouts
        if shifts := parts.shifts():
            status["shifts"] = shifts
        status["move"] = self._move()
        return status

    def _complete(self, model: ModelStatus, now_us: int) -> None:
        """Add what only some models have."""
        control, gateway = self._parts.fleet.control, self._parts.gateway
        name = model["name"]
        served = gateway.models.get(name)
        if served is None:
            return
        model["objective"] = served.own.percentile / 100
        if served.spec.version:
            model["version"] = served.spec.version
        model["isolation"] = isolation_status(control.isolation(served, now_us))
        if sequences := sequence_status(gateway, (name,)):
            model["sequences"] = sequences[name]
        if cached := self._cached(served):
            model["cache"] = cached

    def _cached(self, model: ServedModel) -> CacheStatus | None:
        """Return the status of the model's kept answers."""
        parts = self._parts
        worth = parts.cache.worth if parts.cache is not None else {}
        return cache_status(model, worth, parts.telemetry.asked(model.name), parts.gateway.doubts)

    def _slices(self) -> list[SliceStatus]:
        """Return the slices; also those that are not held now, if somebody has given notice of them."""
        parts, busy_us = self._parts, self._parts.telemetry.busy_us()
        slices: list[SliceStatus] = []
        for name, record in parts.fleet.control.slices.items():
            slices.append(
                {
                    "name": name,
                    "state": record.status.value,
                    "pid": parts.fleet.pid(name),
                    "restarts": record.restarts,
                    "busy_us": busy_us.get(name, 0),
                }
            )
            if record.spec.rehearsed:
                slices[-1]["rehearsed"] = True
        held = {each["name"]: each for each in slices}
        for name, spec in slices_of(parts.fleet.control).items():
            if said := parts.operations.notices.said(spec):
                if name not in held:
                    slices.append({"name": name, "state": "not held", "pid": None, "restarts": 0})
                    held[name] = slices[-1]
                held[name]["notice"] = said
        return slices

    def _add_machines(self, status: Status) -> None:
        """Add the ports, the devices, and what connects the gateway with others."""
        parts = self._parts
        status["edges"] = [
            {"name": name, "listening": listening, "restarts": restarts}
            for name, (listening, restarts) in parts.edges.states().items()
        ]
        if gpus := parts.devices.describe():
            status["gpus"] = gpus
        if parts.tls is not None:
            status["tls"] = parts.tls.describe()
        if nodes := parts.nodes.describe():
            status["nodes"] = nodes
        if parts.cells is not None:
            status["cells"] = parts.cells.describe()

    def _move(self) -> MoveStatus:
        """Return how far what is wanted is so."""
        parts, progress = self._parts, self._parts.fleet.progress
        return {
            "state": progress.state.value,
            "step": progress.step,
            "steps": progress.steps,
            "reasons": [*progress.reasons],
            "waiting": [*progress.waiting],
            "refused": [
                *parts.operations.watch.refused,
                *(parts.keys.refused if parts.keys is not None else ()),
                *(parts.tls.faults if parts.tls is not None else ()),
            ],
        }
