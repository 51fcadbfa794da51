"""Accounts of GPU memory: nothing that the driver sees is lost."""

import asyncio
from dataclasses import replace
from pathlib import Path

from router.verbs.profiling.measuring import with_context
from serving.control.control import Control
from serving.profile.files.store import ProfileStore
from serving.runtime.fleet import Fleet
from serving.runtime.workers.gpu_memory import GpuMemory
from serving.runtime.workers.link import Link
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits
from serving.worker.frames.orders import Loaded
from tests.runtime.ground import Ground
from tests.runtime.test_fleet_scaling import SCALED


def test_the_first_replica_bears_the_context_and_the_next_one_its_own_growth() -> None:
    account = GpuMemory()
    assert account.loaded(7, 1, 100, 600) == 600
    assert account.loaded(7, 2, 200, 850) == 250
    assert account.loaded(8, 1, 100, 600) == 600  # another process has a context of its own


def test_a_driver_that_does_not_tell_leaves_the_workers_word() -> None:
    account = GpuMemory()
    assert account.loaded(7, 1, 100, 0) == 100
    assert account.loaded(7, 2, 200, 50) == 200


def test_what_a_replica_leaves_behind_counts_for_the_next() -> None:
    account = GpuMemory()
    account.loaded(7, 1, 100, 600)
    account.unloaded(7, 1)
    assert account.loaded(7, 2, 100, 620) == 620
    account.ended(7)
    assert account.loaded(7, 1, 100, 300) == 300


def test_a_replica_that_is_loaded_again_counts_once() -> None:
    account = GpuMemory()
    account.loaded(7, 1, 100, 600)
    assert account.loaded(7, 1, 100, 610) == 610


async def test_a_replica_on_a_gpu_counts_for_what_the_driver_sees(tmp_path: Path) -> None:
    spec = SliceSpec("g", (), device="cuda:0", kind="gpu-nvidia-h200")
    control = Control([spec], [replace(SCALED, slices=("g",))], {}, Limits(), lambda _spec: spec.kind)
    fleet = Fleet(control, Ground().gateway, ProfileStore(tmp_path))
    asked: list[int] = []

    async def weigh(pid: int) -> int:
        asked.append(pid)
        return 600

    fleet.weigh = weigh
    fleet._execute(control.start(0), 0)
    link = Link("g", fleet)
    fleet.worker_ready(link)
    record = control.slices["g"]
    async with asyncio.TaskGroup() as fleet._tasks:
        fleet.replica_loaded(link, Loaded(record.loading, 10, 100))
        assert control.slices["g"].loading  # not before the driver was asked
    assert asked == [link.pid]
    assert [each.memory_bytes for each in record.replicas.values()] == [600]


def test_a_profile_has_the_context_apart_from_the_model() -> None:
    assert with_context(Loaded(1, 10, 100), 600).import_bytes == 500
    assert with_context(Loaded(1, 10, 100, 0, 30), 0).import_bytes == 30
    assert with_context(Loaded(1, 10, 100), 600).memory_bytes == 100
