"""What the status says of rehearsed GPUs, and of MIG instances."""

from types import SimpleNamespace
from typing import cast

from router.management.rehearsed import rehearsed_gpus
from router.observing.status import GpuStatus, mig_status
from serving.control.state.replicas import ReplicaStatus, SliceRecord
from serving.runtime.slicing.mig.layout import MigLayout
from serving.runtime.slicing.mig.mig_text import Instance
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing.smi import table

H200 = "gpu-nvidia-h200"


def record(name: str, share: str, *held: int, device: str = "h", instance: str = "") -> SliceRecord:
    """A slice of a rehearsed GPU with ready replicas of that memory."""
    part = Share.parse(share)
    spec = SliceSpec(name, (), device=device, part=part, kind=H200, rehearsed=True, instance=instance)
    replicas = {
        number: SimpleNamespace(memory_bytes=count, status=ReplicaStatus.READY)
        for number, count in enumerate(held)
    }
    return cast(SliceRecord, SimpleNamespace(spec=spec, replicas=replicas))


def told(*records: SliceRecord) -> GpuStatus:
    (gpu,) = rehearsed_gpus(records)
    return gpu


def test_a_rehearsed_gpu_is_told_with_its_instances_and_what_their_replicas_hold() -> None:
    found = told(record("a", "mig:3g.71gb", 5, 6), record("b", "mig:1g.18gb", 7))
    assert (found["uuid"], found["name"], found["state"], found["rehearsed"]) == ("h", H200, "ok", True)
    assert found["memory_bytes"] == 139 << 30
    assert found["memory_used_bytes"] == 18
    mig = found["mig"]
    assert mig["size"] == 8
    assert {each["profile"]: (each["slices"], each["size"]) for each in mig["instances"]} == {
        "3g.71gb": (["a"], 4), "1g.18gb": (["b"], 1)
    }  # fmt: skip
    assert {each["profile"]: each["memory_used_bytes"] for each in mig["instances"]} == {
        "3g.71gb": 11, "1g.18gb": 7
    }  # fmt: skip
    taken = {
        memory for each in mig["instances"] for memory in range(each["start"], each["start"] + each["size"])
    }
    assert taken.isdisjoint(mig["room"]["1g.18gb"])


def test_processes_of_an_instance_and_a_models_own_process_are_in_one_instance() -> None:
    pair = [record(f"p-{n}", "mig:2g.35gb*2", 1, instance="p") for n in (1, 2)]
    found = told(*pair, record("a", "mig:1g.18gb", 2), record("a+digits", "mig:1g.18gb", 3))
    instances = found["mig"]["instances"]
    assert sorted(each["slices"] for each in instances) == [["a", "a+digits"], ["p-1", "p-2"]]
    assert sorted(each["memory_used_bytes"] or 0 for each in instances) == [2, 5]


def test_a_replica_that_is_not_loaded_holds_nothing() -> None:
    one = record("a", "mig:1g.18gb", 4)
    one.replicas[0].status = ReplicaStatus.LOADING
    assert told(one)["memory_used_bytes"] == 0


def test_each_device_is_told_and_shares_without_a_place_have_no_layout() -> None:
    gpus = rehearsed_gpus([record("a", "mps:30", device="h-1"), record("b", "whole:1", device="h-2")])
    assert [(each["uuid"], each["slices"], "mig" in each) for each in gpus] == [
        ("h-1", {"a": "mps:30"}, False), ("h-2", {"b": "whole:1"}, False)
    ]  # fmt: skip


def test_instances_that_do_not_fit_within_a_move_are_told_as_shares_alone() -> None:
    found = told(record("a", "mig:7g.141gb"), record("b", "mig:1g.18gb"))
    assert found["slices"] == {"a": "mig:7g.141gb", "b": "mig:1g.18gb"}
    assert "mig" not in found


def test_an_instance_that_no_slice_has_is_told_and_one_of_an_unknown_profile_breaks_nothing() -> None:
    geometry = table("h200")
    free = Instance(4, 4, "3g.71gb", 1)
    layout = MigLayout(geometry, (Instance(0, 1, "1g.18gb", 7), free), {"a": 7})
    found = mig_status(layout, {"a": "a"}, {})
    assert [(each["start"], each["slices"], each["memory_used_bytes"]) for each in found["instances"]] == [
        (0, ["a"], None), (4, [], None)
    ]  # fmt: skip
    assert found["room"]["2g.35gb"] == [2]
    odd = mig_status(MigLayout(geometry, (Instance(0, 1, "1g.18gb+new", 1), free), {}), {}, {})
    assert (odd["instances"][0]["memory_bytes"], odd["room"]) == (None, {})
