"""One gateway with its servers and workers, put together from settings."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any  # the generated messages carry no types

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from router.grpc.servers import RPC_SERVERS, join
from router.http.app import create_app
from router.http.endpoints.routes import add_endpoints
from router.http.fastpath import RestServer, create_server
from router.http.feedback import add_feedback
from router.logs.logs import events, lines_dropped
from router.management.admin import ChangeGuard
from router.management.cells import CellBoard, add_cells
from router.management.devices import DeviceBoard
from router.management.nodes import NodeBoard
from router.management.operations.operations import Operations, Say
from router.management.operations.placement import add_proposed
from router.management.rollouts.board import RolloutBoard
from router.management.rollouts.route import add_rollouts
from router.management.sharedmemory import offer_shared_memory
from router.management.shifts import ShiftBoard
from router.management.triton.model_config import model_config
from router.management.triton.offering import offer_extensions
from router.observing.page.feed import Feed
from router.observing.page.route import add_page
from router.observing.redis_status import describe_redis, share
from router.observing.requests.route import add_requests
from router.observing.sequence_status import sequence_status
from router.observing.status import ReplicaBody, Status
from router.observing.telemetry import (
    ConditionPresent,
    LoopLag,
    MetricsServer,
    Present,
    Telemetry,
)
from router.observing.tracing.begin import begin_tracing
from router.observing.tracing.tracing import Tracing
from router.observing.troubles import settled, troubles
from router.payloads.bulk.pool import Bulk, process_count
from router.payloads.regions.registry import open_registry
from router.protocol.oip import versions_of
from router.security.auth.following import KeyWatch
from router.security.auth.guard import KeyGuard
from router.security.auth.keys import KeyFile
from router.settings import Settings
from router.settings.door.admin import AdminSettings
from router.settings.gateway import ServerSettings
from router.settings.keys import KeySpec
from router.settings.machine.memory import free_memory_bytes
from router.settings.profiles import known_profiles
from router.startup.edges import Edges
from router.startup.encryption import Encryption
from router.startup.picture import auth_of, connections_of, replicas_of, scaling_of
from router.startup.replanning import Replanning
from router.startup.status_board import StatusBoard, StatusParts
from router.startup.what_if import WhatIf, add_what_if
from router.verbs.explain.route import add_explain
from serving.control.control import Control
from serving.control.state.replicas import ReplicaStatus
from serving.control.state.rules import Rules
from serving.policy.estimates.freshness import Freshness
from serving.ports import Call, Serving
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.runtime.caching.caching import CachedServing
from serving.runtime.caching.redis_tier import RedisTier
from serving.runtime.calls.gateway import Gateway
from serving.runtime.calls.rating import RatedServing
from serving.runtime.cells.cells import Cells
from serving.runtime.files.recorder import Recorder
from serving.runtime.fleet import Fleet
from serving.runtime.slicing.choice import device_actuator
from serving.runtime.slicing.opening import DeviceShares
from serving.simulation.tables import find_capacity
from serving.values.specs import Limits, ServedModel
from serving.values.versions import ONLY

Keys = Sequence[KeySpec]


class GatewayServer:
    """Everything that runs in the gateway process. Made on the running event loop; `bind` opens its ports."""

    def __init__(
        self, settings: Settings, filed: Settings, say: Say, keys: Keys = (), cells: Cells | None = None
    ) -> None:
        """Build all parts. `settings`: in force; `filed`: of penstock.yaml; `keys`: of its keys file.
        `cells`: this gateway among others."""
        self._settings = settings
        models, server, limits = settings.models, settings.server, settings.limits
        tenants = [tenant.name for tenant in settings.tenants]
        self._telemetry = Telemetry(models, tenants, [each.name for each in settings.slices])
        self._recorder = Recorder(settings.recording, time.time_ns() // 1000) if settings.recording else None
        record = self._recorder.record if self._recorder else None
        self.gateway = Gateway(models, limits, self._telemetry, settings.tenants, record)
        self._started_us = self.gateway.now_us()
        self._telemetry.triton_names = server.triton_metrics
        self._telemetry.epoch_us = time.time_ns() // 1000 - self._started_us
        self._tracing = self._trace(settings)
        self._selecting = selecting = self._make_calls(settings, record)
        self._rates = selecting.rates
        store = ProfileStore(settings.profiles)
        known = known_profiles(settings, store)
        self.profile_problems = tuple(store.problems)
        rules = Rules(settings.remeasure, settings.scaling)
        control = Control(settings.slices, models, known, limits, device_kind, rules)
        shares = DeviceShares(make=partial(device_actuator, recut=settings.placement.recut))
        self.fleet = Fleet(control, self.gateway, store, shares, find_capacity, settings.workers)
        self.cells = None if cells is None else CellBoard(cells, selecting, self.fleet, self.gateway, filed)
        self.serving: Serving = selecting if self.cells is None else self.cells.serving
        self._devices = DeviceBoard(self.fleet, shares)
        self.tls = None if server.tls is None else Encryption(server.tls, limits, say)
        self.nodes = NodeBoard(settings, self.fleet, None if self.tls is None else self.tls.certificates)
        self.fleet.observer, self.fleet.free_memory = self._telemetry, free_memory_bytes
        self._telemetry.read_present = self._present
        self._lag = LoopLag(self.gateway.now_us, self._telemetry.observe_lag, self._telemetry.stalled)
        self._sharing: asyncio.Task[None] | None = None
        self._bulk = Bulk(limits)
        self._guard = KeyGuard(KeyFile(keys))
        self.key_watch = None if settings.auth is None else KeyWatch(settings, self._guard, say)
        self.operations = Operations(settings, filed, self.fleet, self.gateway, self.serving, say)
        self.replanning = Replanning(
            self.fleet, self.operations.current, self.operations.placement, self._look
        )
        self._feed = Feed(lambda: self.board.describe(), events)
        self._make_edges(server, limits)
        self.rollouts = self._make_rollouts()
        self.shifts = ShiftBoard(self._telemetry.journal, settings.path, answers=self._telemetry.answers)
        self.board = self._board()
        self._known = set(self.gateway.models)
        self._join_cells()
        self.gateway.on_models = self._take_models
        self.rest_url = self.grpc_address = self.metrics_url = self.nodes_address = self.cells_address = ""

    @property
    def admin_url(self) -> str:
        """Where the admin door is: a URL, or `unix:` and a path."""
        return self._changes.address

    def _make_calls(self, settings: Settings, record: Callable[[Call, int], None] | None) -> RatedServing:
        """Return what takes the calls of this gateway's models: rates, selection, cache, and the core."""
        self._cache: CachedServing | None = None
        self._redis: RedisTier | None = None
        if settings.cache is not None:
            bound = settings.limits.queue_requests
            self._cache = CachedServing(self.gateway, settings.cache, self._telemetry, record, bound)
            self._redis = share(self._cache, settings.cache, self._telemetry.epoch_us)
        behind = self._cache or self.gateway
        return RatedServing(behind, self._telemetry.selected, limited=settings.tenants)

    def _make_edges(self, server: ServerSettings, limits: Limits) -> None:
        """Make the servers, the routes that they offer, and the watch over them."""
        release, statistics = version("penstock"), self._telemetry.statistics
        regions = open_registry(server.client_shm, limits, self._bulk, lambda: self.rest.account.refusal())
        app = create_app(
            self.serving,
            statistics,
            name=server.name,
            version=release,
            bulk=self._bulk,
            why_dead=lambda: self.edges.why_dead,
        )
        add_feedback(app, self._selecting)
        add_endpoints(app, self.serving, self._bulk, self._telemetry.endpoint_asked)
        self._add_status(app)
        add_cells(app, lambda: None if self.cells is None else self.cells.describe())
        self._app, self._changes = app, ChangeGuard(self._settings.admin, server.host)
        self.rest = create_server(self.serving, app, server.host, server.rest_port, limits)
        self._admin = self._make_door(self._settings.admin, app)
        rpc = RPC_SERVERS[server.grpc]
        self.rpc = rpc(self.serving, server.name, release, limits, server.host, statistics)
        self.rest.use(self._bulk)
        self._count_memory()
        self.rpc.use(self._bulk)
        self.operations.offer(app, self.rpc, self._changes, self._devices)
        offer_shared_memory(app, self.rest, self.rpc, regions)
        self.operations.repository.configure = self._configure
        self.operations.repository.on_filed = self._take_filed
        traces = None if self._tracing is None else self._tracing.triton
        offer_extensions(app, self.rpc, self._changes, self.serving, self._configure, traces)
        self._changes.stand_before(app)
        if self._settings.auth is not None:
            for each in (self.rest, self._admin, self.rpc):
                each.ask_for_keys(self._guard)
        if server.cors:
            self.rest.allow_origins(server.cors)
        if self._settings.logging.access:
            for each in (self.rest, self._admin, self.rpc):
                each.log_access()
        self._metrics = MetricsServer(self._telemetry)
        if self._settings.auth is not None and self._settings.auth.metrics:
            self._metrics.admit = self._guard.admit_scrape
        if self.tls is not None:
            self.tls.use(self.rest, self.rpc, self._metrics, self._admin)
        self.edges = Edges(
            {"rest": self.rest, "grpc": self.rpc, "admin": self._admin, "metrics": self._metrics}
        )
        join(self.rest, self.rpc, self.edges.look)
        self.rpc.is_live = lambda: not self.edges.why_dead
        self.gateway.on_readiness = self.rpc.health.look

    def _join_cells(self) -> None:
        """Follow the map of cells: models come and go by it."""
        if self.cells is None:
            return
        self.cells.offer(self._app)
        self.cells.follow(self.operations.repository)
        self.cells.serving.tracer = self._tracing
        self.cells.serving.on_models = self._take_models
        self._take_models()

    def _configure(self, model: ServedModel) -> Any:
        """Return the model's ModelConfig."""
        slices = {name: record.spec for name, record in self.fleet.control.slices.items()}
        keeps, versions = self._cache is not None, versions_of(self.serving, model.name)
        return model_config(model, self._settings.limits, slices, keeps=keeps, versions=versions)

    def _take_filed(self, filed: Settings) -> None:
        """Follow another penstock.yaml where that is no change of models or slices."""
        self._selecting.follow(filed.tenants)
        if self.cells is not None:
            self.cells.know(filed)

    def _make_door(self, admin: AdminSettings, app: FastAPI) -> RestServer:
        """Return the admin door. Inference works there too, though not on the fast path."""
        limits = self._settings.limits
        behind = self._changes.at_admin(app)
        door = create_server(self.serving, behind, admin.host, admin.port, limits, direct=False)
        door.listen_as("the admin door", admin.socket)
        return door

    def _count_memory(self) -> None:
        """Count the memory of all edges in one account."""
        account = self.rest.account
        account.count("calls", self.gateway.held_bytes)
        if self.cells is not None:
            account.count("passed", self.cells.serving.held_bytes)
        account.count("bulk", lambda: self._bulk.held_bytes)
        self.rpc.count(account)
        self._bulk.use(account)

    def _make_rollouts(self) -> RolloutBoard:
        path, renew = self._settings.path, self.operations.repository.renew
        return RolloutBoard(self._selecting, self._telemetry, self._selecting.splits, path, renew)

    def _take_models(self) -> None:
        """Tell telemetry and the REST server that the models have changed."""
        if self.cells is not None:
            self.cells.serving.look()
        models = self.serving.models
        for name in self._known - models.keys():
            self._telemetry.retire(name)
        for model in models.values():
            self._telemetry.serve(model)
        self._known = set(models)
        self.rollouts.follow()
        self.rest.serve(models)

    async def prepare(self) -> None:
        """Start what needs no port. Call this once, before `bind`."""
        await self._bulk.start(process_count())

    async def bind(self) -> None:
        """Open all ports; OSError names the one that cannot be had."""
        server, admin = self._settings.server, self._settings.admin
        host = f"[{server.host}]" if ":" in server.host else server.host
        start = f"http{'s' * (self.tls is not None)}://{host}"
        self.rest_url = f"{start}:{await self.rest.start()}"
        port = await self._admin.start()
        self.replanning.door = self._changes.address = replace(admin, port=port).address
        self.grpc_address = f"{host}:{await self.rpc.start(server.grpc_port)}"
        self.metrics_url = f"{start}:{await self._metrics.start(server.host, server.metrics_port)}"
        self.nodes_address = await self.nodes.start()
        if self.cells is not None:
            certificates = None if self.tls is None else self.tls.certificates
            self.cells_address = await self.cells.start(self.rest_url, self.grpc_address, certificates)
        self._lag.start()
        if self._redis is not None:
            self._sharing = asyncio.create_task(self._redis.run())

    def stop_listening(self) -> None:
        """Refuse new connections at all edges but gRPC's; open ones are still served."""
        self.rest.stop_listening()
        self._admin.stop_listening()
        self._metrics.tcp.close()

    async def drain(self, timeout_s: float) -> int:
        """Close the listeners, answer what was accepted; returns how many requests were left over."""
        self.rest.stop_listening()
        self._feed.close()
        ends = [self.rest.drain(timeout_s), self._admin.drain(timeout_s), self.rpc.stop(timeout_s)]
        if self.cells is not None:
            ends.append(self.cells.drain(timeout_s))
        await asyncio.gather(*ends)
        self.gateway.drain()
        return self.serving.open_requests

    async def close(self) -> None:
        """Close what is still open."""
        await self.replanning.close()
        if self.cells is not None:
            await self.cells.close()
        self._feed.close()
        self._lag.stop()
        self._devices.stop()
        if self._sharing is not None:
            self._sharing.cancel()
            await asyncio.wait([self._sharing])
        servers = self.rest.drain(0), self._admin.drain(0), self.rpc.stop(0), self._metrics.stop()
        await asyncio.gather(*servers, self.nodes.close())
        if self.tls is not None:
            self.tls.close()
        await self._bulk.close()
        if self._recorder is not None:
            await self._recorder.close()
        if self._tracing is not None:
            self._telemetry.trace = None
            await asyncio.to_thread(self._tracing.close)

    @property
    def settled(self) -> bool:
        """Every model is ready, here or in another cell, and nothing that can be is still on its way."""
        return self.serving.ready and settled(self.fleet.control.slices)

    def troubles(self) -> dict[str, str]:
        """Return what keeps workers and replicas from being ready, a sentence each, by where."""
        return troubles(self.fleet.control.slices)

    def _add_status(self, app: FastAPI) -> None:
        @app.get("/v2/status", tags=["operation"])
        async def status() -> JSONResponse:
            """Return the models, replicas, slices and counters of this moment; `penstock status` shows
            them."""
            return JSONResponse(await self.board.describe())

        add_requests(app, self._telemetry)
        add_proposed(app, self.replanning.take)
        add_rollouts(app, lambda: self.rollouts)
        add_page(app, self._feed, events)
        what_if = WhatIf(self.operations.current, self._telemetry.journal.shapes, self._ratios)
        add_what_if(app, what_if, self.gateway.rates)
        add_explain(app, self.serving, lambda model: self.board.explain(model))

    async def _look(self) -> tuple[Status, Mapping[str, float]]:
        return await self.board.describe(), self.gateway.rates()

    def _ratios(self) -> dict[tuple[str, str, str], float]:
        """Return what batches take over their profiles, where those are not fresh."""
        judged = self.gateway.judgements()
        odd = (each for each in judged if each.freshness is not Freshness.FRESH)
        return {(each.slice, each.model, each.variant): each.ratio for each in odd}

    def _board(self) -> StatusBoard:
        parts = StatusParts(
            self.serving,
            self.gateway,
            self.fleet,
            self._telemetry,
            self.operations,
            self._devices,
            self.nodes,
            self.cells,
            self.edges,
            self._rates,
            self._cache,
            self.key_watch,
            self.tls,
            self.replanning.describe,
            self.rollouts.describe,
            self.shifts.describe,
        )
        return StatusBoard(parts, self._started_us)

    def _trace(self, settings: Settings) -> Tracing | None:
        return begin_tracing(settings.tracing, self._telemetry, self.gateway.outgoing, self._version_of)

    def _version_of(self, name: str) -> str:
        model = self.gateway.models.get(name)
        return ONLY if model is None else model.spec.model_version

    def _present(self) -> Present:
        gateway = self.gateway
        store = self._cache.store if self._cache else None
        replicas = replicas_of(self.fleet.control, self.gateway)
        worth = self._cache.worth if self._cache else {}
        return Present(
            now_us=gateway.now_us(),
            open_requests=self.serving.open_requests,
            queued={
                name: (gateway.queue_rows(name), gateway.queue_requests(name)) for name in gateway.models
            },
            replicas=Counter((each["model"], each["state"]) for each in replicas),
            profiles=gateway.judgements(),
            recorded=(self._recorder.recorded, self._recorder.dropped) if self._recorder else (0, 0),
            cached=(store.held_bytes, len(store), store.evictions) if store is not None else (0, 0, 0),
            worth={name: (each.enabled, each.gain_us, each.bypassed) for name, each in worth.items()},
            drifted=len(self.operations.drift.found),
            replans=self.replanning.outcomes,
            scaling=scaling_of(self.fleet.control, self.gateway),
            condition=self._condition(replicas),
            gpus=self._devices.used(),
            cordoned=self._devices.cordoned,
            redis=describe_redis(self._redis),
            versions={name: self._version_of(name) for name in gateway.models},
        )

    def _condition(self, replicas: Sequence[ReplicaBody]) -> ConditionPresent:
        gateway, watch = self.gateway, self.operations.watch
        variants: dict[tuple[str, str], bool] = {}
        for each in replicas:
            where = (each["model"], each["variant"])
            variants[where] = variants.get(where, False) or each["state"] == ReplicaStatus.READY.value
        ready = {name: gateway.model_ready(name) for name in gateway.models}
        account, control = self.rest.account, self.fleet.control
        isolation = {name: control.isolation(each, gateway.now_us()) for name, each in gateway.models.items()}
        return ConditionPresent(
            ready,
            variants,
            reloaded=(not watch.refused, watch.in_force_s),
            held={**account.by_kind(), "cache": self._cache.store.held_bytes if self._cache else 0},
            held_limit=account.limit_bytes,
            given_up=account.given_up,
            paused=account.paused_count,
            connections=connections_of(self.rest, self._admin, self._metrics),
            turned_out={
                "rest": self.rest.turned_out,
                "admin": self._admin.turned_out,
                "metrics": self._metrics.turned_out,
            },
            edges=self.edges.states(),
            lines_dropped=lines_dropped(),
            traces_dropped=None if self._tracing is None else self._tracing.dropped,
            auth=auth_of(self.key_watch, self._guard),
            rates={name: rate.refused for name, rate in self._rates.by_tenant.items()},
            tls=self.tls.present() if self.tls is not None else None,
            nodes=self.nodes.present(),
            rollouts=self.rollouts.shares(),
            shifts=self.shifts.describe(),
            needed=self.nodes.needed(),
            cells=None if self.cells is None else self.cells.present(),
            rehearsed={name: record.spec.rehearsed for name, record in control.slices.items()},
            isolation={name: (each.died, bool(each.processes)) for name, each in isolation.items()},
            sequences=sequence_status(gateway, gateway.models),
        )
