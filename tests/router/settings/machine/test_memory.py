"""How much memory there is: the machine's, or what a container's control groups allow."""

from pathlib import Path

import pytest

from router.settings.machine.memory import free_memory_bytes, usable_memory_bytes


def write_machine(home: Path, total_kb: int, membership: str, limits: dict[str, str]) -> tuple[Path, Path]:
    """/proc and /sys/fs/cgroup of a machine; `limits`: files in the latter."""
    proc, groups = home / "proc", home / "cgroup"
    (proc / "self").mkdir(parents=True, exist_ok=True)
    (proc / "meminfo").write_text(f"MemTotal:       {total_kb} kB\nMemFree:        17 kB\n")
    (proc / "self" / "cgroup").write_text(membership)
    for name, text in limits.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    return proc, groups


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/\n", {}, 8000 << 10),
        ("0::/\n", {"memory.max": "max\n"}, 8000 << 10),
        ("0::/\n", {"memory.max": "4096\n"}, 4096),
        ("0::/a/b\n", {"a/memory.max": "5000\n", "a/b/memory.max": "max\n"}, 5000),
        ("0::/a/b\n", {"a/memory.max": "5000\n", "a/b/memory.max": "3000\n"}, 3000),
        ("0::/of/the/host\n", {"memory.max": "7000\n"}, 7000),
        ("0::/../../elsewhere\n", {"memory.max": "max\n"}, 8000 << 10),
        ("5:cpu:/a\n4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "6000\n"}, 6000),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8000 << 10),
    ],
)
def test_memory_is_the_machines_or_the_least_limit_of_its_control_groups(
    tmp_path: Path, membership: str, limits: dict[str, str], expected: int
) -> None:
    proc, groups = write_machine(tmp_path, 8000, membership, limits)
    assert usable_memory_bytes(proc, groups) == expected


def test_where_nothing_tells_memory_is_not_limited(tmp_path: Path) -> None:
    assert usable_memory_bytes(tmp_path / "no", tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {}, 5000 << 10),
        ("0::/a\n", {"a/memory.max": "max\n", "a/memory.current": "9\n"}, 5000 << 10),
        ("0::/a\n", {"a/memory.max": "4096\n", "a/memory.current": "1000\n"}, 3096),
        (
            "0::/a\n",
            {
                "a/memory.max": "4096\n",
                "a/memory.current": "4096\n",
                "a/memory.stat": "anon 96\ninactive_file 500\n",
            },
            500,
        ),
        (
            "4:memory:/a\n",
            {
                "memory/a/memory.limit_in_bytes": "6000\n",
                "memory/a/memory.usage_in_bytes": "5000\n",
                "memory/a/memory.stat": "inactive_file 7\ntotal_inactive_file 200\n",
            },
            1200,
        ),
        ("0::/a\n", {"a/memory.max": "4096\n", "a/memory.current": "5000\n"}, 0),
    ],
)
def test_free_memory_is_what_the_machine_and_each_control_group_have_left(
    tmp_path: Path, membership: str, files: dict[str, str], expected: int
) -> None:
    proc, groups = write_machine(tmp_path, 8000, membership, files)
    with (proc / "meminfo").open("a") as meminfo:
        meminfo.write("MemAvailable:    5000 kB\n")
    assert free_memory_bytes(proc, groups) == expected
