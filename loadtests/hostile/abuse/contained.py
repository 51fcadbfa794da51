"""A memory cgroup for a gateway: as a container of that size has it, where this machine lets one be made."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from router.settings.machine.cgroups import CGROUPS, PROC, groups, lines

_LIMITS = {1: "memory.limit_in_bytes", 2: "memory.max"}
_PEAKS = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}
GOES_S = 10.0


@dataclass(frozen=True, slots=True)
class Container:
    """A cgroup of that version (1 or 2)."""

    version: int
    folder: Path

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Put this process into the cgroup meanwhile; processes that it starts then are in it, and stay."""
        self._take(self.folder)
        try:
            yield
        finally:
            self._take(self.folder.parent)

    def _take(self, folder: Path) -> None:
        (folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak_mb(self) -> float:
        """Return the most that all in it have had together since the last call, where the kernel can forget
        that; since its start elsewhere."""
        peak = self.folder / _PEAKS[self.version]
        found = int((lines(peak) or ["0"])[0]) / (1 << 20)
        with contextlib.suppress(OSError):
            peak.write_text("0")
        return found

    def kills(self) -> int:
        """Return how many processes in it were killed for want of memory."""
        fields = [line.split() for line in lines(self.folder / _KILLS[self.version])]
        return sum(int(count) for name, count in fields if name == "oom_kill")


@contextlib.contextmanager
def container(memory_mb: int) -> Iterator[Container]:
    """Yield a cgroup with `memory_mb` of memory and no swap, and remove it afterwards. Raises OSError if none
    can be made."""
    version, above = next(groups("memory", PROC, CGROUPS), (2, CGROUPS))
    made = Container(version, Path(tempfile.mkdtemp(prefix="penstock-", dir=above)))
    try:
        (made.folder / _LIMITS[version]).write_text(str(memory_mb << 20))
        with contextlib.suppress(OSError):  # where there is swap
            (made.folder / "memory.swap.max").write_text("0")
        yield made
    finally:
        give_up_s = time.monotonic() + GOES_S
        while made.folder.exists() and time.monotonic() < give_up_s:  # until its last process is reaped
            with contextlib.suppress(OSError):
                made.folder.rmdir()
            time.sleep(0.05)
