"""What a worker's process holds, in its own memory or on its GPU, and the most that a run took."""

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from serving.worker.process.garbage import trim

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5), clear_refs: resets the peak resident set size


class Memory:
    """Bytes of this process on one device ("cpu", or "cuda:0" and so on)."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self.growth = Growth(self.held_bytes)

    def held_bytes(self) -> int:
        """Return the bytes resident, or allocated on the GPU. What is resident of mapped files counts in each
        worker that maps them, though all share one copy. So no worker is counted for less than it would hold
        alone."""
        if self._device == "cpu":
            return _status_bytes("VmRSS")
        torch = self._torch()
        return int(torch.cuda.memory_allocated(self._device)) if torch else 0

    def start(self) -> int:
        """Forget the peak, and give back what earlier runs have freed; returns the bytes that are held now.
        What runs next has to fault its memory in again, and takes longer."""
        torch = self._torch()
        if torch:
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            trim()
            with suppress(OSError):  # not in every container: then the peak of the whole life counts
                _CLEAR.write_text(_RESET_PEAK)
        return self.held_bytes()

    def peak_bytes(self) -> int:
        """Return the most that was held since `start`."""
        if self._device == "cpu":
            return _status_bytes("VmHWM")
        torch = self._torch()
        return int(torch.cuda.max_memory_allocated(self._device)) if torch else 0

    def _torch(self) -> ModuleType | None:
        """Return torch if memory is the GPU's: loaded by the model's code, if at all."""
        return sys.modules.get("torch") if self._device != "cpu" else None


class Growth:
    """By what loads make the process grow. `held_bytes`: what it holds now.

    A load that runs beside others counts what they add in its time, too: too much, never too little. What
    comes while any of them imports counts as imports, and as no model's own.
    """

    def __init__(self, held_bytes: Callable[[], int]) -> None:
        self._held_bytes = held_bytes
        self._lock = threading.Lock()
        self._under_way = self._importing = 0
        self._seen_bytes = self._import_bytes = self._model_bytes = 0  # the last two: of all loads until now

    @contextmanager
    def load(self) -> Iterator["LoadGrowth"]:
        """Yield the growth of one load, which begins with its imports."""
        found = LoadGrowth(self, *self.count(1, 1))
        try:
            yield found
        finally:
            found.imported()
            self.count(-1, 0)

    def count(self, under_way: int = 0, importing: int = 0) -> tuple[int, int]:
        """Return the bytes of imports and of models until now. Then `under_way` more loads are under way, and
        `importing` more import."""
        with self._lock:
            held_bytes = self._held_bytes()
            grown_bytes = max(0, held_bytes - self._seen_bytes) if self._under_way else 0
            self._seen_bytes = held_bytes
            if self._importing:
                self._import_bytes += grown_bytes
            else:
                self._model_bytes += grown_bytes
            self._under_way += under_way
            self._importing += importing
            return self._import_bytes, self._model_bytes


class LoadGrowth:
    """The growth in the time of one load. `counted`: what its owner had counted before."""

    def __init__(self, growth: Growth, *counted: int) -> None:
        self._growth = growth
        self._import_bytes, self._model_bytes = counted
        self._importing = True

    def imported(self) -> int:
        """Return its imports are done; returns the bytes of imports in its time."""
        ended, self._importing = self._importing, False
        return self._growth.count(0, -1 if ended else 0)[0] - self._import_bytes

    def loaded(self) -> int:
        """Return the bytes of models in its time."""
        return self._growth.count()[1] - self._model_bytes


def _status_bytes(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0
