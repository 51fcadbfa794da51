"""Slices on GPUs: which devices an entry means, and what it may not ask of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from router.settings import Settings, load_settings
from serving.profile.device import device_kind
from serving.runtime.slicing.inventory import ComputeMode, Gpu, Inventory, MigDevice
from serving.values.slice_specs import Share
from tests.router.settings.rehearsed import REHEARSED, write_profiles
from tests.router.settings.samples import gateway_faults, write_gateway


def gpu(index: int, *, mig: bool = False) -> Gpu:
    return Gpu(index, f"GPU-{index}", "NVIDIA H200", 1, 0, (9, 0), 132, mig, (), None, None, 0, ())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two H200s and one in MIG mode, with CUDA 12.4."""
    inventory = Inventory((0, 1), (gpu(0), gpu(1), gpu(2, mig=True)), "550", 12040)
    monkeypatch.setattr("router.settings.values.findings.take_inventory", lambda: inventory)
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
@pytest.mark.parametrize("text", ["GPU-1", "cuda:1", "gpu-1"])
def test_a_gpu_has_one_name_however_an_entry_calls_it(home: Path, text: str) -> None:
    (found,) = settings(home, f'{{name: g, device: "{text}"}}').slices
    assert (found.name, found.device, found.share) == ("g", "cuda:1", Share("whole", 1.0))


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is cut into two instances."""
    instances = (MigDevice("MIG-a", 1, 1, 60, 0, "3g.71gb"), MigDevice("MIG-b", 2, 1, 16, 0, "1g.18gb"))
    inventory = Inventory((0, 1), (gpu(0), replace(gpu(1, mig=True), mig_devices=instances)), "580", 13010)
    monkeypatch.setattr("router.settings.values.findings.take_inventory", lambda: inventory)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(
    ("visible", "called", "device"),
    [(None, "MIG-a", "MIG-a"), ("MIG-b,MIG-a", "cuda:1", "cuda:1"), ("MIG-b,MIG-a", "MIG-a", "cuda:1"),
     ("0,GPU-1/1/0", "cuda:1", "cuda:1")],
)  # fmt: skip
def test_a_mig_device_is_named_by_its_uuid_or_by_its_place(
    home: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, called: str, device: str
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (found,) = settings(home, f'{{name: g, device: "{called}", share: "mig:3g.71gb"}}').slices
    assert (found.device, str(found.share), found.kind) == (device, "mig:3g.71gb", "gpu-nvidia-h200")


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(
    ("slices", "sentence"),
    [
        ("device: MIG-a", "MIG-a is one MIG device; got whole:1, expected one slice with share: mig:3g.71gb"),
        ("device: MIG-a, share: 'mig:1g.18gb'", "MIG-a is one MIG device; got mig:1g.18gb, expected"),
        ("device: MIG-a, share: 'mig:3g.71gb', count: 2", "got mig:3g.71gb, mig:3g.71gb, expected one slice"),
        ("device: MIG-a, share: 'mig:3g.71gb'}, {name: i, device: 'cuda:1', share: 'mig:1g.18gb'",
         "other slices name MIG devices of cuda:1, so mig:1g.18gb could be one of these"),
        ("device: MIG-c", "there is no MIG-c here; there is MIG-a, MIG-b"),
        ("device: gpu-5", "there is no gpu-5 here; there is gpu-0, gpu-1"),
    ],
)  # fmt: skip
def test_a_mig_device_is_given_out_once_and_as_it_is(home: Path, slices: str, sentence: str) -> None:
    faults = gateway_faults(home, text(f"{{name: g, {slices}}}"))
    assert any(sentence in message for message in faults), faults


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
        ("device: 'cuda:2', share: 'mig:1g.18gb*2'",
         "processes in the share; got 'mig:1g.18gb*2', expected share: mig:1g.18gb beside processes: 2"),
        ("device: 'cuda:2', share: 'mig:1g.18gb*1'", "no share of a GPU; got 'mig:1g.18gb*1'"),
        ("device: 'cuda:2', share: 'mig: auto'", "an instance such as mig:2g.35gb: `penstock place` "),
        ("device: 'cuda:2', share: auto", "`penstock place` chooses the layout and prints the slices"),
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


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("entry", "warned"), [("{name: g, cores: 1}", True), ('{name: g, device: "cuda:1"}', False)]
)
def test_a_variant_that_is_compiled_for_a_gpu_and_runs_on_none_is_warned_of(
    home: Path, entry: str, warned: bool
) -> None:
    file = home / "models" / "digits" / "model.yaml"
    file.write_text(file.read_text().replace("{name: cnn, ", "{name: cnn, compile: graphs, "))
    found = settings(home, entry)
    assert found.models[0].spec.variant("cnn").compile == "graphs"
    message = "digits cnn has compile: graphs, and runs on no GPU; there it does nothing"
    assert ((message, "models[0]") in [(each.message, each.where) for each in found.warnings]) is warned


INSTANCES = (MigDevice("MIG-a", 1, 1, 60, 0, "3g.71gb"),)
STATES = {
    "prohibited": replace(gpu(0), compute_mode=ComputeMode.PROHIBITED),
    "exclusive": replace(gpu(0), compute_mode=ComputeMode.EXCLUSIVE_PROCESS),
    "cut": replace(gpu(0, mig=True), mig_devices=INSTANCES),
    "full": replace(gpu(0), memory_bytes=100 << 20, memory_used_bytes=95 << 20),
    "plain": gpu(0),
}


def become(monkeypatch: pytest.MonkeyPatch, state: str, *more: Gpu) -> None:
    """Make the machine's first GPU one in that state."""
    inventory = Inventory((0, 1), (STATES[state], *more), "580", 13010)
    monkeypatch.setattr("router.settings.values.findings.take_inventory", lambda: inventory)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("state", "slices", "sentence"),
    [
        ("prohibited", "share: time", "cuda:0 has the compute mode `prohibited`, so no worker may use it; "),
        ("exclusive", "share: time, count: 2", "one worker may use it, and 2 slices ask for it; run `nvidia"),
        ("cut", "share: 'mig:9g.9gb'", "cuda:0 has no MIG profile 9g.9gb; expected 1g.18gb, 1g.35gb, "),
        ("cut", "share: 'mig:4g.71gb', count: 2", "has no room for the MIG instances 4g.71gb, 4g.71gb at"),
        ("cut", "share: 'mig:3g.71gb', count: 2", "cuda:0 has no free MIG instance for 3g.71gb; make it by "
         "`nvidia-smi mig -i 0 -cgi 3g.71gb -C` as root, or let the gateway do it: `mig: {recut: true}`"),
        ("plain", "share: 'sm:99'", "cuda:0 has 16 chunks of multiprocessors; the slices ask for 99"),
    ],
)  # fmt: skip
def test_a_gpu_in_another_state_is_refused_with_the_cure(
    home: Path, monkeypatch: pytest.MonkeyPatch, state: str, slices: str, sentence: str
) -> None:
    become(monkeypatch, state)
    faults = gateway_faults(home, text(f"{{name: g, device: 'cuda:0', {slices}}}"))
    assert any(sentence in message for message in faults), faults


def test_instances_are_made_where_the_file_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, "cut")
    entry = "{name: g, device: 'cuda:0', share: 'mig:3g.71gb', count: 2}"
    assert len(settings(home, entry, "mig: {recut: true}\n").slices) == 2
    assert len(settings(home, entry.replace(", count: 2", ", processes: 2")).slices) == 2


@pytest.mark.parametrize(
    ("state", "share", "sentence"),
    [
        (
            "full",
            "time",
            "cuda:0 has 5 MiB of 100 MiB free now, so models may find no room; `nvidia-smi -i",
        ),
        ("exclusive", "whole", "cuda:0 takes one process at a time, so a worker starts only after the last"),
        ("plain", "mps:30", "another MPS daemon may run, with pipes in "),
    ],
)
def test_what_may_fail_later_is_a_warning(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, share: str, sentence: str
) -> None:
    become(monkeypatch, state)
    (tmp_path / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    found = settings(home, f"{{name: g, device: 'cuda:0', share: '{share}'}}")
    assert [sentence in str(each) for each in found.warnings] == [True], found.warnings
