"""Loads and unloads beside the batches: one at a time, in the order they were asked for, but for slow loads.

A load that takes longer than SLOW_S goes on beside those that follow, so that it delays only itself.

Both threads need the interpreter; a batch that waits for it gets it after SWITCH_S, unless a single call of
the load keeps it longer (reading minilm's vocabulary: 15 ms). What a round trip of one of digits' rows takes
beside a load, milliseconds, `python -m loadtests.core.loading --rounds 4`, medians of four to seven runs on
two cores that others were using, too:

    loaded beside           minilm: 99 %   longest   resnet50: 99 %   longest
    on the batches' thread          as long as the load: 42 to 2,900
    a thread, 5 ms                    17        58               14        39
    a thread, 0.5 ms                  13        79               14        24
    a thread, 0.05 ms                 37       161               14       114
    0.5 ms, and nice 10               14        94               16        36
    nothing beside                     8        12

A nicer loader takes two to three times as long, and is worse where another process wants the core: it is kept
waiting while it holds the interpreter, and the batches with it (300 ms instead of 60).
"""

import errno
import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from queue import Queue
from typing import Final, TypeVar

from serving.worker.backends.contract import Backend
from serving.worker.frames.orders import LoadOrder, pack_load_failed, pack_loaded, pack_raised, pack_unloaded
from serving.worker.frames.wire import ProtocolError
from serving.worker.process.garbage import Garbage
from serving.worker.process.heartbeat import Heartbeat
from serving.worker.process.memory import Memory
from serving.worker.process.output import SPEAKING
from serving.worker.replicas.raising import Tracebacks
from serving.worker.replicas.replicas import MODEL_ERRORS, InTurn, LoadedReplica, describe, load_replica

SLOW_S: Final = 2.0
"""A load that takes longer has the next one beside it. Most take less, with `import torch` in them; two at
once share the interpreter, and cannot be told apart by the memory that they take."""
BESIDE_MAX: Final = 8
"""Loads at once; where all are slow the next one waits for one of them."""
KEPT_S: Final = 10.0
"""After a gateway's last order, until what it has not asked for of the one before is unloaded."""
SWITCH_S: Final = 0.0005
"""For `sys.setswitchinterval`; Python's own is 5 ms."""


class _Load:
    """A load that was asked for; `wanted` until its replica is to be unloaded again, `ended` when nothing of
    it is under way; `alone`: no other was when it began; `gateway`: counts gateways, to answer the right
    one."""

    __slots__ = ("alone", "ended", "gateway", "order", "wanted")

    def __init__(self, order: LoadOrder, gateway: int) -> None:
        self.order = order
        self.gateway = gateway
        self.wanted = self.alone = True
        self.ended = threading.Event()


class _Unload:
    """A replica that takes no batches any more, and its loaded replica, if it is still loaded, or its load.
    `gateway`: which hears when its memory is free, 0 for none."""

    __slots__ = ("gateway", "load", "number", "replica")

    def __init__(self, number: int, replica: LoadedReplica | None, load: _Load | None, gateway: int) -> None:
        self.number = number
        self.replica = replica
        self.load = load
        self.gateway = gateway


_Job = TypeVar("_Job", _Load, _Unload)


