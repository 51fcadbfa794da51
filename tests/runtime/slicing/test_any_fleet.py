"""Over random fleets and moves, what `DeviceShares` promises: no slice loses what it has.

The GPUs are a model of `nvidia-smi mig` that refuses what hardware refuses. Shares by MPS have no daemon.
"""

import asyncio
from random import Random

import pytest

from serving.runtime.slicing.choice import VisibleDevice
from serving.runtime.slicing.contract import (
    Actuator,
    FaultDomain,
    Guarantee,
    Resize,
    Setting,
    SlicingError,
)
from serving.runtime.slicing.inventory import Gpu, Inventory
from serving.runtime.slicing.mig.mig import MigGpu, MigInstances
from serving.runtime.slicing.opening import DeviceShares
from serving.runtime.slicing.timeslice import TimeSlices
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing.smi import Smi, table
from tests.seeds import seeds

PROFILES = {device: tuple(each.name for each in table(device)) for device in ("a100", "h200")}
PERCENTS = Guarantee(
    False, tuple(Share("mps", float(n)) for n in range(1, 101)), Resize.NEW_PROCESS, FaultDomain.DEVICE, 48
)
MOVES = 40


class Percents(TimeSlices):
    """Shares by MPS, without the daemon."""

    guarantee = PERCENTS


class Fleet:
    """Some GPUs, the slices on them, and the shares that they have."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.smis: dict[str, Smi] = {}
        self.mig: dict[str, MigInstances] = {}
        self.gpus = tuple(self._gpu(index) for index in range(random.randint(1, 4)))
        self.open: dict[str, tuple[SliceSpec, str]] = {}  # by slice, and what its worker sees
        self.refused = 0
        self.shares = DeviceShares(lambda: Inventory((0,), self.gpus, "580", 13010), self._make, {})
        self._count = 0

    def _gpu(self, index: int) -> Gpu:
        mig, name = self.random.random() < 0.6, self.random.choice(sorted(PROFILES))
        self.smis[f"GPU-{index}"] = Smi(name)
        return Gpu(index, f"GPU-{index}", name, 1, 0, (9, 0), 132, mig, (), None, None, 0, ())

    def _make(self, kind: str, visible: VisibleDevice, _: Inventory) -> Actuator:
        gpu = visible.gpu
        if kind != "mig":
            return Percents(gpu.uuid)
        smi = self.smis[gpu.uuid]
        found = MigInstances(MigGpu(0, smi, dry_run=False), lambda: _uuids(gpu.uuid, smi))
        self.mig[gpu.uuid] = found
        return found

    async def move(self) -> None:
        if self.open and self.random.random() < 0.45:
            name = self.random.choice(sorted(self.open))
            self.shares.close(name)
            del self.open[name]
            return
        gpu = self.random.choice(self.gpus)
        share = Share("mps", float(self.random.randint(1, 100)))
        if gpu.mig:
            share = Share.parse(f"mig:{self.random.choice(PROFILES[gpu.name])}")
        self._count += 1
        spec = SliceSpec(f"s{self._count}", (), device=f"cuda:{gpu.index}", part=share, kind="gpu")
        try:
            setting = await self.shares.open(spec)
        except SlicingError:
            self.refused += 1
        else:
            self.open[spec.name] = spec, _sees(setting)

    def check(self) -> None:
        for spec, sees in self.open.values():
            if spec.share.kind == "mig":
                uuid, _, number = sees.rpartition("/")
                assert self.smis[uuid].placed[int(number)][0] == spec.share.profile
        instances = [sees for spec, sees in self.open.values() if spec.share.kind == "mig"]
        assert len(instances) == len({*instances})


def _uuids(uuid: str, smi: Smi) -> dict[int, str]:
    return {number: f"{uuid}/{number}" for number in smi.computing}


def _sees(setting: Setting) -> str:
    return dict(setting.environment)["CUDA_VISIBLE_DEVICES"] or ""


async def _play(seed: int) -> Fleet:
    fleet = Fleet(Random(seed))
    for _ in range(MOVES):
        await fleet.move()
        fleet.check()
    for name in [*fleet.open]:
        await fleet.shares.open(fleet.open[name][0])  # as after a restart of its worker
    fleet.check()
    await fleet.shares.stop()
    return fleet


@pytest.mark.parametrize("seed", seeds(200))
def test_no_slice_loses_what_it_has(seed: int) -> None:
    asyncio.run(_play(seed))


def test_random_moves_open_close_and_are_refused() -> None:
    fleets = [asyncio.run(_play(seed)) for seed in range(10)]
    assert sum(len(each.open) for each in fleets) > 30
    assert sum(each.refused for each in fleets) > 10
    assert any(len(smi.ran) > 5 for each in fleets for smi in each.smis.values())
