"""All through which operators and clients change what a running gateway serves, put together."""

import asyncio
from collections.abc import Callable
from functools import partial

from fastapi import FastAPI

from router.grpc.rpc import RpcService
from router.management.admin import ChangeGuard, say_edit
from router.management.devices import DeviceBoard
from router.management.operations.applied import settings_in_force
from router.management.operations.current import Current
from router.management.operations.drift import PlacementDrift, planned, sight
from router.management.operations.gpu_notices import add_gpu_notices
from router.management.operations.notices import Notices, add_notices, slices_of
from router.management.operations.placement import PlacementService, add_placement
from router.management.operations.reloading import ModelReloads
from router.management.operations.repository.repository import Repository
from router.management.operations.repository.repository_rest import add_repository
from router.management.operations.repository.repository_rpc import repository_methods
from router.management.operations.watching import SettingsWatch
from router.settings import Settings
from router.settings.profiles import known_profiles
from serving.planning.proposing import lost_slices
from serving.ports import Serving
from serving.profile.files.store import ProfileStore
from serving.runtime.calls.gateway import Gateway
from serving.runtime.fleet import Fleet

Say = Callable[[str], None]


class Operations:
    """`settings`: in force; `filed`: what penstock.yaml says. `say`: prints a line for the operator."""

    def __init__(
        self, settings: Settings, filed: Settings, fleet: Fleet, gateway: Gateway, serving: Serving, say: Say
    ) -> None:
        store = ProfileStore(settings.profiles)
        self._say = say
        self._said: str | None = None
        self.current = Current(settings, fleet, lambda asked: known_profiles(asked, store))
        self.repository = Repository(self.current, serving, fleet.control.slices, filed, self._placed)
        self.watch = SettingsWatch(self.repository, say, say_edit)
        self.drift = PlacementDrift(partial(sight, fleet, gateway), lambda: planned(self.current.settings))
        self.placement = PlacementService(self.current, lambda: self.drift.found, partial(_lost_cores, fleet))
        self.notices = Notices(fleet, lambda: slices_of(fleet.control))
        self.reloads = ModelReloads(self.repository, lambda: self.current.settings, say)

    def offer(self, app: FastAPI, rpc: RpcService, guard: ChangeGuard, devices: DeviceBoard) -> None:
        """Put it on both servers, behind the guard over gRPC; before they start."""
        add_repository(app, self.repository)
        add_placement(app, self.placement)
        add_notices(app, self.notices)
        add_gpu_notices(app, devices.back)
        rpc.offer(guard.methods(repository_methods(self.repository)))

    async def run(self) -> None:
        """Watch penstock.yaml and what drifts, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch.run())
            tasks.create_task(self.drift.run())

    def _placed(self, filed: Settings) -> Settings:
        """Return the settings of the file with what was applied to them."""
        found, said = settings_in_force(filed)
        if said not in (None, self._said):
            self._say(str(said))
        self._said = said
        return found


def _lost_cores(fleet: Fleet) -> set[int]:
    """Return the cores that only lost slices have."""
    slices = fleet.control.slices
    lost = lost_slices(slices, fleet.failing.found)
    cores = {core for name in lost for core in slices[name].spec.cores}
    return cores - {core for name, each in slices.items() if name not in lost for core in each.spec.cores}
