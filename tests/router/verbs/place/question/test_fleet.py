"""The devices that a placement may use: what entries and machines become as pools."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.settings.machine.memory import usable_memory_bytes
from router.verbs.place.question.fleet import HERE as THIS_MACHINE
from router.verbs.place.question.fleet import own_device, pools, this_machine
from serving.policy.placement.terms.geometry import known_geometry
from serving.policy.placement.terms.problem import Instances, Parts, PlacementProblem
from serving.runtime.slicing.inventory import Gpu, Inventory, MigDevice
from serving.values.slice_specs import DeviceSpec
from tests.router.verbs.place.deployments import H200, HERE
from tests.seeds import drawn

divisions = st.sampled_from([("cpu-a", "cores"), ("cpu-b", "cores"), (H200, "mps"), (H200, "mig")])
Drawn = list[tuple[tuple[str, str], int, int, float, str]]
entries = st.lists(
    st.tuples(
        divisions,
        st.integers(1, 3),  # count
        st.integers(1, 2),  # cores
        st.sampled_from([0.0, 1.5]),  # price
        st.sampled_from(["", "r"]),  # domain
    ),
    max_size=5,
)


def gpu(index: int, name: str = "NVIDIA H200", mig: bool | None = False) -> Gpu:
    nothing = (None,) * 2
    return Gpu(
        index, f"GPU-{index}", name, 141 << 30, 0, (9, 0), 132, mig, (), *nothing, None, None
    )  # fmt: skip


def named(drawn: Drawn) -> list[DeviceSpec]:
    return [
        DeviceSpec(f"e{place}", kind, divide, count, cores if divide == "cores" else 0, 0, price, domain)
        for place, ((kind, divide), count, cores, price, domain) in enumerate(drawn)
    ]


@settings(max_examples=drawn(40))
@given(entries)
def test_each_device_is_in_one_pool_and_pools_are_unlike(
    drawn: Drawn,
) -> None:
    devices = named(drawn)
    found = pools(devices)
    names = [device.name for pool in found for device in pool.devices]
    assert sorted(names) == sorted(name for each in devices for name in each.names)
    traits = [(pool.kind, pool.division, pool.memory_bytes, pool.price) for pool in found]
    assert len(set(map(repr, traits))) == len(traits)
    PlacementProblem((), found)  # no name is used twice


@settings(max_examples=drawn(40))
@given(entries)
def test_a_device_fails_with_its_domain_or_alone(
    drawn: Drawn,
) -> None:
    devices = named(drawn)
    domains = {device.name: device.domain for pool in pools(devices) for device in pool.devices}
    for each in devices:
        for name in each.names:
            assert domains[name] == (each.domain or name)


def test_what_is_shared_out_is_cores_per_cent_instances_or_all_of_it() -> None:
    host = DeviceSpec("host", "cpu-a", "cores", cores=16, memory_bytes=1 << 30, price=2.0)
    gpus = [DeviceSpec(way, H200, way, price=9.0) for way in ("mps", "mig", "whole")]
    cores, mps, mig, whole = pools([host, *gpus])
    assert (cores.division, cores.memory_bytes, cores.price) == (Parts("cores", 16.0), 1 << 30, 2.0)
    assert mps.division == Parts("mps", 100.0, 48)  # clients of an MPS daemon
    assert mig.division == Instances(known_geometry(H200) or ())
    assert whole.division == Parts("whole", 1.0)


def test_where_nothing_has_a_price_each_device_counts_as_one() -> None:
    free, dear = DeviceSpec("a", "cpu-a", "cores", cores=1), DeviceSpec("b", H200, "mps", price=3.0)
    assert [pool.price for pool in pools([free])] == [1.0]
    assert [pool.price for pool in pools([free, dear])] == [0.0, 3.0]


def test_without_entries_the_fleet_is_this_machine_which_fails_as_one() -> None:
    inventory = Inventory((0, 1, 5), (gpu(0), gpu(1, mig=True), gpu(2, "NVIDIA L4", mig=True)))
    (cpu, first, second), notes = this_machine(inventory, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert cpu == DeviceSpec("cpu", HERE, "cores", 1, 3, usable_memory_bytes(), domain=THIS_MACHINE)
    assert first == DeviceSpec("cuda:0", H200, "mps", 1, 0, 141 << 30, domain=THIS_MACHINE)
    assert second == DeviceSpec("cuda:1", H200, "mig", domain=THIS_MACHINE)
    assert notes == ["cuda:2 is left out: it is in MIG mode, and no geometry is known of gpu-nvidia-l4"]


@pytest.mark.parametrize(("visible", "count"), [(None, 2), ("1", 1), ("", 0), ("1,0", 2), ("7", 0)])
def test_gpus_that_this_process_may_not_see_are_left_out(visible: str | None, count: int) -> None:
    environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible
    found, notes = this_machine(Inventory((0,), (gpu(0), gpu(1, "NVIDIA L4"))), environ)
    assert [each.name for each in found] == ["cpu", "cuda:0", "cuda:1"][: 1 + count]
    assert not notes
    if visible and visible.startswith("1"):
        assert found[1].kind == "gpu-nvidia-l4"  # CUDA counts those that are visible


def test_one_visible_mig_device_is_no_device_that_could_be_divided() -> None:
    instance = MigDevice("MIG-a", 3, 71 << 30, 60, 0, "3g.71gb")
    inventory = Inventory((0,), (replace(gpu(0, mig=True), mig_devices=(instance,)),))
    found, notes = this_machine(inventory, {"CUDA_VISIBLE_DEVICES": "MIG-a"})
    assert [each.name for each in found] == ["cpu"]
    assert notes == ["cuda:0 is left out: it is one MIG device, and only a whole GPU can be divided"]


def test_slices_of_a_settings_file_are_of_the_first_device_that_can_be_this_machine() -> None:
    gpu_only = [DeviceSpec("g", H200, "mps")]
    large = DeviceSpec("large", HERE, "cores", cores=64)
    other = DeviceSpec("other", "cpu-other", "cores", cores=4)
    ours = DeviceSpec("ours", HERE, "cores", count=2, cores=4)
    assert own_device(PlacementProblem((), pools(gpu_only)), 4) is None
    assert own_device(PlacementProblem((), pools([large, other])), 4) is None
    assert own_device(PlacementProblem((), pools([*gpu_only, large, other, ours])), 4) == "ours-1"
