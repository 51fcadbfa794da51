"""What core sets and turns promise, and that every actuator keeps the one contract."""

import pytest

from serving.runtime.slicing.contract import Actuator, SlicingError
from serving.runtime.slicing.cores import core_set
from serving.runtime.slicing.mig.mig import MigGpu, MigInstances
from serving.runtime.slicing.mps.mps import MpsPartitions, MpsPercentages
from serving.runtime.slicing.timeslice import TimeSlices
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing.smi import Smi

ACTUATORS: tuple[Actuator, ...] = (
    TimeSlices("GPU-0"),
    MpsPercentages("GPU-0", "/bin/false"),
    MpsPartitions("GPU-0", 16, "/bin/false"),
    MigInstances(MigGpu(0, Smi()), dict),
)


@pytest.mark.parametrize("actuator", ACTUATORS, ids=lambda actuator: type(actuator).__name__)
def test_every_actuator_says_what_it_gives_and_refuses_what_it_does_not(actuator: Actuator) -> None:
    guarantee = actuator.guarantee
    shares = guarantee.granularity
    assert len(set(shares)) == len(shares) > 0
    assert [share.amount for share in shares] == sorted(share.amount for share in shares)
    assert all(Share.parse(str(share)) == share for share in shares)
    assert guarantee.tenants_max is None or guarantee.tenants_max > 0
    unknown = SliceSpec("odd", (), 1, "cuda:0", Share("cores", 7.0))
    with pytest.raises(SlicingError, match="slice odd: cores:7 is no share here"):
        actuator.open(unknown)
    actuator.close("never opened")
    actuator.stop()


def test_a_worker_in_turns_sees_its_gpu_alone_by_uuid() -> None:
    turns = TimeSlices("GPU-7")
    for part in (None, Share("time", 1.0), Share("whole", 1.0)):
        setting = turns.open(SliceSpec("s", (3,), 2, "cuda:5", part))
        assert dict(setting.environment)["CUDA_VISIBLE_DEVICES"] == "GPU-7"
        assert (setting.device, setting.cores, setting.threads) == ("cuda:0", (3,), 2)
    assert not turns.guarantee.reservation


def test_without_a_uuid_the_device_keeps_its_name() -> None:
    setting = TimeSlices().open(SliceSpec("s", (), 1, "cuda:5"))
    assert setting.device == "cuda:5"
    assert "CUDA_VISIBLE_DEVICES" not in dict(setting.environment)


def test_a_core_set_sizes_every_pool_by_its_threads() -> None:
    setting = core_set(SliceSpec("s", (1, 2), 2))
    assert dict(setting.environment) == {
        "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"
    }  # fmt: skip
    assert (setting.cores, setting.threads, setting.device) == ((1, 2), 2, "cpu")
