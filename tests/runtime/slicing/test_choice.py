"""Which GPU a name means, and that a share is refused where the GPU cannot have it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.settings.machine.gpu_faults import faults
from serving.policy.placement.terms.geometry import H200_141
from serving.runtime.slicing.choice import (
    device_actuator,
    device_named,
    gpu_actuator,
    gpu_named,
    index_note,
    visible_devices,
)
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.inventory import Gpu, Inventory, MigDevice
from serving.runtime.slicing.mps.mps import MpsPartitions, MpsPercentages
from serving.runtime.slicing.timeslice import TimeSlices
from serving.values.slice_specs import Share, SliceSpec


def gpu(index: int) -> Gpu:
    return Gpu(index, f"GPU-{index}", "NVIDIA H200", 1, 0, (9, 0), 132, False, (), None, None, 0, ())


LOST = Inventory((0,), (gpu(0), gpu(2), gpu(3)), "580", 13010, "GPU 1: GPU is lost")
FIRST, SECOND = "GPU-8f6d0c3a-11", "GPU-8f99a1b2-22"
SMALL, LARGE = MigDevice("MIG-5a", 9, 1, 16, 0, "1g.18gb"), MigDevice("MIG-5b", 2, 1, 60, 1, "3g.71gb")
PLAIN = replace(gpu(0), uuid=FIRST)
CUT = replace(gpu(1), uuid=SECOND, mig=True, mig_devices=(SMALL, LARGE))
FLEET = Inventory((0,), (PLAIN, CUT))


def visible(text: str | None) -> dict[str, str]:
    return {} if text is None else {"CUDA_VISIBLE_DEVICES": text}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (None, [FIRST, SECOND]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1", [SECOND]),
        ("1,0", [SECOND, FIRST]),
        (" 1 , 0", [SECOND, FIRST]),
        ("0,-1,1", [FIRST]),  # an entry that means no device hides all after it
        ("0,,1", [FIRST]),
        ("0,7,1", [FIRST]),
        ("2,0", []),
        ("0,0", []),  # as does one that is there twice, all
        (FIRST, [FIRST]),
        ("GPU-8f6d", [FIRST]),
        ("GPU-8f9,GPU-8f6d", [SECOND, FIRST]),
        ("GPU-8f", []),  # the beginning of two
        ("gpu-8f6d", []),
        ("8f6d", []),
        ("GPU-77,0", []),
        ("MIG-5b", ["MIG-5b"]),
        ("MIG-5b,MIG-5a", ["MIG-5b", "MIG-5a"]),
        ("MIG-5", []),
        ("0,MIG-5a", [FIRST, "MIG-5a"]),
        (f"MIG-{SECOND}/9/0", ["MIG-5a"]),
        (f"{SECOND}/2/1", ["MIG-5b"]),
        ("GPU-8f9/2/1", ["MIG-5b"]),
        (f"MIG-{SECOND}/2/0,0", []),
        (f"MIG-{FIRST}/9/0", []),
    ],
)
def test_the_visible_devices_are_those_that_cuda_would_give_out(text: str | None, seen: list[str]) -> None:
    found = visible_devices(FLEET, visible(text) | {"NVIDIA_VISIBLE_DEVICES": "none"})
    assert [each.uuid for each in found] == seen
    assert [each.name for each in found] == [f"cuda:{n}" for n in range(len(seen))]


@pytest.mark.parametrize(
    ("name", "text", "uuid"),
    [
        ("cuda:1", None, SECOND),
        ("cuda:0", "1,0", SECOND),
        ("cuda:1", "GPU-8f6d,MIG-5b", "MIG-5b"),
        ("gpu-1", "1,0", SECOND),  # NVML's index, wherever it is among the visible
        (FIRST, "1,0", FIRST),
        ("GPU-8f9", None, SECOND),
        ("GPU-8f", "0", FIRST),  # of those that are visible, one begins so
        ("MIG-5a", None, "MIG-5a"),
        ("MIG-5b", "MIG-5a,MIG-5b", "MIG-5b"),
        (f"MIG-{SECOND}/2/1", None, "MIG-5b"),
        ("GPU-8f9/9/0", "MIG-5a", "MIG-5a"),
    ],
)
def test_a_device_is_found_by_each_of_its_names(name: str, text: str | None, uuid: str) -> None:
    assert device_named(name, FLEET, visible(text)).uuid == uuid


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("cuda:2", None, "there is no cuda:2 here; there is cuda:0, cuda:1"),
        ("cpu", None, "there is no cpu here; there is cuda:0, cuda:1"),
        ("cuda:-1", None, "there is no cuda:-1 here; there is cuda:0, cuda:1"),
        ("cuda:0", "", "there is no cuda:0 here; there is no GPU"),
        ("gpu-7", None, "there is no gpu-7 here; there is gpu-0, gpu-1"),
        ("gpu-0", "1", "there is no gpu-0 here; there is gpu-1 (CUDA_VISIBLE_DEVICES=1 hides it)"),
        ("gpu-1", "MIG-5a", "there is no gpu-1 here; there is no GPU (CUDA_VISIBLE_DEVICES=MIG-5a hides it)"),
        ("GPU-7", None, f"there is no GPU-7 here; there is {FIRST}, {SECOND}"),
        ("GPU-8f", None, f"GPU-8f is the beginning of {FIRST} and {SECOND}; expected more of the UUID"),
        ("MIG-5", None, "there is no MIG-5 here; there is MIG-5a, MIG-5b"),
        ("MIG-5b", "0", "there is no MIG-5b here; there is no MIG device (CUDA_VISIBLE_DEVICES=0 hides it)"),
        (f"{SECOND}/3/0", None, f"there is no {SECOND}/3/0 here; there is MIG-5a, MIG-5b"),
    ],
)
def test_a_name_that_means_no_device_is_answered_with_those_that_do(
    name: str, text: str | None, said: str
) -> None:
    with pytest.raises(SlicingError) as raised:
        device_named(name, FLEET, visible(text))
    assert str(raised.value) == said


def test_a_lost_gpu_is_named_and_its_entry_hides_those_after_it() -> None:
    assert gpu_named("cuda:1", LOST).index == 2  # counted are those that answer
    with pytest.raises(SlicingError) as raised:
        gpu_named("cuda:0", LOST, "1,3")
    assert str(raised.value) == "there is no cuda:0 here; there is no GPU (GPU 1: GPU is lost)"


def test_indices_of_unlike_gpus_are_said_to_be_by_pci_bus() -> None:
    unlike = Inventory((0,), (gpu(0), replace(gpu(1), name="NVIDIA L4")))
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert index_note(unlike, {}) == (
        "the GPUs are unlike, and Penstock counts them by PCI bus; "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA agree"
    )
    assert index_note(unlike, visible("1") | {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert not index_note(unlike, by_bus)
    assert not index_note(unlike, visible("GPU-1"))  # no index is there
    assert not index_note(FLEET, {})  # alike: both orders agree


def test_of_a_mig_device_only_itself_is_given_out() -> None:
    (device,) = visible_devices(FLEET, visible("MIG-5b"))
    given = device_actuator("mig", device, FLEET)
    assert [str(share) for share in given.guarantee.granularity] == ["mig:3g.71gb"]
    spec = SliceSpec("a", (), 1, "cuda:0", Share.parse("mig:3g.71gb"))
    assert dict(given.open(spec).environment)["CUDA_VISIBLE_DEVICES"] == "MIG-5b"
    with pytest.raises(SlicingError, match="as many as there can be"):
        given.open(replace(spec, name="b"))
    given.close("a")
    assert given.open(replace(spec, name="b")).device == "cuda:0"
    turns = device_actuator("time", device, FLEET).open(replace(spec, part=Share("time", 1.0)))
    assert dict(turns.environment)["CUDA_VISIBLE_DEVICES"] == "MIG-5b"
    with pytest.raises(
        SlicingError, match="cuda:0 is a MIG device: its shares are mig, whole or time; got mps"
    ):
        device_actuator("mps", device, FLEET)
    part = replace(device, mig_device=replace(LARGE, profile="1c.3g.71gb"))
    with pytest.raises(SlicingError):
        device_actuator("mig", part, FLEET)
    whole = device_actuator("whole", visible_devices(FLEET, {})[0], FLEET)
    assert dict(whole.open(replace(spec, part=None)).environment)["CUDA_VISIBLE_DEVICES"] == FIRST


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
NO_PARTITIONS = "GPU 0: sm: shares need CUDA 13.1 and an Ampere or later; expected mps: shares"
MODE_OFF = "GPU 0 is not in MIG mode; end all of its processes and run `nvidia-smi -i 0 -mig 1` as root, or "
MODE_ON = "GPU 0 is in MIG mode, so its shares are instances; expected share: mig:PROFILE, or "


@pytest.mark.parametrize(
    ("kind", "device", "cuda", "said"),
    [
        ("mig", H200, 13010, f"{MODE_OFF}ask for another share"),
        ("mps", replace(H200, mig=True), 13010, f"{MODE_ON}`nvidia-smi -i 0 -mig 0` as root"),
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


@given(
    st.sampled_from(["whole", "time", "mps", "sm", "mig"]),
    st.sampled_from([True, False, None]),
    st.sampled_from([None, (7, 5), (8, 0), (9, 0), (12, 0)]),
    st.sampled_from([None, 108, 132]),
    st.sampled_from([None, 12080, 13010, 14000]),
)
def test_a_check_refuses_exactly_the_shares_that_no_actuator_gives(
    kind: str, mig: bool | None, capability: tuple[int, int] | None, sms: int | None, cuda: int | None
) -> None:
    instances = (MigDevice("MIG-a", 1, 1, 16, 0, "1g.18gb"),) if mig else ()
    here = replace(H200, mig=mig, capability=capability, sms=sms, mig_devices=instances, geometry=H200_141)
    share = Share.parse({"mig": "mig:1g.18gb", "mps": "mps:30", "sm": "sm:3"}.get(kind, f"{kind}:1"))
    inventory = replace(LOST, gpus=(here,), cuda=cuda)
    refused = [*faults("GPU 0", here, (share,), inventory, recut=False)]
    if refused:
        with pytest.raises(SlicingError) as raised:
            gpu_actuator(kind, here, inventory)
        assert refused == [str(raised.value)]
        return
    found = gpu_actuator(kind, here, inventory)
    assert share in found.guarantee.granularity
    if kind == "sm":  # the same number of chunks bounds both
        least, most = found.guarantee.granularity[0], found.guarantee.granularity[-1]
        assert not [*faults("GPU 0", here, (most,), inventory, recut=False)]
        assert [*faults("GPU 0", here, (most, least), inventory, recut=False)]
