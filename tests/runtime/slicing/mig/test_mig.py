"""What the MIG actuator promises: it reads nvidia-smi's lists, changes nothing unasked, believes lists."""

import stat
from pathlib import Path

import pytest

from serving.runtime.slicing.contract import FaultDomain, Resize, SlicingError
from serving.runtime.slicing.mig.mig import MigGpu, MigInstances, run_command
from serving.runtime.slicing.mig.mig_plan import Argv, plan
from serving.runtime.slicing.mig.mig_text import Instance, geometry, instances
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing.smi import Smi, captured, table


def slice_of(profile: str, name: str = "s") -> SliceSpec:
    return SliceSpec(name, (), device="cuda:0", part=Share.parse(f"mig:{profile}"))


def uuids(smi: Smi) -> dict[int, str]:
    return {number: f"MIG-{number}" for number in smi.computing}


def opened(smi: Smi, dry_run: bool = True) -> MigInstances:
    return MigInstances(MigGpu(0, smi, dry_run), lambda: uuids(smi))


@pytest.mark.parametrize(
    ("device", "name", "size", "instances_max", "gib", "sms"),
    [
        ("a100", "1g.5gb", 1, 7, 4.75, 14),
        ("a100", "3g.20gb", 4, 2, 19.5, 42),
        ("h100", "1g.20gb", 2, 4, 19.62, 26),
        ("h100", "7g.80gb", 8, 1, 79.25, 132),
        ("h200", "1g.18gb+me", 1, 1, 16.0, 16),
        ("h200", "3g.71gb", 4, 2, 69.5, 60),
        ("b200", "1g.45gb", 2, 4, 44.25, 30),
    ],
)
def test_profiles_are_read_as_they_are_listed(
    device: str, name: str, size: int, instances_max: int, gib: float, sms: int
) -> None:
    profile = next(each for each in table(device) if each.name == name)
    assert (profile.size, profile.instances_max, profile.memory_gib, profile.sms) == (
        size,
        instances_max,
        gib,
        sms,
    )


def test_starts_are_read_where_there_is_one_and_where_there_are_several() -> None:
    starts = {profile.id: profile.starts for profile in table("h200")}
    assert starts == {
        19: (0, 1, 2, 3, 4, 5, 6), 20: (0, 1, 2, 3, 4, 5, 6),
        15: (0, 2, 4, 6), 14: (0, 2, 4), 9: (0, 4), 5: (0,), 0: (0,),
    }  # fmt: skip


def test_instances_are_read_by_start() -> None:
    assert instances(captured("a100-lgi"), 0) == (
        Instance(0, 1, "1g.5gb", 7),
        Instance(1, 1, "1g.5gb", 8),
        Instance(2, 2, "2g.10gb", 4),
        Instance(4, 4, "3g.20gb", 2),
    )
    assert instances("No GPU instances found: Not Found\n", 0) == ()


def test_only_rows_of_the_gpu_count() -> None:
    with pytest.raises(SlicingError, match="GPU 1: nvidia-smi mig -lgip lists no profile"):
        geometry(captured("h200-lgip"), captured("lgipp"), 1)


@pytest.mark.parametrize("said", ["No MIG-enabled devices found.\n", "", "Insufficient Permissions\n"])
def test_what_is_no_list_is_told_and_not_taken_for_an_empty_one(said: str) -> None:
    with pytest.raises(SlicingError, match=said.strip() or "it printed nothing"):
        instances(said, 0)
    with pytest.raises(SlicingError, match=said.strip() or "it printed nothing"):
        geometry(said, captured("lgipp"), 0)


def test_a_dry_run_says_the_commands_and_runs_none() -> None:
    smi = Smi()
    device = MigGpu(0, smi)
    commands = device.apply(plan(device.geometry(), (), ["3g.71gb"]))
    assert commands == (("nvidia-smi", "mig", "-i", "0", "-cgi", "9:4", "-C"),)
    with pytest.raises(SlicingError, match=r"this would make one: nvidia-smi mig -i 0 -cgi 9:4 -C$"):
        opened(smi).open(slice_of("3g.71gb"))
    assert smi.ran == []


def test_instances_that_are_there_are_given_out_without_any_change() -> None:
    smi = Smi()
    MigGpu(0, smi, dry_run=False).apply(plan(table("h200"), (), ["7g.141gb"]))
    smi.ran.clear()
    mig = opened(smi)
    setting = mig.open(slice_of("7g.141gb"))
    assert ("CUDA_VISIBLE_DEVICES", "MIG-0") in setting.environment
    assert setting.device == "cuda:0"
    assert mig.open(slice_of("7g.141gb")) == setting  # its worker is started again
    with pytest.raises(
        SlicingError, match=r"no layout has the MIG instances 7g\.141gb, 7g\.141gb beside 1 busy"
    ):
        mig.open(slice_of("7g.141gb", "other"))
    mig.close("s")
    assert mig.open(slice_of("7g.141gb", "other")) == setting
    assert smi.ran == []


