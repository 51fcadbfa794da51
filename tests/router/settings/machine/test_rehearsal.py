"""What a file may rehearse: as it says, all GPUs by `--rehearse`, never unseen beside real replicas."""

from pathlib import Path

import pytest

from router.settings import Settings, load_settings
from serving.values.rehearsal import EXACT, RehearsalSpec
from tests.router.settings.rehearsed import H200, REHEARSED, write_profiles
from tests.router.settings.samples import gateway_faults, write_gateway

DIGITS = "models: [{path: models/digits}]\n"
MIG = 'slices: [{name: g, device: h, share: "mig:2g.35gb", count: 3}]\n'
SHARE = "mig:2g.35gb"


def settings(home: Path, text: str, rehearse: bool = False) -> Settings:
    return load_settings(write_gateway(home, text), rehearse)


def test_a_rehearsal_is_exact_or_as_the_device_says(home: Path) -> None:
    write_profiles(home / "profiles", [SHARE])
    assert {each.rehearsal for each in settings(home, REHEARSED + MIG + DIGITS).slices} == {EXACT}
    how = (
        "{noise: 0.03, outliers: 0.01, interference: 0.1, crash_every_s: 60, stall_every_s: 20, stall_s: 1,"
        " disturb: 'slow(3,at=5,for=3)', seed: 7}"
    )
    found = settings(home, REHEARSED.replace("true", how) + MIG + DIGITS).slices
    expected = RehearsalSpec(0.03, 0.01, 0.1, 60, 20, 1, "slow(3,at=5,for=3)", 7)
    assert {each.rehearsal for each in found} == {expected}
    assert all(each.rehearsed for each in found)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("maybe", "rehearse: not true or false; got 'maybe', expected true, or how: {noise: 0.03, seed: 1}"),
        ("{noise: 9}", "rehearse.noise: too large; got 9, expected 5 or less"),
        ("{nois: 0.1}", "rehearse.nois: unknown key"),
        ("{disturb: storm}", "rehearse.disturb: no disturbance: got 'storm'; expected slow(3,at=5,for=3)"),
        ("{disturb: 'slow(3,at=1,for=3)+slow(2,at=2,for=3)'}", "two disturbances overlap at 2 s"),
    ],
)
def test_what_is_no_rehearsal_is_said(home: Path, how: str, expected: str) -> None:
    faults = gateway_faults(home, REHEARSED.replace("true", how) + MIG + DIGITS)
    assert any(expected in each for each in faults), faults


def test_a_model_is_not_rehearsed_beside_real_replicas_unless_the_device_says_so(home: Path) -> None:
    write_profiles(home / "profiles", [SHARE])
    mixed = MIG.replace("slices: [", "slices: [{name: c, cores: 1}, ")
    (fault,) = gateway_faults(home, REHEARSED + mixed + DIGITS)
    assert "digits would be rehearsed on slice g-1 and real on slice c" in fault
    assert "rehearse: {beside_real: true}" in fault
    allowed = REHEARSED.replace("true", "{beside_real: true}")
    assert len(settings(home, allowed + mixed + DIGITS).slices) == 7


def test_what_no_profile_tells_is_a_fault_that_names_the_cure(home: Path) -> None:
    write_profiles(home / "profiles", [SHARE], ("digits", "cnn"))
    (fault,) = gateway_faults(home, REHEARSED + MIG + DIGITS)
    assert f"no profile to rehearse digits linear on mig:2g.35gb of {H200}; " in fault
    assert "penstock profile --import FILE.csv" in fault


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ('{name: g, device: h, share: "mig:2g.35gb", count: 4}', "do not fit on one gpu-nvidia-h200"),
        ('{name: g, device: h, share: "mig:2g.10gb"}', "no MIG instance of gpu-nvidia-h200; got '2g.10gb'"),
    ],
)
def test_instances_that_a_rehearsed_gpu_could_not_have_are_said_once(
    home: Path, slices: str, expected: str
) -> None:
    faults = gateway_faults(home, f"{REHEARSED}slices: [{slices}]\n{DIGITS}")
    assert len([each for each in faults if expected in each]) == 1, faults


@pytest.mark.parametrize("device", ["cuda:1", "gpu-1", "h-2"])
def test_rehearse_puts_the_devices_of_the_file_in_the_places_of_gpus(home: Path, device: str) -> None:
    write_profiles(home / "profiles", ["whole:1"])
    planned = REHEARSED.replace(", rehearse: true", "")
    text = f'{planned}slices: [{{name: g, device: "{device}"}}]\n{DIGITS}'
    found = settings(home, text, rehearse=True)
    assert found.rehearse
    assert [(each.device, each.kind, each.rehearsed) for each in found.slices] == [("h-2", H200, True)]
    everywhere = settings(home, text.replace(device, "all"), rehearse=True).slices
    assert [each.device for each in everywhere] == ["h-1", "h-2"]


def test_rehearse_asks_for_a_device_where_the_file_names_none(home: Path) -> None:
    with pytest.raises(Exception, match="no device of `devices:` stands for cuda:0 in a rehearsal"):
        settings(home, f'slices: [{{name: g, device: "cuda:0"}}]\n{DIGITS}', rehearse=True)
