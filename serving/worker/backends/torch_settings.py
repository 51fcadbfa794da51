"""What torch keeps for a process and for each of its threads, set for a worker."""

from contextlib import suppress
from types import ModuleType


class TorchSettings:
    """`threads`: those of the slice. `torch`: None until a model has imported it."""

    def __init__(self, threads: int) -> None:
        self.torch: ModuleType | None = None
        self._threads = threads
        self._interop_is_set = False

    def settle(self) -> None:
        """Set torch's threads, and that it keeps no gradients, for the calling thread; nothing without
        torch."""
        if self.torch is None:
            return
        self.torch.set_num_threads(self._threads)
        self.torch.set_grad_enabled(False)
        if not self._interop_is_set:  # of the process, the others are of a thread
            with suppress(RuntimeError):  # the model's own code has set it or run operators in parallel
                self.torch.set_num_interop_threads(1)
            self._interop_is_set = True
