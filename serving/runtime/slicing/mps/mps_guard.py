"""Ends an MPS control daemon with the process that wanted it: `mps_guard.py FOLDER CONTROL [OPTION...]`.

Standard input is a pipe whose other end only the owner has, so its end of file is the owner's wish, or its
death of whatever kind. Then the daemon is told to quit, what is left of its process group is killed, and the
folder is removed. The daemon does not outlive this process either. Run as a file: it imports no own module.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_QUIT = b"quit -t 2\n"  # seconds that servers have for their last clients
_QUIT_WAIT_S = 10


def main(argv: Sequence[str]) -> int:
    """Return the daemon's exit status where it ends by itself; else this ends with its group, killed."""
    folder, control = argv[:2]
    with Path(folder, "control.log").open("wb") as log:
        # In the foreground it stays a child and in this group, and says all that it would write to its log.
        daemon = subprocess.Popen(  # noqa: S603  # the owner's words
            [control, "-f", *argv[2:]], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_too
        )
    pidfd = os.pidfd_open(daemon.pid)
    ready, _, _ = select.select([pidfd, sys.stdin], [], [])
    if pidfd in ready:
        return abs(daemon.wait())
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run([control], input=_QUIT, timeout=_QUIT_WAIT_S, check=False, capture_output=True)  # noqa: S603
    daemon.kill()
    daemon.wait()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
    return 0


def _die_too() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
