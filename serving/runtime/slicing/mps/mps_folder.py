"""The private folder of an MPS daemon: made with a lock, so that a folder that was left behind can be told.

The process that wants the daemon holds the lock, and so does the guard. The guard removes the folder when
that process dies. If both are killed, the folder has no holder, and the next daemon's start removes it.
"""

import fcntl
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from serving.worker.process.tree import marked

PREFIX: Final = "penstock-mps-"
LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
"""A variable that the daemon and its servers have, and their clients have not."""
_OWNER: Final = "owner"


def make_folder() -> tuple[str, int]:
    """Return a new folder, and a descriptor: while a copy of that is open, the folder is in use."""
    remove_left()
    folder = tempfile.mkdtemp(prefix=PREFIX)
    new = Path(folder, f"{_OWNER}.new")
    lock = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(Path(folder, _OWNER))  # it is never seen without its lock
    return folder, lock


def end_servers(folder: str) -> None:
    """Kill what the daemon of this folder has started and that has outlived it: its servers."""
    for pid in marked(f"{LOGS}={folder}"):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def remove_left() -> None:
    """Remove this user's folders that are not in use."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, another user's, or gone meanwhile
            _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    lock = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        end_servers(str(folder))
        shutil.rmtree(folder)
    finally:
        os.close(lock)
