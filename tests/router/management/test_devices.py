"""What the status says of a GPU with MIG instances: which there are, and what runs in each."""

from dataclasses import replace
from types import SimpleNamespace

from router.management.devices import DeviceBoard
from serving.policy.device_health import GpuReading
from serving.runtime.slicing.choice import VisibleDevice
from serving.runtime.slicing.contract import Actuator
from serving.runtime.slicing.inventory import Gpu, Inventory
from serving.runtime.slicing.mig.mig import MigGpu, MigInstances
from serving.runtime.slicing.opening import DeviceShares
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing.smi import Smi

GPU = Gpu(0, "GPU-0", "NVIDIA H200", 1, 0, (9, 0), 132, True, (), None, None, 0, ())
SPEC = SliceSpec("a", (), device="cuda:0", part=Share.parse("mig:3g.71gb"), kind="gpu-nvidia-h200")
SPECS = SPEC, replace(SPEC, name="b", part=Share.parse("mig:1g.18gb"))
PIDS = {"a": 4711, "b": 4712}


async def test_instances_are_told_with_their_slices_and_the_memory_of_their_processes() -> None:
    smi = Smi()

    def make(_kind: str, _device: VisibleDevice, _: Inventory) -> Actuator:
        return MigInstances(MigGpu(0, smi, dry_run=False), lambda: {n: f"MIG-{n}" for n in smi.computing})

    shares = DeviceShares(lambda: Inventory((0,), (GPU,)), make, {})
    records = {each.name: SimpleNamespace(spec=each) for each in SPECS}
    fleet = SimpleNamespace(control=SimpleNamespace(slices=records), pid=PIDS.get)
    board = DeviceBoard(fleet, shares)  # type: ignore[arg-type]  # all that it asks of a fleet here
    shares.on_open = lambda: None  # no reading of this machine's GPUs
    for each in SPECS:
        await shares.open(each)
    board._watch.hear([GpuReading("GPU-0", 0, "NVIDIA H200", process_bytes={4711: 9 << 30})])
    (gpu,) = board.describe()
    assert gpu["slices"] == {"a": "mig:3g.71gb", "b": "mig:1g.18gb"}
    told = {each["profile"]: each for each in gpu["mig"]["instances"]}
    places = dict(smi.placed.values())
    assert {profile: each["start"] for profile, each in told.items()} == places
    assert (told["3g.71gb"]["slices"], told["3g.71gb"]["memory_used_bytes"]) == (["a"], 9 << 30)
    assert (told["1g.18gb"]["slices"], told["1g.18gb"]["memory_used_bytes"]) == (["b"], None)
    await shares.stop()
    assert board.describe() == []
