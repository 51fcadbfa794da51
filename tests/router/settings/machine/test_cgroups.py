"""How much of the cores' time control groups allow, and how many slices there are by default."""

from pathlib import Path

import pytest

from router.settings.machine.cgroups import quota
from router.settings.machine.slices import default_slices
from tests.router.settings.machine.test_memory import write_machine


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "max 100000\n"}, 4.0),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "200000 100000\n"}, 2.0),
        ("3:cpu,cpuacct:/a\n4:memory:/\n", {"cpu/a/cpu.cfs_quota_us": "300000\n",
                                           "cpu/a/cpu.cfs_period_us": "100000\n"}, 3.0),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)  # fmt: skip
def test_a_quota_is_the_least_of_all_groups(
    tmp_path: Path, membership: str, limits: dict[str, str], expected: float | None
) -> None:
    proc, groups = write_machine(tmp_path, 8000, membership, limits)
    assert quota(proc, groups) == expected


@pytest.mark.parametrize(
    ("cores", "allowed", "expected"),
    [
        (1, 8.0, ("cpu",)),
        (3, 8.0, ("cpu-1", "cpu-2", "cpu-3")),
        (64, 2.9, ("cpu-1", "cpu-2")),
        (64, 0.5, ("cpu",)),
    ],
)
def test_there_is_a_slice_for_each_core_that_may_be_used(
    cores: int, allowed: float, expected: tuple[str, ...]
) -> None:
    assert default_slices(range(cores), allowed) == expected
