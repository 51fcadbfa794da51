"""Stands where a gateway was that made way for the next: what has started that sees no end.

A container, a shell or a supervisor waits for the process that it has started. So this takes its place,
passes signals on to the gateway that serves, and ends as that does. Later gateways become its children too
(PR_SET_CHILD_SUBREAPER), as it has seen to before it was a waiter.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main() -> int:
    """Wait for the gateway with this process id, and for those that come after it by the pipe's word."""
    gateway, pipe = map(int, sys.argv[1:3])
    os.set_blocking(pipe, False)
    keep_orphans()  # a gateway of an earlier release has not

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and _in_foreground():
            return  # the terminal has told the gateway too
        with suppress(ProcessLookupError):
            os.kill(_newest(), number)

    def _newest() -> int:
        nonlocal gateway
        with suppress(BlockingIOError):
            if words := os.read(pipe, 4096).split():
                gateway = int(words[-1])
        return gateway

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return 1
        if pid == _newest():
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def keep_orphans() -> None:
    """Make later gateways children of this process, also once it is a waiter."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _in_foreground() -> bool:
    with suppress(OSError):
        return os.tcgetpgrp(0) == os.getpgrp()
    return False


if __name__ == "__main__":
    sys.exit(main())