class Loader:
    """The replicas of one worker. `send` sends a frame, from any of the loader's threads. `slow_s`: seconds
    after which a load has the next one beside it."""

    def __init__(
        self,
        backend: Backend,
        memory: Memory,
        send: Callable[[bytes], None],
        slow_s: float = SLOW_S,
        in_turn: InTurn | None = None,
    ) -> None:
        """Create a loader. `in_turn`: as for `load_replica`."""
        self._in_turn = in_turn
        self._slow_s = slow_s
        self._backend = backend
        self._memory = memory
        self._send = send
        self._tracebacks = Tracebacks()
        self._garbage = Garbage()
        self._lock = threading.Lock()  # of the four that follow
        self._replicas: dict[int, LoadedReplica] = {}
        self._kept: list[LoadedReplica] = []  # of the gateway before
        self._loads: dict[int, _Load] = {}
        self._begun: list[_Load] = []  # under way
        self._answering = threading.Lock()  # of the number that follows
        self._gateway = 1
        self._clearing: threading.Timer | None = None
        self._room = threading.Semaphore(BESIDE_MAX)
        self._jobs: Queue[_Load | _Unload] = Queue()
        self._thread = threading.Thread(target=self._work, name="loader", daemon=True)
        self._thread.start()

    @property
    def loading(self) -> bool:
        """Whether its thread has, or is about to have, anything to do."""
        return self._jobs.unfinished_tasks > 0 or bool(self._begun)

    def find(self, number: int) -> LoadedReplica | None:
        """Return the replica, for the thread that runs its batches; None where it is not loaded."""
        replica = self._replicas.get(number)
        if replica is not None and not replica.settled:
            self._backend.settle()
            replica.settled = True
        return replica

    def load(self, order: LoadOrder) -> None:
        """Load a replica: LOADED or LOAD_FAILED is sent, unless it is unloaded before. Raises ProtocolError
        if it is already here."""
        job = _Load(order, self._gateway)
        with self._lock:
            if order.replica in self._loads or order.replica in self._replicas:
                raise ProtocolError(f"orders replica {order.replica} a second time")
            kept = next((each for each in self._kept if each.is_for(order)), None)
            if kept is None:
                self._loads[order.replica] = job
            else:
                self._kept.remove(kept)
                kept.order = order
                self._replicas[order.replica] = kept
        if kept is None:
            self._jobs.put(job)
        else:
            self._tell(job.gateway, pack_loaded(replace(kept.loaded, replica=order.replica, kept=True)))
        self.clear_kept_later()

    def unload(self, number: int, told: bool = True) -> None:
        """Unload a replica: no batch finds it from here on; UNLOADED is sent when its memory is given
        back."""
        with self._lock:
            load = self._loads.pop(number, None)
            if load is not None:
                load.wanted = False
            job = _Unload(number, self._replicas.pop(number, None), load, self._gateway if told else 0)
        self._jobs.put(job)

    def let_go(self) -> None:
        """Answer the gateway no more. What is loaded stays for the next one, and loads under way are given
        up."""
        with self._answering:
            self._gateway += 1
        with self._lock:
            for load in self._loads.values():
                load.wanted = False
            self._loads.clear()
            self._kept += self._replicas.values()
            self._replicas.clear()

    def clear_kept_later(self) -> None:
        """Unload what the gateway before had and this one does not want, unless it orders more soon."""
        if self._clearing is not None:
            self._clearing.cancel()
        if self._kept:
            self._clearing = threading.Timer(KEPT_S, self._clear_kept, (self._gateway,))
            self._clearing.daemon = True
            self._clearing.start()

    def _clear_kept(self, gateway: int) -> None:
        if self.loading:
            self.clear_kept_later()
            return
        with self._lock:
            gone = self._kept if gateway == self._gateway else []
            self._kept = [] if gone else self._kept
        for each in gone:
            self._jobs.put(_Unload(each.order.replica, each, None, 0))

    def _tell(self, gateway: int, frame: bytes) -> None:
        """Send a frame, unless its gateway is gone: another would take it for its own."""
        with self._answering:
            if gateway == self._gateway:
                self._send(frame)

    # ---- the loader's threads

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, _Load):
                self._begin(job)
            else:
                _until_over(self._give_back, job)
            self._jobs.task_done()

    def _begin(self, job: _Load) -> None:
        """Load on a thread of its own, and go on when it is done, or slow."""
        with self._lock:
            if not job.wanted:
                job.ended.set()
                return
            job.alone = not self._begun
            self._begun.append(job)
        self._room.acquire()
        threading.Thread(target=_until_over, args=(self._load_beside, job), name="load", daemon=True).start()
        job.ended.wait(self._slow_s)

    def _load_beside(self, job: _Load) -> None:
        try:
            self._carry_out(job)
        finally:
            with self._lock:
                if job in self._begun:
                    self._begun.remove(job)
            self._room.release()
            job.ended.set()

    def _carry_out(self, job: _Load) -> None:
        order = job.order
        SPEAKING.model = order.model
        replica: LoadedReplica | None = None
        try:
            with self._garbage.paused(), Heartbeat() as heartbeat:
                found, loaded = load_replica(self._backend, order, self._memory, self._garbage, self._in_turn)
        except MODEL_ERRORS as error:
            message = f"{order.model} {order.variant} could not be loaded: {describe(error)}"
            self._tell(job.gateway, pack_raised(self._tracebacks.of(error, order, "while it was loaded")))
            answer = pack_load_failed(order.replica, message)
        else:
            alone = job.alone and len(self._begun) == 1
            found.loaded = replace(loaded, held_us=heartbeat.longest_us if alone else 0)
            answer, replica = pack_loaded(found.loaded), found
        with self._lock:
            self._begun.remove(job)
            wanted = job.wanted
            if wanted:
                del self._loads[order.replica]
                if replica is not None:
                    self._replicas[order.replica] = replica
        if replica is None or not wanted:
            self._clear(replica)
        if wanted:
            self._tell(job.gateway, answer)

    def _give_back(self, job: _Unload) -> None:
        """Give the memory back; where that has to wait for a slow load, on a thread beside other jobs."""
        if job.load is None or job.load.ended.wait(self._slow_s):
            self._drop(job)
        else:
            threading.Thread(target=_until_over, args=(self._drop, job), name="unload", daemon=True).start()

    def _drop(self, job: _Unload) -> None:
        if job.load is not None:
            job.load.ended.wait()  # it is dropped as it ends
        SPEAKING.model = job.replica.order.model if job.replica is not None else ""
        self._clear(job.replica)
        self._tell(job.gateway, pack_unloaded(job.number))

    def _clear(self, gone: LoadedReplica | None = None) -> None:
        with self._lock:
            orders = [replica.order for replica in (*self._replicas.values(), *self._kept)]
            orders += [load.order for load in self._begun]
        self._backend.keep(orders)
        if gone is None:
            self._garbage.clear()
        else:
            self._garbage.clear(gone.drop(), gone.freezes)


_GONE = (errno.EPIPE, errno.ECONNRESET, errno.EBADF)
"""The gateway is gone: the worker's loop finds its end of file, or has found it and closed the socket."""


def _until_over(work: Callable[[_Job], None], job: _Job) -> None:
    """Run the job, and end this process if it fails: a worker that loads nothing any more is no worker."""
    try:
        work(job)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in _GONE:
            return
        traceback.print_exc()
        os._exit(1)
