"""What the checks say of machines where others compute, and where they do not."""

from pathlib import Path

import pytest

from router.verbs.doctor.neighbours import CoreTimes, check_load, check_neighbours, check_pressure, core_times
from tests.router.verbs.doctor.roots import is_ok, is_warning, machine

STAT = """\
cpu  900 0 0 9000 0 0 0 90 0 0
cpu0 100 10 20 1000 7 1 2 30 5 5
cpu1 200 20 40 2000 7 1 2 40 5 5
cpu7 600 0 0 6000 0 0 0 20 0 0
intr 12345
"""
QUIET = CoreTimes(0, 0, 0)


def test_the_times_are_of_the_cores_that_may_be_used(tmp_path: Path) -> None:
    found = core_times(machine(tmp_path, {"proc/stat": STAT}))
    assert found == CoreTimes(busy=133 + 263, stolen=70, total=1170 + 2310)
    assert core_times(machine(tmp_path / "proc")) == QUIET


@pytest.mark.parametrize(
    ("after", "own", "sentence"),
    [
        (CoreTimes(10, 0, 100), 0, "others had 10% of the cores' time, the hypervisor 0%"),
        (CoreTimes(90, 0, 100), 85, "others had 5% of the cores' time, the hypervisor 0%"),
        (QUIET, 0, "the kernel does not say what others do"),
    ],
)
def test_quiet_neighbours_are_fine(after: CoreTimes, own: float, sentence: str) -> None:
    found = check_neighbours(QUIET, after, own)
    assert is_ok(found)
    assert found.sentence == sentence


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (CoreTimes(40, 0, 100), "other processes had 40% of the cores' time"),
        (CoreTimes(90, 10, 100), "the hypervisor gave 10% of the cores' time to other machines"),
    ],
)
def test_noisy_neighbours_are_warned_of(after: CoreTimes, sentence: str) -> None:
    found = check_neighbours(QUIET, after, 0)
    assert is_warning(found)
    assert found.sentence == sentence


@pytest.mark.parametrize(
    ("content", "sound"), [("0.51 0.9 1.0 1/99 7", True), ("2.40 0 0 1/9 7", False), ("", True)]
)
def test_more_processes_than_cores_are_warned_of(tmp_path: Path, content: str, sound: bool) -> None:
    found = check_load(machine(tmp_path, {"proc/loadavg": content}))
    assert is_ok(found) if sound else is_warning(found)


@pytest.mark.parametrize(
    ("cpu", "memory", "sound", "said"),
    [
        (1.2, 0.0, True, "some process waited for cpu in 1 % of the last 10 s"),
        (55.0, 0.0, False, "some process waited for cpu in 55 % of the last 10 s"),
        (5.0, 12.0, False, "some process waited for memory in 12 % of the last 10 s"),
    ],
)
def test_processes_that_wait_are_warned_of(
    tmp_path: Path, cpu: float, memory: float, sound: bool, said: str
) -> None:
    line = "some avg10={} avg60=99.0 avg300=99.0 total=1\nfull avg10=0.00 avg60=0 avg300=0 total=0\n"
    files = {"proc/pressure/cpu": line.format(cpu), "proc/pressure/memory": line.format(memory)}
    found = check_pressure(machine(tmp_path, files))
    assert is_ok(found) if sound else is_warning(found)
    assert found.sentence == said


def test_a_kernel_without_pressure_is_no_fault(tmp_path: Path) -> None:
    assert is_ok(check_pressure(machine(tmp_path)))
