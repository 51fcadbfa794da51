"""What the checks of cores, nodes, clock and speed say of machines of each kind."""

from pathlib import Path

import pytest

from router.verbs.doctor.cores import (
    check_clock,
    check_cores,
    check_governor,
    check_nodes,
    check_quota,
    core_list,
)
from tests.router.verbs.doctor.roots import is_ok, is_warning, machine, on_cores

CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
GOVERNOR = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"
NODE = "sys/devices/system/node/node{}/cpulist"
TWO_NODES = {NODE.format(0): "0-1\n", NODE.format(1): "2-3\n"}


def test_slices_have_cores_of_their_own_or_share_them_with_a_warning(tmp_path: Path) -> None:
    apart = check_cores(machine(tmp_path), on_cores(tmp_path, (0,), (1,)))
    assert is_ok(apart)
    assert apart.sentence == "2 cores may be used, and slices compute on 2"
    shared = check_cores(machine(tmp_path), on_cores(tmp_path, (0,), (0, 1)))
    assert is_warning(shared)
    assert shared.sentence == "2 cores may be used, and slices share core 0"
    assert check_cores(machine(tmp_path, cores=1), None).sentence == "1 core may be used"


@pytest.mark.parametrize(
    ("cpu_max", "sound"),
    [(None, True), ("max 100000", True), ("200000 100000", True), ("150000 100000", False)],
)
def test_a_container_with_less_time_than_its_slices_have_cores_is_warned_of(
    tmp_path: Path, cpu_max: str | None, sound: bool
) -> None:
    files = {"proc/self/cgroup": "0::/a\n"} | ({"cgroup/a/cpu.max": cpu_max} if cpu_max else {})
    found = check_quota(machine(tmp_path, files), on_cores(tmp_path, (0,), (1,)))
    assert is_ok(found) if sound else is_warning(found)
    if not sound:
        assert "has the time of 1.5 cores, and 2 are used" in found.sentence


def test_a_slice_on_two_memory_nodes_is_warned_of(tmp_path: Path) -> None:
    assert is_ok(check_nodes(machine(tmp_path), on_cores(tmp_path, (0, 3))))  # the kernel shows no nodes
    two = machine(tmp_path, TWO_NODES, 4)
    within = check_nodes(two, on_cores(tmp_path, (0, 1), (2, 3)))
    assert is_ok(within)
    assert within.sentence == "2 memory nodes, and no slice is on two of them"
    across = check_nodes(two, on_cores(tmp_path, (0, 1), (1, 2)))
    assert is_warning(across)
    assert across.sentence.startswith("slice s1 has cores of two nodes")


@pytest.mark.parametrize(
    ("source", "sound"),
    [("tsc", True), ("arch_sys_counter", True), (None, True), ("kvm-clock", False), ("hpet", False)],
)
def test_a_clock_that_is_not_the_processors_own_is_warned_of(
    tmp_path: Path, source: str | None, sound: bool
) -> None:
    found = check_clock(machine(tmp_path, {CLOCK: f"{source}\n"} if source else {}))
    assert is_ok(found) if sound else is_warning(found)
    assert source is None or source in found.sentence


@pytest.mark.parametrize(("governor", "sound"), [("performance", True), (None, True), ("powersave", False)])
def test_a_governor_that_slows_idle_cores_is_warned_of(
    tmp_path: Path, governor: str | None, sound: bool
) -> None:
    found = check_governor(machine(tmp_path, {GOVERNOR: governor} if governor else {}))
    assert is_ok(found) if sound else is_warning(found)
    assert is_ok(check_governor(machine(tmp_path, cores=1)))  # of another's core


@pytest.mark.parametrize(
    ("listing", "cores"), [("0-2,5", {0, 1, 2, 5}), ("7", {7}), ("", set()), ("0-x", set()), ("a", set())]
)
def test_the_kernels_lists_of_cores_are_read(listing: str, cores: set[int]) -> None:
    assert core_list(listing) == cores
