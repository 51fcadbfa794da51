"""Two gateways keep what they measured in one folder, as pods on one volume do: neither harms the other.

Each writer is a process of its own. All have one process id, as the gateways of pods may: each pod counts its
processes from 1.
"""

import errno
import fcntl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.capacity import Capacity
from serving.profile.curve import Profile
from serving.profile.files.store import LOCAL, ProfileStore
from serving.runtime.files.capacity_file import NAME, CapacityFile
from serving.values.slice_specs import Share
from tests.builders import profile, served

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.in_turn(2)]

KIND, WRITES = "cpu-test", 60
TABLE = Capacity((1, 2), (1.0, 4.0), ((100.0, 210.0), (60.5, 150.0)))

GATEWAY = """
import os, sys
from pathlib import Path
from tests.runtime.test_shared_profiles import write_all
os.getpid = lambda: 7
write_all(Path(sys.argv[1]), int(sys.argv[2]))
"""


def measured(share: int) -> Profile:
    return replace(profile(), model="m", variant="a", device_kind=KIND, share=Share("cores", float(share)))


def question(number: int) -> FindCapacity:
    return FindCapacity(served(), "a", f"kind-{number}", profile(), 4)


def write_all(folder: Path, writer: int) -> None:
    """What gateway `writer` (0 or 1) finds: shares and tables that the other does not have."""
    store, kept = ProfileStore(folder), CapacityFile(folder / LOCAL / NAME)
    for number in range(WRITES):
        store.write_local(measured(2 * number + writer + 1))
        kept.write(question(2 * number + writer), TABLE)


@pytest.mark.slow
def test_two_gateways_write_at_once_and_everything_is_there_and_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GATEWAY, str(tmp_path)]
    writers = [subprocess.Popen([*command, str(writer)], stderr=subprocess.PIPE) for writer in (0, 1)]
    store = ProfileStore(tmp_path)
    while any(writer.poll() is None for writer in writers):
        store.read_set(KIND, "m", "a")
        assert store.problems == []
    for writer in writers:
        assert writer.communicate()[1] == b""
        assert writer.returncode == 0
    found = store.read_set(KIND, "m", "a")
    assert found is not None
    assert found.shares("cores") == tuple(Share("cores", float(share + 1)) for share in range(2 * WRITES))
    kept = CapacityFile(tmp_path / LOCAL / NAME)
    assert [number for number in range(2 * WRITES) if kept.read(question(number)) != TABLE] == []
    left = [path.name for path in tmp_path.rglob("*.part")]
    assert left == []


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_still_keeps_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(error, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    store = ProfileStore(tmp_path)
    store.write_local(measured(1))
    found = ProfileStore(tmp_path).read_set(KIND, "m", "a")
    assert found is not None
    assert found.shares("cores") == (Share("cores", 1.0),)


def test_the_lock_is_held_on_a_file_that_is_open_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flock(2): over NFS the kernel makes of it a lock of fcntl(2), which refuses any other (EBADF)."""
    flock, modes = fcntl.flock, []

    def note(descriptor: int, operation: int) -> None:
        modes.append(fcntl.fcntl(descriptor, fcntl.F_GETFL) & 3)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", note)
    ProfileStore(tmp_path).write_local(measured(1))
    CapacityFile(tmp_path / LOCAL / NAME).write(question(1), TABLE)
    assert modes == [2, 2]  # O_RDWR
