"""What a process asks of the kernel so that it ends with another one, and what it is held to."""

import ctypes
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

OOM_SCORE: Final = 500
"""Of workers and bulk processes, from -1000 to 1000 (proc(5), oom_score_adj): the kernel counts a process as
if it held so many thousandths of the memory more, and ends it before the gateway."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_SCORE = Path("/proc/self/oom_score_adj")


def follow(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Get that signal when the thread that has started this process ends; at once where `parent`, its
    process, has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt() -> None:
    """Adopt the orphans below this process as its children, in any session."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def yield_memory() -> None:
    """Let this process go before the gateway does if memory runs out."""
    with suppress(OSError, ValueError):
        if int(_SCORE.read_text()) < OOM_SCORE:
            _SCORE.write_text(str(OOM_SCORE))


def bound(kind: int, most: int) -> None:
    """Hold this process, and what it starts, to a limit of `resource`; a lower one that it has stays."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def leave_no_core() -> None:
    """Make a crash write no image of the process: it would hold what clients have sent."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
