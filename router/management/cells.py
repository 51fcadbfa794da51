"""This gateway among others: its door, its place at the meetings, and what it says of itself."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from math import exp
from typing import Final

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from router.http.elsewhere import Elsewhere
from router.management.nodes import following
from router.management.operations.repository.refusals import RepositoryError
from router.management.operations.repository.repository import Repository
from router.observing.cells.body import ALONE, CellsBody
from router.observing.telemetry import CellsPresent
from router.security.tls.certificates import Certificates
from router.settings import Settings
from serving.control.state.replicas import WorkerStatus
from serving.policy.cells.leading import CellReport
from serving.policy.limits.rate_shares import rate_shares
from serving.runtime.calls.gateway import Gateway
from serving.runtime.calls.rating import RatedServing
from serving.runtime.cells.address import ANYWHERE, own_host
from serving.runtime.cells.cells import Addresses, Cells
from serving.runtime.cells.door import CellDoor
from serving.runtime.cells.serving import CellsServing
from serving.runtime.cells.spec import CellsSpec
from serving.runtime.fleet import Fleet

logger = logging.getLogger(__name__)

UNFIT_US: Final = 60_000_000
"""For so long a cell says that it could not load a model; then it may be tried there again."""
SENT_S: Final = 3.0
"""Over which the requests of a tenant are smoothed."""
LEAVE_S: Final = 10.0
"""What a gateway that ends waits at most until others have its models."""


async def joined(settings: Settings) -> tuple[Settings, Cells | None]:
    """Return the settings with the models that this cell is to serve, and its place at the meetings.

    Without `cells:`, return all models and None.
    """
    spec = settings.cells
    if spec is None:
        return settings, None
    report = CellReport(spec.name, len(settings.slices), frozenset(_names(settings)), {}, frozenset())
    cells = Cells(spec, lambda: report, _context(spec))
    own = await cells.join()
    if own is None:
        return settings, cells
    models = tuple(model for model in settings.models if model.name in own)
    logger.info("cell %s serves %d of %d models", spec.name, len(models), len(settings.models))
    return replace(settings, models=models), cells


def add_cells(app: FastAPI, describe: Callable[[], CellsBody | None]) -> None:
    """Add the route to the application. `describe` returns None for a gateway that is alone."""

    @app.get("/v2/cells", tags=["operation"])
    async def cells() -> JSONResponse:
        """Return the cells, and by model and cell the share of its requests that goes there."""
        body = describe()
        return JSONResponse({"error": ALONE}, 404) if body is None else JSONResponse(body)


class CellBoard:
    """The cell of a gateway. `serving`: what edges call, around `behind`."""

    def __init__(
        self, cells: Cells, behind: RatedServing, fleet: Fleet, gateway: Gateway, filed: Settings
    ) -> None:
        self.cells = cells
        self.serving = CellsServing(behind)
        self._rates = behind.rates
        self._sent = SentRates()
        self._door = CellDoor(cells.spec, behind)
        self._fleet = fleet
        self._gateway = gateway
        self._repository: Repository | None = None
        self._unfit: dict[str, int] = {}  # until when
        self._following: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._filed: Set[str] = frozenset()
        self.know(filed)
        cells.look = self._look
        cells.serving = self.serving
        cells.met = self._divide
        self.serving.on_routes = self._on_routes

    def know(self, filed: Settings) -> None:
        """Know the models of penstock.yaml."""
        self._filed = frozenset(_names(filed))
        self.serving.know({model.name: model for model in filed.models})

    def follow(self, repository: Repository) -> None:
        """Load and unload through this repository."""
        self._repository = repository
        repository.cell_models = frozenset(self._gateway.models)
        self.cells.follow = self._follow

    def offer(self, app: FastAPI) -> None:
        """Add the redirects to other cells to the application."""
        app.add_middleware(Elsewhere, where=self._where)

    def present(self) -> CellsPresent:
        """Return what metrics show."""
        cells = self.cells
        there = {each.name: not each.reason for each in cells.cells() if each.name != cells.spec.name}
        return CellsPresent(there, dict(self.serving.passed), cells.version, not cells.fault)

    def _where(self, model: str) -> str:
        """Return the REST address of a cell that answers for a model, "" for this gateway."""
        return "" if model in self._gateway.models else self.cells.rest_of(model)

    async def start(self, rest: str, grpc: str, certificates: Certificates | None) -> str:
        """Open the door and go to the meetings; return the door's address.

        Raises OSError if it cannot listen.
        """
        spec = self.cells.spec
        port = await self._door.start(None if certificates is None else following(certificates))
        host = spec.host
        if host in ANYWHERE and not spec.address:
            host = await asyncio.to_thread(own_host, spec.redis.url)
        host = f"[{host}]" if ":" in host else host
        door = spec.address or f"{host}:{port}"
        self.cells.addresses = Addresses(door, _reached(rest, door), _reached(grpc, door))
        await self.cells.beat()
        self._running = asyncio.create_task(self.cells.run())
        return door

    async def leave(self) -> None:
        """Have others take over what only this cell has, as far as they do so in time."""
        if self._running is None or len(self.cells.reports) < 2:
            return
        self.cells.leaving = True
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.cells.beat()
                while self.cells.is_needed():
                    await self.cells.beaten.wait()
        except TimeoutError:
            logger.warning("cell %s leaves before others have all of its models", self.cells.spec.name)

    async def drain(self, timeout_s: float) -> None:
        """Wait until the calls of other cells are answered."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._door.open and self._running is not None:
                    await self.cells.beaten.wait()

    async def close(self, *, stays: bool = False) -> None:
        """Leave the meetings, and close the door. `stays`: the cell goes on by its next gateway."""
        self.cells.stays = stays
        for task in (self._running, self._following):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._running = self._following = None
        await self.cells.close()
        await self._door.close()

    def describe(self) -> CellsBody:
        """Return what `GET /v2/cells` says."""
        cells = self.cells
        return {
            "name": cells.spec.name,
            "version": cells.version,
            "decided_by": cells.decided_by,
            "fault": cells.fault,
            "cells": [
                {
                    "name": each.name,
                    "door": each.addresses.door,
                    "rest": each.addresses.rest,
                    "grpc": each.addresses.grpc,
                    "slices": each.slices,
                    "work": round(each.work, 3),
                    "models": [*each.models],
                    "reason": each.reason,
                    "trip_us": each.trip_us,
                    "passed": each.passed,
                }
                for each in cells.cells()
            ],
            "homes": {model: _shares(parts) for model, parts in sorted(cells.homes.items())},
        }

    def _on_routes(self) -> None:
        """Note that what this gateway can answer by others has changed."""
        self._gateway.on_readiness()
        self._fleet.on_change()

    def _look(self) -> CellReport:
        gateway, now_us = self._gateway, self._gateway.now_us()
        self._unfit = {model: until_us for model, until_us in self._unfit.items() if until_us > now_us}
        slices = sum(record.status is not WorkerStatus.LOST for record in self._fleet.control.slices.values())
        work: dict[str, float] = {}
        for name in gateway.models:
            share, count = gateway.load(name)
            work[name] = share * count
        ready = frozenset(name for name in work if gateway.model_ready(name))
        name, unfit = self.cells.spec.name, frozenset(self._unfit)
        sent = self._sent.look({name: rate.sent for name, rate in self._rates.by_tenant.items()}, now_us)
        return CellReport(name, slices, frozenset(self._filed), work, ready, unfit, sent)

    def _divide(self, reports: Sequence[CellReport]) -> None:
        """Hold tenants to what this cell has of their rates beside the others."""
        own = self.cells.spec.name
        self._rates.divide(rate_shares(own, {each.name: each.sent for each in reports}))

    def _follow(self, models: Set[str]) -> None:
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._keep(frozenset(models)))

    async def _keep(self, models: frozenset[str]) -> None:
        """Serve these models. If they cannot all be had, each that is new is tried alone."""
        repository = self._repository
        assert repository is not None  # noqa: S101  # `follow` has been called
        served = frozenset(self._gateway.models)
        logger.info("cell %s: %s", self.cells.spec.name, _change(served, models))
        try:
            await repository.keep(models)
            return
        except RepositoryError as error:
            if len(models - served) == 1:
                self._mark_unfit(next(iter(models - served)), str(error))
                return
        for model in sorted(models - served):
            try:
                await repository.keep(frozenset(self._gateway.models) | {model})
            except RepositoryError as error:
                self._mark_unfit(model, str(error))

    def _mark_unfit(self, model: str, why: str) -> None:
        logger.warning("cell %s cannot serve %s: %s", self.cells.spec.name, model, why)
        self._unfit[model] = self._gateway.now_us() + UNFIT_US


