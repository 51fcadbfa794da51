"""Slices on GPUs: which devices an entry means, and what it may not ask of them."""

from pathlib import Path

import pytest

from router.settings import Settings, load_settings
from serving.profile.device import device_kind
from serving.runtime.slicing.inventory import Gpu, Inventory
from serving.specs import Share
from tests.router.settings.rehearsed import REHEARSED, write_profiles
from tests.router.settings.samples import gateway_faults, write_gateway


def gpu(index: int, *, mig: bool = False) -> Gpu:
    return Gpu(index, f"GPU-{index}", "NVIDIA H200", 1, 0, (9, 0), 132, mig, (), None, None, 0, ())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two H200s and one in MIG mode, with CUDA 12.4."""
    inventory = Inventory((0, 1), (gpu(0), gpu(1), gpu(2, mig=True)), "550", 12040)
    monkeypatch.setattr("router.settings.findings.take_inventory", lambda: inventory)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def text(slices: str, more: str = "") -> str:
    return f"slices: [{slices}]\n{more}models: [{{path: models/digits}}]\n"


def settings(folder: Path, slices: str, more: str = "") -> Settings:
    return load_settings(write_gateway(folder, text(slices, more)))


@pytest.mark.usefixtures("machine")
def test_an_entry_is_sliced_on_the_gpu_that_it_names(home: Path) -> None:
    found = settings(home, '{name: g, device: "cuda:1", share: "mps:30", count: 2, memory_mb: 2}').slices
    assert [each.name for each in found] == ["g-1", "g-2"]
    assert {(each.device, str(each.share), each.memory_bytes) for each in found} == {
        ("cuda:1", "mps:30", 2 << 20)
    }
    assert {device_kind(each) for each in found} == {"gpu-nvidia-h200"}
    assert not any(each.rehearsed for each in found)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("text", ["GPU-1", "cuda:1"])
def test_a_gpu_has_one_name_however_an_entry_calls_it(home: Path, text: str) -> None:
    (found,) = settings(home, f'{{name: g, device: "{text}"}}').slices
    assert (found.name, found.device, found.share) == ("g", "cuda:1", Share("whole", 1.0))


@pytest.mark.usefixtures("machine")
def test_cores_and_gpus_mix_and_models_name_an_entry_for_all_its_slices(home: Path) -> None:
    write_profiles(home / "profiles", ["time:1"])
    beside = REHEARSED.replace("true", "{beside_real: true}")
    found = settings(home, "{name: c, cores: 1}, {name: h, device: h, share: time}", beside)
    assert [each.name for each in found.slices] == ["c", "h-1", "h-2"]
    assert found.models[0].slices == ("c", "h-1", "h-2")


def test_rehearsed_devices_need_no_gpu_and_processes_share_an_instance(home: Path) -> None:
    entry = '{name: g, device: h, share: "mig:2g.35gb", count: 2, processes: 2}'
    write_profiles(home / "profiles", ["mig:2g.35gb*2"])
    found = settings(home, entry, REHEARSED).slices
    assert len(found) == 8
    assert all(each.rehearsed and str(each.share) == "mig:2g.35gb*2" for each in found)
    instances = [each.instance for each in found]
    assert len(set(instances)) == 4
    assert all(instances.count(each) == 2 for each in instances)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("slices", "sentence"),
    [
        ("device: 'cuda:7'", "no such GPU here; got cuda:7, there is cuda:0 to cuda:2"),
        ("device: 'cuda:0', share: 'cores:2'", "no share of a GPU; got 'cores:2', expected whole, time, "),
        ("device: 'cuda:0', share: 'mps:130'", "no share of a GPU; got 'mps:130', expected whole, time, "),
        ("device: 'cuda:0'}, {name: i, device: 'cuda:0'", "cuda:0 is whole for one slice, and 2 slices"),
        ("device: 'cuda:0', share: time}, {name: i, device: 'cuda:0', share: 'mps:30'",
         "the slices of cuda:0 ask for shares of several kinds, mps or time; expected one kind for each"),
        ("device: 'cuda:0', share: 'mig:1g.18gb'", "cuda:0 is not in MIG mode; end all of its processes"),
        ("device: 'cuda:2', share: 'mps:30'", "cuda:2 is in MIG mode, so its shares are instances"),
        ("device: 'cuda:0', share: 'sm:4'", "cuda:0: sm: shares need CUDA 13.1 and an Ampere or later"),
        ("device: 'cuda:0', share: 'mps:2', count: 49", "cuda:0: 49 slices by MPS; expected at most 48"),
        ("device: 'cuda:0', share: 'mps:30', processes: 2", "2 processes in a share of kind mps"),
        ("device: 'cuda:0', cores: 2", "a number of cores for a slice on a GPU; got 2"),
        ("share: 'mps:30'", "`share` is of a GPU, and the entry names none; expected `device: cuda:0`"),
    ],
)  # fmt: skip
def test_what_a_gpu_cannot_give_is_refused_with_the_cure(home: Path, slices: str, sentence: str) -> None:
    faults = gateway_faults(home, text(f"{{name: g, {slices}}}"))
    assert any(sentence in message for message in faults), faults


@pytest.mark.usefixtures("machine")
def test_caps_above_a_whole_gpu_are_a_warning(home: Path) -> None:
    found = settings(home, '{name: g, device: "cuda:0", share: "mps:60", count: 2}')
    assert any("add up to 120 %" in str(each) for each in found.warnings)


def test_a_device_to_plan_with_is_no_device_to_serve_on(home: Path) -> None:
    planned = REHEARSED.replace(", rehearse: true", "")
    faults = gateway_faults(home, text("{name: g, device: h}", planned))
    assert any("expected `rehearse: true` there, or a GPU such as cuda:0" in each for each in faults), faults
