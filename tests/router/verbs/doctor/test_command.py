"""What `penstock doctor` prints and returns, of real machines and as a whole."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from router.settings import Settings
from router.verbs.doctor.command import doctor, document
from router.verbs.doctor.examine import Background, examine, start
from router.verbs.doctor.finding import Finding, Level, fault, ok, warning
from router.verbs.doctor.machine import Machine, asks_for_gpus
from router.verbs.doctor.options import DoctorOptions
from serving.runtime.slicing.inventory import Inventory
from tests.router.settings.samples import GATEWAY, write_deployment
from tests.router.verbs.doctor.roots import NO_GPU, deployment, gpu, inventory, machine, on_gpus

ROOT = Path(__file__).parents[4]
ALWAYS = [
    "python", "compiled", "cores", "quota", "numa", "clock", "governor", "load", "pressure", "open files",
    "processes", "locked memory", "memfd", "areas", "shm", "ports", "folders", "driver", "torch", "profiles",
    "neighbours",
]  # fmt: skip
OF_GPUS = ["device files", "gpu slices", "mig", "mps"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "router.cli", "doctor", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, timeout=60, check=False
    )


def examined(settings: Settings | None, here: Machine, gpus: Callable[[], Inventory]) -> tuple[Finding, ...]:
    return examine(settings, here, start(here), inventory=gpus)


@pytest.mark.slow
def test_a_real_run_examines_this_machine_and_changes_nothing(tmp_path: Path) -> None:
    text = GATEWAY.replace("9000", "0").replace("9001", "0") + "admin: {port: 0}\n"
    write_deployment(tmp_path, text)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    done = run(tmp_path, "--json")
    found = json.loads(done.stdout)
    assert [each["name"] for each in found["findings"] if each["name"] not in OF_GPUS] == ALWAYS
    assert done.returncode == (1 if found["faults"] else 0), done.stderr
    assert found["config"] == "penstock.yaml"
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_file_that_cannot_be_used_ends_with_2_and_the_machine_is_examined(tmp_path: Path) -> None:
    done = run(tmp_path, "--config", "nowhere.yaml")
    assert done.returncode == 2
    assert done.stdout.startswith("error: ")
    assert "only the machine was looked at" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slices", "asks"),
    [
        ("[{name: g, device: gpu-0}]", True),
        ("[{name: g, device: h}]", False),
        ("[{name: c, cores: 1}]", False),
        ("3", False),
        ("[3, {device: 'GPU-a'}]", True),
    ],
)
def test_gpus_are_wanted_also_by_a_file_that_cannot_be_used(tmp_path: Path, slices: str, asks: bool) -> None:
    path = tmp_path / "penstock.yaml"
    path.write_text(f"slices: {slices}\ndevices: [{{name: h, rehearse: true}}]\nunknown: key\n")
    assert asks_for_gpus(path) is asks
    assert not asks_for_gpus(tmp_path / "nowhere.yaml")
    here = machine(tmp_path)
    driver = next(
        each for each in examine(None, here, start(here), asks, lambda: NO_GPU) if each.name == "driver"
    )
    assert driver.level is (Level.FAULT if asks else Level.OK)


@pytest.mark.slow
def test_a_fault_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = GATEWAY.replace("127.0.0.1", "192.0.2.1") + "auth: {keys: keys.yaml}\n"
    (tmp_path / "keys.yaml").write_text("keys: []\n")
    assert doctor(DoctorOptions(write_deployment(tmp_path, refused))) == 1
    assert "this machine cannot do what" in capsys.readouterr().out


@pytest.mark.slow
def test_checks_of_gpus_come_where_there_are_gpus_or_slices_ask_for_them(tmp_path: Path) -> None:
    here, settings = machine(tmp_path), deployment(tmp_path)
    two = inventory(gpu(0), gpu(1))
    assert [each.name for each in examined(settings, here, lambda: NO_GPU)] == ALWAYS
    with_gpus = examined(settings, here, lambda: two)
    assert [each.name for each in with_gpus if each.name not in ALWAYS] == OF_GPUS
    asked = {each.name: each.level for each in examined(on_gpus(tmp_path, "mps:30"), here, lambda: NO_GPU)}
    assert asked["driver"] is Level.FAULT
    assert asked["gpu slices"] is Level.FAULT


@pytest.mark.slow
def test_without_a_file_only_what_needs_none_is_checked(tmp_path: Path) -> None:
    found = [each.name for each in examined(None, machine(tmp_path), lambda: NO_GPU)]
    assert found == [name for name in ALWAYS if name not in ("ports", "folders", "profiles")]


@pytest.mark.slow
def test_each_sentence_is_said_once_and_each_cure_belongs_to_a_fault_or_warning(tmp_path: Path) -> None:
    for each in examined(on_gpus(tmp_path, "mps:30", "mig:3g.71gb"), machine(tmp_path), lambda: NO_GPU):
        assert bool(each.cure) == (each.level is not Level.OK), each
        assert "\n" not in each.sentence + each.cure


def test_a_call_that_takes_too_long_is_not_waited_for() -> None:
    assert Background(lambda: 3).answer(10, 0) == 3
    ended = Event()
    assert not Background(ended.wait).answer(0, otherwise=False)
    ended.set()


def test_the_document_keeps_its_keys() -> None:
    findings = (ok("a", "All is well"), warning("b", "It is slow", "make it fast"), fault("c", "No", "do it"))
    assert document(Path("p.yaml"), findings, ("p.yaml:1:1: no",)) == {
        "schema": 1,
        "config": "p.yaml",
        "problems": ["p.yaml:1:1: no"],
        "faults": 1,
        "warnings": 1,
        "findings": [
            {"name": "a", "level": "ok", "sentence": "All is well", "cure": ""},
            {"name": "b", "level": "warning", "sentence": "It is slow", "cure": "make it fast"},
            {"name": "c", "level": "fault", "sentence": "No", "cure": "do it"},
        ],
    }
    assert document(None, ())["config"] is None