class SentRates:
    """Requests a second by tenant, smoothed over some seconds."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rates: dict[str, float] = {}
        self._looked_us = 0

    def look(self, counts: dict[str, int], now_us: int) -> dict[str, float]:
        """Return the rates now. `counts`: requests since the start, by tenant."""
        passed_s, self._looked_us = (now_us - self._looked_us) / 1e6, now_us
        weight = 1 - exp(-passed_s / SENT_S)
        for tenant, count in counts.items():
            now = (count - self._counts.get(tenant, count)) / passed_s if passed_s else 0.0
            self._rates[tenant] = self._rates.get(tenant, 0.0) * (1 - weight) + now * weight
        self._counts = counts
        self._rates = {tenant: self._rates[tenant] for tenant in counts}
        return dict(self._rates)


def _names(settings: Settings) -> list[str]:
    return [model.name for model in settings.models]


def _context(spec: CellsSpec) -> ssl.SSLContext | None:
    if not spec.tls:
        return None
    return ssl.create_default_context(cafile=spec.ca or None)


def _reached(address: str, door: str) -> str:
    """Return a port of this gateway as others reach it: at the host of its door."""
    scheme, sep, rest = address.rpartition("://")
    return f"{scheme}{sep}{door.rpartition(':')[0]}:{rest.rpartition(':')[2]}"


def _shares(parts: Mapping[str, float]) -> dict[str, float]:
    whole = sum(parts.values())
    return {
        name: round(part / whole, 4) if whole else round(1 / len(parts), 4) for name, part in parts.items()
    }


def _change(served: Set[str], models: Set[str]) -> str:
    come, go = sorted(models - served), sorted(served - models)
    said = [f"takes {', '.join(come)}"] if come else []
    return "; ".join([*said, f"lets go of {', '.join(go)}"] if go else said)
