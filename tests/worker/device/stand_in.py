"""A device of streams without hardware: work waits in its stream until a test lets the stream go on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from serving.worker.device.ports import Lane, Tensor
from serving.worker.frames.arrays import Array

PATIENCE_S = 60.0


class Mark:
    """An event; `fault`: what the device has met by then."""

    def __init__(self) -> None:
        self.passed = threading.Event()
        self.fault = ""

    def synchronize(self) -> None:
        assert self.passed.wait(PATIENCE_S), "the stream was never let go on"
        if self.fault:
            raise RuntimeError(self.fault)


Step = Callable[[], bool]
"""Return whether it is done; False while it waits for another stream."""


class StandIn:
    """Streams whose copies and marks are done by `go`, one stream at a time. Computation is done at once.

    `done`: what was done, in order, as (stream, what). `free`: streams need no `go`. `flying_max`: the most
    batches that were under way at a time.
    """

    def __init__(self) -> None:
        import torch  # here: it takes a second, also in runs that only collect these tests

        self._torch = torch
        self.done: list[tuple[Lane, str]] = []
        self.marks: list[Mark] = []
        self.settled = 0
        self.free = False
        self.flying_max = 0
        self.launched = threading.Semaphore(0)
        self._out: list[Mark] = []
        self._steps: dict[Lane, list[Step]] = {lane: [] for lane in Lane}
        self._lane = Lane.COMPUTE
        self._lock = threading.Lock()

    @contextmanager
    def within(self, lane: Lane) -> Iterator[None]:
        before, self._lane = self._lane, lane
        yield
        self._lane = before

    def mark(self, lane: Lane) -> Mark:
        mark = Mark()
        self.marks.append(mark)
        self._add(lane, "mark", mark.passed.set)
        if lane is Lane.COPY_OUT:
            self._out.append(mark)
            self.flying_max = max(self.flying_max, sum(not each.passed.is_set() for each in self._out))
            self.launched.release()
        if self.free:
            self.go()
        return mark

    def wait(self, lane: Lane, event: object) -> None:
        assert isinstance(event, Mark)
        with self._lock:
            self._steps[lane].append(event.passed.is_set)

    def to_device(self, array: Array) -> Tensor:
        self._add(self._lane, "copy", lambda: None)
        return self._torch.from_numpy(array.copy())  # what the host does with its memory is its own business

    def to_host(self, tensor: Tensor) -> Tensor:
        host = self._torch.full_like(tensor, 77)  # seen by whoever reads it too early
        self._add(self._lane, "copy", lambda: host.copy_(tensor))
        return host

    def settle(self) -> None:
        self.settled += 1
        self.go()

    def go(self, *lanes: Lane) -> None:
        """Let these streams go on, or all, as far as they can without the others."""
        moved = True
        while moved:
            moved = False
            for lane in lanes or Lane:
                while self._step(lane):
                    moved = True

    def _step(self, lane: Lane) -> bool:
        with self._lock:
            if not self._steps[lane] or not self._steps[lane][0]():
                return False
            self._steps[lane].pop(0)
            return True

    def _add(self, lane: Lane, what: str, work: Callable[[], object]) -> None:
        def step() -> bool:
            work()
            self.done.append((lane, what))
            return True

        with self._lock:
            self._steps[lane].append(step)
