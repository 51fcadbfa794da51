"""Which GPU a name means, and that a share is refused where the GPU cannot have it."""

from dataclasses import replace

import pytest

from serving.runtime.slicing.choice import gpu_actuator, gpu_named
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.inventory import Gpu, Inventory
from serving.runtime.slicing.mps import MpsPartitions, MpsPercentages
from serving.runtime.slicing.timeslice import TimeSlices


def gpu(index: int) -> Gpu:
    return Gpu(index, f"GPU-{index}", "NVIDIA H200", 1, 0, (9, 0), 132, False, (), None, None, 0, ())


LOST = Inventory((0,), (gpu(0), gpu(2), gpu(3)), "580", 13010, "GPU 1: GPU is lost")


@pytest.mark.parametrize(
    ("device", "visible", "index"),
    [
        ("cuda:0", None, 0),
        ("cuda:1", None, 2),
        ("cuda:0", "3", 3),
        ("cuda:1", "3, GPU-2", 2),
    ],
)
def test_a_name_counts_the_gpus_that_the_gateway_may_use(
    device: str, visible: str | None, index: int
) -> None:
    assert gpu_named(device, LOST, visible).index == index


@pytest.mark.parametrize(
    ("device", "visible", "there"),
    [
        ("cuda:3", None, "cuda:0, cuda:1, cuda:2"),
        ("cpu", None, "cuda:0, cuda:1, cuda:2"),
        ("cuda:-1", None, "cuda:0, cuda:1, cuda:2"),
        ("cuda:0", "1,3", "cuda:1"),
        ("cuda:0", "", "no GPU"),
    ],
)
def test_a_name_that_means_no_gpu_is_told_with_those_that_do(
    device: str, visible: str | None, there: str
) -> None:
    with pytest.raises(SlicingError) as raised:
        gpu_named(device, LOST, visible)
    assert str(raised.value) == f"there is no {device} here; there is {there} (GPU 1: GPU is lost)"


def test_each_kind_has_its_actuator_with_the_limits_of_driver_and_gpu() -> None:
    for kind in ("whole", "time"):
        assert isinstance(gpu_actuator(kind, gpu(0), LOST), TimeSlices)
    caps = gpu_actuator("mps", gpu(0), LOST)
    older = gpu_actuator("mps", gpu(0), replace(LOST, cuda=12080))
    assert isinstance(caps, MpsPercentages)
    assert (caps.guarantee.tenants_max, older.guarantee.tenants_max) == (60, 48)
    partitions = gpu_actuator("sm", gpu(0), LOST)
    assert isinstance(partitions, MpsPartitions)
    assert partitions.guarantee.granularity[-1].amount == 16  # of 8; 4 of the 132 are over
    ampere = replace(gpu(0), capability=(8, 0), sms=108)
    assert gpu_actuator("sm", ampere, LOST).guarantee.granularity[-1].amount == 27


H200 = gpu(0)
NO_PARTITIONS = "GPU 0: static MPS partitions need CUDA 13.1 and an Ampere or later"


@pytest.mark.parametrize(
    ("kind", "device", "cuda", "said"),
    [
        ("mig", H200, 13010, "GPU 0 is not in MIG mode, which its operator sets"),
        ("mps", replace(H200, mig=True), 13010, "GPU 0 is in MIG mode: its shares are mig"),
        ("sm", H200, 12080, NO_PARTITIONS),
        ("sm", replace(H200, capability=(7, 5)), 13010, NO_PARTITIONS),
        ("sm", replace(H200, sms=None), 13010, NO_PARTITIONS),
        ("cores", H200, 13010, "cores is no kind of share that a GPU's actuators give"),
    ],
)
def test_what_a_gpu_cannot_have_is_refused(kind: str, device: Gpu, cuda: int, said: str) -> None:
    with pytest.raises(SlicingError) as raised:
        gpu_actuator(kind, device, replace(LOST, cuda=cuda))
    assert str(raised.value) == said
