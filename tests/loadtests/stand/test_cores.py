"""Who used how much of the machine: each tick is counted once, for who took it."""

from types import SimpleNamespace

import pytest

from loadtests.stand import cores
from loadtests.stand.cores import Usage, intruders
from loadtests.stand.testbed import OTHERS_MAX


class Machine:
    """Clock and counters of four cores; this process was started with the first two."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.pause_s = 1000.0, 0.0
        self.process_us = {1: 5e6, 2: 7e6, 3: 0.0}
        self.core_us = [40e6, 50e6, 60e6, 70e6]
        monkeypatch.setattr(cores, "os", SimpleNamespace(sched_getaffinity=lambda pid: {0, 1}))
        monkeypatch.setattr(cores, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(cores, "cpu_us", self.process_us.__getitem__)
        monkeypatch.setattr(cores, "core_us", self._core_us)

    def _core_us(self, core: int) -> float:
        self.now_s += self.pause_s
        return self.core_us[core]

    def run(self, seconds: float, processes_s: dict[int, float], cores_s: dict[int, float]) -> None:
        """So many seconds pass, in which processes and cores were busy for so many."""
        self.now_s += seconds
        for pid, busy_s in processes_s.items():
            self.process_us[pid] += busy_s * 1e6
        for core, busy_s in cores_s.items():
            self.core_us[core] += busy_s * 1e6


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_partys_share_is_the_time_of_all_its_processes_and_what_is_left_is_of_others(
    machine: Machine,
) -> None:
    usage = Usage({"client": [1], "workers": [2, 3]})
    machine.run(4.0, {1: 1.0, 2: 2.0, 3: 3.0}, {0: 4.0, 1: 3.0, 2: 4.0})  # core 2 is none of ours
    assert usage.shares() == pytest.approx({"client": 0.25, "workers": 1.25, "others": 0.25})
    machine.run(4.0, {1: 1.0}, {0: 1.0})
    assert usage.shares() == pytest.approx({"client": 0.25, "workers": 0.625, "others": 0.125})


def test_ticks_that_the_cores_do_not_show_yet_leave_nothing_for_others(machine: Machine) -> None:
    usage = Usage({"client": [1]})
    machine.run(2.0, {1: 1.01}, {0: 1.0})
    assert usage.shares() == pytest.approx({"client": 0.505, "others": 0.0})


def test_a_pause_in_the_readings_counts_as_time(machine: Machine) -> None:
    usage = Usage({"client": [1]})
    machine.pause_s = 1.0  # for each core
    machine.run(2.0, {1: 1.0}, {0: 1.5, 1: 0.5})
    assert usage.shares() == pytest.approx({"client": 0.25, "others": 0.25})


def test_a_run_is_not_believed_where_others_took_more_than_is_fair() -> None:
    assert intruders({"client": 1.0, "others": OTHERS_MAX}) == []
    (said,) = intruders({"client": 0.1, "others": OTHERS_MAX + 0.3})
    assert said.startswith(f"others took {OTHERS_MAX + 0.3:.0%} of a core")
