"""What `DeviceShares` promises: a share stays over restarts, and goes back when its slice is gone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from serving.runtime.slicing import opening
from serving.runtime.slicing.choice import VisibleDevice
from serving.runtime.slicing.contract import Actuator, SlicingError
from serving.runtime.slicing.inventory import Gpu, Inventory, MigDevice
from serving.runtime.slicing.mig.mig import MigGpu, MigInstances
from serving.runtime.slicing.mps.clients import Ended
from serving.runtime.slicing.opening import DeviceShares
from serving.runtime.slicing.timeslice import TimeSlices, on_device
from serving.values.slice_specs import Share, SliceSpec, own_process
from tests.runtime.slicing.smi import Smi

GPU = Gpu(0, "GPU-0", "NVIDIA H200", 1, 0, (9, 0), 132, False, (), None, None, 0, ())
SPEC = SliceSpec("a", (), device="cuda:0", part=Share("time", 1.0), kind="gpu-nvidia-h200")


class Noted(TimeSlices):
    """Turns on a GPU that note what was asked of them."""

    def __init__(self, uuid: str, noted: list[str]) -> None:
        super().__init__(uuid)
        self._noted = noted

    def close(self, name: str) -> None:
        self._noted.append(f"close {name}")

    def stop(self) -> None:
        self._noted.append("stop")


def shares(noted: list[str]) -> DeviceShares:
    def make(kind: str, device: VisibleDevice, _: Inventory) -> Actuator:
        noted.append(f"make {kind} on {device.uuid}")
        return Noted(device.uuid, noted)

    return DeviceShares(lambda: Inventory((0,), (GPU,)), make, {})


async def test_a_share_stays_open_over_restarts_and_goes_back_with_its_slice() -> None:
    noted: list[str] = []
    there = shares(noted)
    first = await there.open(SPEC)
    assert ("CUDA_VISIBLE_DEVICES", "GPU-0") in first.environment
    assert await there.open(SPEC) == first
    await there.open(replace(SPEC, name="b"))
    assert noted == ["make time on GPU-0"]
    there.close("a")
    there.close("b")
    await there.open(replace(SPEC, name="c"))  # behind the two in the one thread
    assert noted == ["make time on GPU-0", "close a", "close b", "stop", "make time on GPU-0"]
    await there.stop()
    assert noted[-1] == "stop"


async def test_another_kind_of_share_waits_until_the_gpu_is_free() -> None:
    there = shares([])
    await there.open(SPEC)
    other = replace(SPEC, name="b", part=Share("whole", 1.0))
    with pytest.raises(SlicingError, match="cuda:0 still has shares of kind time; whole:1 waits"):
        await there.open(other)
    there.close("a")
    await there.open(other)
    await there.stop()


async def test_slices_that_are_opened_together_are_placed_together() -> None:
    smi = Smi()

    def make(_kind: str, _device: VisibleDevice, _: Inventory) -> Actuator:
        return MigInstances(MigGpu(0, smi, dry_run=False), lambda: {n: f"MIG-{n}" for n in smi.computing})

    there = DeviceShares(lambda: Inventory((0,), (replace(GPU, mig=True),)), make, {})
    shares = [Share.parse(f"mig:{profile}") for profile in ("1g.18gb",) * 4 + ("3g.71gb",)]
    specs = [replace(SPEC, name=f"s{number}", part=share) for number, share in enumerate(shares)]
    settings = await asyncio.gather(*(there.open(each) for each in specs))
    assert len({dict(each.environment)["CUDA_VISIBLE_DEVICES"] for each in settings}) == 5
    assert [argv[4:6] for argv in smi.ran] == [("-cgi", "9:4,19:0,19:1,19:2,19:3")]
    await there.stop()


async def test_a_models_own_process_computes_in_the_mig_instance_of_its_slice() -> None:
    smi = Smi()

    def make(_kind: str, _device: VisibleDevice, _: Inventory) -> Actuator:
        return MigInstances(MigGpu(0, smi, dry_run=False), lambda: {n: f"MIG-{n}" for n in smi.computing})

    there = DeviceShares(lambda: Inventory((0,), (replace(GPU, mig=True),)), make, {})
    whole = replace(SPEC, part=Share.parse("mig:7g.141gb"))  # there is room for one
    first = await there.open(whole)
    assert await there.open(replace(whole, name=own_process("a", "m"))) == first
    assert {name: each.instance for name, each in there.placed.items()} == {
        "a": there.placed["a"].instance, "a+m": there.placed["a"].instance,
    }  # fmt: skip
    there.close("a")
    with pytest.raises(SlicingError):
        await there.open(replace(whole, name="b"))
    there.close("a+m")
    assert await there.open(replace(whole, name="b")) == first
    await there.stop()


async def test_what_a_daemon_took_along_is_each_process_of_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    there = shares([])
    monkeypatch.setattr(Noted, "open", lambda _, spec: on_device(spec, "GPU-0"))
    for name in ("a", own_process("a", "m"), "b"):
        await there.open(replace(SPEC, name=name, part=Share("sm", 2.0)))
    monkeypatch.setattr(opening, "daemon_of", lambda _: object())
    monkeypatch.setattr(opening, "end_client", lambda *_: Ended(restarted="it hung"))
    told: list[Sequence[str]] = []
    there.on_restart = lambda slices, _reason: told.append(slices)
    await there.end("a", 1)
    there.close("a")
    await there.end("b", 1)
    assert told == [["a", "a+m", "b"], ["a+m", "b"]]
    await there.stop()


async def test_a_slice_of_cores_needs_no_gpu_and_a_gpu_that_is_gone_is_named() -> None:
    there = DeviceShares(lambda: Inventory((0,), reason="NVML: not found"), environ={})
    assert (await there.open(SliceSpec("c", (0,)))).cores == (0,)
    with pytest.raises(SlicingError, match=r"no cuda:0 here; there is no GPU \(NVML: not found\)"):
        await there.open(SPEC)
    await asyncio.wait_for(there.stop(), 5)


async def test_a_visible_mig_device_is_opened_by_itself() -> None:
    cut = replace(GPU, mig=True, mig_devices=(MigDevice("MIG-a", 1, 1, 60, 0, "3g.71gb"),))
    there = DeviceShares(lambda: Inventory((0,), (cut,)), environ={"CUDA_VISIBLE_DEVICES": "MIG-a"})
    setting = await there.open(replace(SPEC, part=Share.parse("mig:3g.71gb")))  # by no nvidia-smi
    assert dict(setting.environment)["CUDA_VISIBLE_DEVICES"] == "MIG-a"
    with pytest.raises(SlicingError, match="as many as there can be"):
        await there.open(replace(SPEC, name="b", part=Share.parse("mig:3g.71gb")))
    await there.stop()


async def test_a_worker_stays_near_its_gpu_unless_its_slice_names_cores() -> None:
    near = replace(GPU, cores=(2, 3, 7))
    there = DeviceShares(lambda: Inventory((0, 1, 2, 3), (near,)), environ={})
    assert (await there.open(SPEC)).cores == (2, 3)
    assert (await there.open(replace(SPEC, name="b", cores=(0,)))).cores == (0,)
    far = DeviceShares(lambda: Inventory((0, 1), (near,)), environ={})
    assert (await far.open(SPEC)).cores == ()  # none of them is ours to use
    await there.stop()
    await far.stop()


async def test_only_a_gpu_of_this_machine_is_watched() -> None:
    opened: list[str] = []
    there = DeviceShares(lambda: Inventory((0,), (GPU,)), environ={})
    there.on_open = lambda: opened.append("now")
    await there.open(SliceSpec("c", (0,)))
    with pytest.raises(SlicingError):
        await there.open(replace(SPEC, device="h", rehearsed=True))
    assert opened == []
    await there.open(SPEC)
    assert opened == ["now"]
    await there.stop()