def test_a_new_share_is_made_beside_what_others_have() -> None:
    smi = Smi()
    mig = opened(smi, dry_run=False)
    first = mig.open(slice_of("1g.18gb", "old"))
    second = mig.open(slice_of("4g.71gb", "new"))
    assert dict(first.environment)["CUDA_VISIBLE_DEVICES"] == "MIG-0"
    assert dict(second.environment)["CUDA_VISIBLE_DEVICES"] == "MIG-1"
    assert all("-dgi" not in argv for argv in smi.ran)
    mig.close("old")
    mig.rearrange(["4g.71gb", "3g.71gb"])
    assert [(each.profile, each.start) for each in MigGpu(0, smi).instances()] == [
        ("4g.71gb", 0),
        ("3g.71gb", 4),
    ]
    with pytest.raises(SlicingError, match=r"no layout has the MIG instances 7g\.141gb beside 1 busy"):
        mig.rearrange(["7g.141gb"])


def test_a_plan_that_breaks_off_is_told_with_what_is_there_now() -> None:
    smi = Smi()
    device = MigGpu(0, smi, dry_run=False)
    device.apply(plan(table("h200"), (), ["3g.71gb", "3g.71gb"]))
    smi.in_use.add(1)
    with pytest.raises(SlicingError) as raised:
        device.apply(plan(table("h200"), device.instances(), ["7g.141gb"]))
    said = str(raised.value)
    assert said.startswith("GPU 0 has 3g.71gb at 4, not 7g.141gb at 0; ")
    assert said.endswith("Unable to destroy GPU instance ID 1: In use by another client")


def test_commands_that_end_well_and_do_nothing_are_found_out() -> None:
    smi = Smi()

    def idle(argv: Argv) -> str:
        return smi(argv) if argv[4].startswith("-l") else "Successfully created GPU instance"

    with pytest.raises(SlicingError, match=r"GPU 0 has no instance, not 3g\.71gb at 4$"):
        MigGpu(0, idle, dry_run=False).apply(plan(table("h200"), (), ["3g.71gb"]))


def test_its_guarantee_names_the_instances_smallest_first() -> None:
    guarantee = opened(Smi()).guarantee
    assert [share.label for share in guarantee.granularity] == [
        "1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"
    ]  # fmt: skip
    assert (guarantee.reservation, guarantee.resize, guarantee.tenants_max) == (True, Resize.NEW_INSTANCE, 7)
    assert guarantee.fault_domain is FaultDomain.PROCESS
    with pytest.raises(
        SlicingError, match=r"slice s: mig:3g\.40gb is no share here; there are mig:1g\.18gb to "
    ):
        opened(Smi()).open(slice_of("3g.40gb"))


def test_commands_run_for_real_and_their_failures_are_told(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "No GPU instances found: Not Found"\nexit 6\n')
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    assert run_command((str(smi), "mig", "-i", "0", "-lgi")) == "No GPU instances found: Not Found\n"
    with pytest.raises(SlicingError, match=r"-dgi -gi 3: No GPU instances found: Not Found$"):
        run_command((str(smi), "mig", "-i", "0", "-dgi", "-gi", "3"))
    with pytest.raises(SlicingError, match="No such file"):
        run_command(("/nowhere/nvidia-smi", "mig", "-lgi"))


def test_an_instance_without_room_takes_the_place_of_those_that_no_slice_has() -> None:
    smi = Smi()
    actuator = opened(smi, dry_run=False)
    actuator.open(slice_of("3g.71gb", "kept"))
    actuator.open(slice_of("3g.71gb", "gone"))
    actuator.close("gone")
    actuator.open(slice_of("2g.35gb", "new"))
    assert sorted(name for name, _ in smi.placed.values()) == ["2g.35gb", "3g.71gb"]


def test_no_instance_that_a_slice_has_makes_room_for_another() -> None:
    smi = Smi()
    actuator = opened(smi, dry_run=False)
    actuator.open(slice_of("3g.71gb", "one"))
    actuator.open(slice_of("3g.71gb", "two"))
    with pytest.raises(SlicingError, match="no layout has"):
        actuator.open(slice_of("2g.35gb", "new"))
    assert [name for name, _ in smi.placed.values()] == ["3g.71gb", "3g.71gb"]


def test_an_instance_leaves_room_for_those_that_are_coming() -> None:
    smi = Smi()
    actuator = opened(smi, dry_run=False)
    actuator.coming = ("1g.18gb", "1g.18gb", "1g.18gb", "3g.71gb")  # only 3g at 4 leaves four places
    actuator.open(slice_of("1g.18gb", "first"))
    assert smi.ran == [("nvidia-smi", "mig", "-i", "0", "-cgi", "9:4,19:0,19:1,19:2,19:3", "-C")]
    actuator.coming = ()
    for each in ("a", "b", "c"):
        actuator.open(slice_of("1g.18gb", each))
    actuator.open(slice_of("3g.71gb", "d"))
    assert len(smi.ran) == 1


def test_an_instance_is_made_for_itself_where_those_that_are_coming_do_not_fit() -> None:
    smi = Smi()
    actuator = opened(smi, dry_run=False)
    actuator.coming = ("7g.141gb",)
    actuator.open(slice_of("1g.18gb", "first"))
    assert [name for name, _ in smi.placed.values()] == ["1g.18gb"]


def test_a_free_instance_is_not_made_twice_for_one_that_is_coming() -> None:
    smi = Smi()
    actuator = opened(smi, dry_run=False)
    actuator.open(slice_of("3g.71gb", "gone"))
    actuator.close("gone")
    actuator.coming = ("3g.71gb",)
    actuator.open(slice_of("2g.35gb", "new"))
    assert sorted(name for name, _ in smi.placed.values()) == ["2g.35gb", "3g.71gb"]
