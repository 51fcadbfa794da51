"""The place of a gateway's process, which what has started it sees as the gateway.

With a service manager the next gateway becomes the main process (MAINPID, sd_notify(3)). Elsewhere a waiter
(`waiter.py`) takes the place of the first gateway, and stays there for all that follow.
"""

import os
import signal
import sys
from typing import Final

from router.startup import systemd
from router.startup.upgrade import waiter

PLACE_ENV: Final = "PENSTOCK_WAITER_FD"
"""The variable with the pipe by which a gateway names the next one to the waiter above it."""


class Place:
    """Of this process."""

    def __init__(self) -> None:
        stated = os.environ.get(PLACE_ENV, "")
        self._told = int(stated) if stated.isdecimal() else -1  # to the waiter above
        self._heard = -1  # of the waiter that this process becomes

    def lend(self, environment: dict[str, str]) -> list[int]:
        """Prepare the environment of the next gateway. Return the descriptors that it gets."""
        if systemd.is_there():
            return []
        if self._told < 0:
            self._heard, self._told = os.pipe2(os.O_CLOEXEC)
        environment[PLACE_ENV] = str(self._told)
        return [self._told]

    def name_next(self, pid: int) -> None:
        """Say which process is the gateway from now on."""
        if systemd.is_there():
            systemd.tell(f"MAINPID={pid}")
        else:
            if self._heard >= 0:  # at once: the next gateway may make way before this process is a waiter
                waiter.keep_orphans()
            os.write(self._told, f"{pid}\n".encode())

    def leave(self, pid: int) -> None:
        """Leave the place to the next gateway. Return if this process is to end, else it is a waiter from
        now on."""
        if self._heard >= 0:
            os.set_inheritable(self._heard, True)
            signal.pthread_sigmask(signal.SIG_BLOCK, waiter.PASSED_ON)  # until the waiter hears them
            command = [sys.executable, "-S", "-E", waiter.__file__, str(pid), str(self._heard)]
            os.execv(sys.executable, command)  # noqa: S606  # Python itself
