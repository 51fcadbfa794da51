"""What a worker's process holds, in its own memory or on its GPU, and the most that a run took."""

import re
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from serving.worker.garbage import trim

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5), clear_refs: resets the peak resident set size


class Memory:
    """Bytes of this process on one device ("cpu", or "cuda:0" and so on)."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def held_bytes(self) -> int:
        """Resident, or allocated on the GPU. What is resident of mapped files counts in each worker that maps
        them, though all share one copy: no worker is counted for less than it would hold alone."""
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
            with suppress(OSError):  # not in every container: the peak is then that of the whole life
                _CLEAR.write_text(_RESET_PEAK)
        return self.held_bytes()

    def peak_bytes(self) -> int:
        """The most that was held since `start`."""
        if self._device == "cpu":
            return _status_bytes("VmHWM")
        torch = self._torch()
        return int(torch.cuda.max_memory_allocated(self._device)) if torch else 0

    def _torch(self) -> ModuleType | None:
        """Where memory is the GPU's: loaded by the model's code, if at all."""
        return sys.modules.get("torch") if self._device != "cpu" else None


def _status_bytes(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0
