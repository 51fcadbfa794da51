"""`devices:`: what the entries become, what they leave out, and the one sentence for each mistake."""

from pathlib import Path

import pytest

from router.settings import load_settings
from router.settings.machine.memory import usable_memory_bytes
from router.settings.machine.slices import usable_cores
from serving.profile.device import device_kind
from serving.values.slice_specs import DeviceSpec, SliceSpec
from tests.router.settings.samples import gateway_faults, write_gateway

HERE = device_kind(SliceSpec("", ()))
MODELS = "models: [{path: models/digits}]\n"
DEVICES = """\
devices:
  - {name: host, kind: cpu-acme-f1m2, cores: 16, memory_gb: 64, price: 0.8, domain: rack-1}
  - {name: gpu, kind: gpu-nvidia-h200, count: 2, divide: mps}
"""


def devices(home: Path, text: str) -> tuple[DeviceSpec, ...]:
    return load_settings(write_gateway(home, MODELS + text)).devices


def test_entries_become_these_devices_in_their_order(home: Path) -> None:
    host, gpu = devices(home, DEVICES)
    assert host == DeviceSpec("host", "cpu-acme-f1m2", "cores", 1, 16, 64 << 30, 0.8, "rack-1")
    assert gpu == DeviceSpec("gpu", "gpu-nvidia-h200", "mps", count=2)
    assert (host.names, gpu.names) == (("host",), ("gpu-1", "gpu-2"))


@pytest.mark.parametrize("text", ["", "devices:\n", "devices: []\n"])
def test_without_entries_there_are_none(home: Path, text: str) -> None:
    assert devices(home, text) == ()


def test_an_entry_of_a_name_alone_is_this_machines_cpu(home: Path) -> None:
    (host,) = devices(home, "devices: [{name: host}]")
    expected = DeviceSpec("host", HERE, "cores", 1, len(usable_cores()), usable_memory_bytes())
    assert host == expected
    assert host.memory_bytes > 0


def test_a_gpu_is_divided_by_mps_where_nothing_is_said(home: Path) -> None:
    (gpu,) = devices(home, "devices: [{name: gpu, kind: gpu-nvidia-l4}]")
    assert (gpu.divide, gpu.cores, gpu.memory_bytes, gpu.price, gpu.domain) == ("mps", 0, 0, 0.0, "")


def test_a_model_names_in_how_many_domains_its_replicas_lie(home: Path) -> None:
    settings = load_settings(write_gateway(home, "models: [{path: models/digits, domains: 2}]"))
    assert settings.models[0].domains_min == 2
    assert load_settings(write_gateway(home, MODELS)).models[0].domains_min == 1


def test_more_domains_than_the_devices_have_are_warned_of(home: Path) -> None:
    wanted = "models: [{path: models/digits, domains: 4}]\n"
    (warning,) = load_settings(write_gateway(home, wanted + DEVICES)).warnings
    expected = "the devices are in 3 failure domains; no placement can put digits into 4"
    assert str(warning).endswith(f"penstock.yaml:1:41: models[0].domains: {expected}")
    three = wanted.replace("4", "3")
    assert not load_settings(write_gateway(home, three + DEVICES)).warnings
    assert not load_settings(write_gateway(home, wanted)).warnings  # of this machine nothing is said


KIND = "a device kind as profiles/ has folders of, such as cpu-amd-epyc-f25m17 or gpu-nvidia-h200"
MIG = "an A30, A100, H100, GH200, H200 or RTX PRO 6000 (gpu-nvidia-h200), or divide: mps or whole"
NO_KEY = "expected no such key"
HOST, GPU = "devices[0]", "devices[1]"


@pytest.mark.parametrize(
    ("old", "new", "marked", "where", "sentence"),
    [
        ("divide: mps", "divide: slices", "slices", f"{GPU}.divide",
         "unknown way to divide a device; got 'slices', expected cores, mps, mig or whole"),
        ("divide: mps", "divide: cores", "cores}", f"{GPU}.divide",
         "no way to divide a GPU; got 'cores', expected mps, mig or whole"),
        ("cores: 16", "cores: 16, divide: mps", "mps", f"{HOST}.divide",
         "no way to divide a CPU; got 'mps', expected cores"),
        ("nvidia-h200, count: 2, divide: mps", "nvidia-l4, divide: mig", "mig}", f"{GPU}.divide",
         f"no MIG instances are known of this kind; got 'gpu-nvidia-l4', expected {MIG}"),
        ("kind: gpu-nvidia-h200", "kind: h200", "h200", f"{GPU}.kind",
         f"no kind of device; got 'h200', expected {KIND}"),
        ("divide: mps", "cores: 4", "cores: 4", f"{GPU}.cores",
         f"a GPU has no cores that could be shared out; got 4, {NO_KEY}"),
        ("divide: mps", "divide: mig, memory_gb: 141", "memory_gb: 141", f"{GPU}.memory_gb",
         f"memory of a device that is divided by mig; got 141, {NO_KEY}: "
         "each MIG instance has the memory of its profile"),
        ("cores: 16, ", "", "{name: host", HOST, "cpu-acme-f1m2 is not this machine's CPU; "
         "expected a key `cores`, how many one of them has"),
        ("count: 2", "count: 0", "0, divide", f"{GPU}.count", "too small; got 0, expected 1 or more"),
        ("count: 2", "count: 1.5", "1.5", f"{GPU}.count",
         "not a whole number; got 1.5, expected a whole number"),
        ("price: 0.8", "price: -1", "-1", f"{HOST}.price", "too small; got -1, expected 0 or more"),
        ("price: 0.8", "price: .nan", ".nan", f"{HOST}.price",
         "not a finite number; got nan, expected a finite number"),
        ("memory_gb: 64", "memory_gb: 0", "0, price", f"{HOST}.memory_gb",
         "too small; got 0, expected 0.001 or more"),
        ("price: 0.8", "prize: 0.8", "prize", f"{HOST}.prize",
         "unknown key; got 'prize', expected name, kind, count, divide, cores, memory_gb, price, domain or "
         "rehearse (did you mean price?)"),
        ("name: gpu, ", "", "{kind: gpu", f"{GPU}.name", "this key is required"),
        (DEVICES, "devices: {host: 1}", "{host", "devices",
         "not a list; got a mapping, expected a list: [a, b], or lines that begin with '- '"),
        ("name: gpu, kind: gpu-nvidia-h200, count: 2", "name: host, kind: gpu-nvidia-h200", "host, kind: gpu",
         f"{GPU}.name", "'host' is a device of devices[0] already; expected another name"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(
    home: Path, old: str, new: str, marked: str, where: str, sentence: str
) -> None:
    assert DEVICES.count(old) == 1
    text = MODELS + DEVICES.replace(old, new)
    before = text[: text.index(marked)]
    place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    assert gateway_faults(home, text) == [f"penstock.yaml:{place}: {where}: {sentence}"]


def test_a_name_may_not_be_that_of_one_of_several(home: Path) -> None:
    text = "devices: [{name: a, count: 2}, {name: a-2}, {name: a-3}]\n"
    (fault,) = gateway_faults(home, MODELS + text)
    assert fault.endswith("devices[1].name: 'a-2' is a device of devices[0] already; expected another name")
