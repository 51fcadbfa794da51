"""The process above a worker: nothing that the worker or its models have started outlives it.

A worker forks before it imports anything. The parent stays, as the keeper: what is orphaned below it becomes
its child, whatever sessions models have made. A pipe tells it when the gateway is gone, killed or not. It
ends when the worker has ended, when it has waited for the next gateway in vain, on SIGTERM, or when all of
them hold more memory than they may; in each case it kills what is left first.
"""

import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NoReturn

from serving.worker.process.confined import adopt, follow
from serving.worker.process.orphans import Desk, Waiting, Waits
from serving.worker.process.tree import children, descendants, held_bytes

LOOK_S: Final = 0.5
"""Between two looks at the memory. One costs up to 1 ms, by the number of threads."""

MARK: Final = "PENSTOCK_KEEPER"
"""A variable that says under which keeper a process was started: it outlives the keeper."""

_AWAITED: Final = (signal.SIGTERM, signal.SIGCHLD)


@dataclass(frozen=True, slots=True)
class Charge:
    """What a keeper has to know. `say`: a descriptor for how its worker has ended, an exit code and, if the
    keeper has ended it, why; `closed`: descriptors of the worker alone; `memory_bytes`: what all may hold, 0
    for no bound; `waits`: for the next gateway."""

    say: int
    closed: Sequence[int]
    memory_bytes: int = 0
    waits: Waits = field(default_factory=Waits)


def keep(charge: Charge) -> Waiting | None:
    """Fork, and return in the worker only. The worker dies with its keeper; the keeper exits when the worker
    has exited. Return the worker's way to the next gateway, None if it does not wait for one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would reap children itself
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    adopt()
    keeper = os.getpid()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = os.fork()
    if worker:
        theirs.close()
        _keep(charge, worker, ours)
    ours.close()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    os.close(charge.say)  # what models say is not the keeper's word
    follow(keeper)
    return Waiting(theirs) if charge.waits.orphan_s else None


def _keep(charge: Charge, worker: int, way: socket.socket) -> NoReturn:
    for descriptor in charge.closed:
        os.close(descriptor)
    told: list[int] = []  # signals
    desk = Desk(charge.say, way, charge.waits, os.environ.get(MARK, ""), _hear_signals(told))
    status, reason = _watch(worker, charge.memory_bytes, desk, told)
    found = _end_all(worker, alive=status is None)
    status = found if status is None else status
    with suppress(OSError):
        os.write(desk.say, f"{os.waitstatus_to_exitcode(status)} {reason}".encode())
    _exit_as(status)


def _hear_signals(told: list[int]) -> int:
    """Note the signals that come from now on. Return a descriptor that is readable once one has come."""
    readable, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in _AWAITED:
        signal.signal(number, lambda came, _frame: told.append(came))
    signal.set_wakeup_fd(written)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    return readable


def _watch(worker: int, memory_bytes: int, desk: Desk, told: Sequence[int]) -> tuple[int | None, str]:
    """Wait until it is time to end. Return the worker's wait status, None if it lives, and why it has to
    end."""
    look_s = time.monotonic()
    while True:
        if memory_bytes and (now_s := time.monotonic()) >= look_s:
            held = held_bytes(descendants(os.getpid()), memory_bytes)
            if held > memory_bytes:
                bound = f"more than workers.memory_mb, {memory_bytes / (1 << 20):.10g}"
                return None, f"was ended: its processes held {held / (1 << 20):.0f} MB, {bound}"
            look_s = now_s + LOOK_S
        desk.hear(LOOK_S if memory_bytes else None)
        if signal.SIGTERM in told or desk.over:
            return None, ""
        status = _reap(worker)
        if status is not None:
            return status, ""


def _reap(worker: int) -> int | None:
    """Collect the children that have ended. Return the worker's wait status, or None if it lives."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in (0, worker):
            return status if pid else None


def _end_all(worker: int, *, alive: bool) -> int:
    """Kill and reap until there is no child: those of a killed one become children, and are next. Returns the
    worker's wait status, 0 where it had been reaped."""
    found = 0
    while True:
        killed = False
        for pid in {*children(os.getpid()), *((worker,) if alive else ())}:
            with suppress(ProcessLookupError, PermissionError):  # one may have become another user's
                os.kill(pid, signal.SIGKILL)
                killed = True
        try:
            pid, status = os.waitpid(-1, 0 if killed else os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == worker:
            found, alive = status, False
        elif not pid:
            return found


def _exit_as(status: int) -> NoReturn:
    """Exit as the worker did, so that the gateway can tell how the worker ended."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (-code,))
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)
