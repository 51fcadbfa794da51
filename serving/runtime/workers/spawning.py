"""The process of one worker: how it is started, what it prints, and how it ended."""

import hashlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from serving.runtime.environment import environment, python_command
from serving.runtime.slicing.contract import Setting
from serving.runtime.workers.contract import WorkerLog
from serving.runtime.workers.model_log import Printed
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.worker.frames.wire import VERSION
from serving.worker.process.keeper import MARK
from serving.worker.process.orphans import FINGERPRINT
from serving.worker.process.tree import marked

_FAULTS: Final = frozenset(
    (
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
    )
)
"""What ends a process for its own code. SIGKILL is the kernel's or an operator's."""
SAID_BYTES_MAX: Final = 4096
"""Of a keeper's sentence: what a pipe takes at once (PIPE_BUF)."""
_LEFT: Final[list["subprocess.Popen[bytes]"]] = []
"""Keepers that were let go: they are reaped here if this process outlives them."""
_LOOKS: Final = 200
_LOOK_S: Final = 0.02


class Child:
    """The keeper of a worker (`serving/worker/process/keeper.py`), known by its pidfd: no signal handler, no
    thread, no mistaken pid. `overran`: why it has ended its worker by itself, "" where it has not. `popen`:
    None for one that an earlier gateway has started."""

    waits = False  # if it is let go, it waits for the next gateway

    def __init__(
        self, pid: int, pidfd: int, said: int, mark: str, popen: "subprocess.Popen[bytes] | None" = None
    ) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.crashed = False  # it has ended by what it did itself, as far as a signal can tell
        self.overran = ""
        self._popen = popen
        self._said = said
        self._mark = mark

    def kill(self) -> None:
        """Have the keeper kill its worker and the worker's own processes, before the keeper ends."""
        if self.pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)
                signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)  # it may have been stopped

    def reap(self) -> str:
        """Return how the worker ended, in words; only once the pidfd is readable. What it has started has
        ended too: a model's own processes hold its memory and the socket."""
        if self._popen is not None:
            with suppress(ProcessLookupError, PermissionError):
                # Where the keeper itself was killed; not reaped yet, so the number is still its own.
                os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # it was let go in this very process
        said = ""
        with suppress(BlockingIOError):
            said = os.read(self._said, SAID_BYTES_MAX).decode()
        ended, _, self.overran = said.partition(" ")
        code = int(ended or -signal.SIGKILL)
        if not said:  # the keeper has not ended what is left; to read all processes may take a while
            threading.Thread(target=_end_strays, args=(self._mark,)).start()
        self._close()
        self.crashed = code > 0 or -code in _FAULTS or bool(self.overran)
        if self.overran:
            return self.overran
        return f"exited with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"

    def let_go(self) -> None:
        """Leave it to the next gateway, as the end of this process does."""
        self._close()
        if self._popen is not None:
            _LEFT.append(self._popen)

    def _close(self) -> None:
        for descriptor in (self.pidfd, self._said):
            os.close(descriptor)
        self.pidfd = -1


def _end_strays(mark: str) -> None:
    """Kill what was started under a keeper that is gone, until there is none: one may start another."""
    for _ in range(_LOOKS):
        strays = marked(f"{MARK}={mark}")
        if not strays:
            return
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


class Pipes:
    """Two pipes for what a worker prints, if a log takes it."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, int]] = {}

    def open(self) -> None:
        """Open the pipes. Raises OSError if there are no more descriptors."""
        for stream in ("stdout", "stderr"):
            self._ends[stream] = os.pipe()

    def __bool__(self) -> bool:
        return bool(self._ends)

    def end(self, stream: str) -> int | None:
        """Return what the worker writes to; None for what this process writes to."""
        return self._ends[stream][1] if stream in self._ends else None

    def listen(self, slice_name: str, log: WorkerLog) -> list[Printed]:
        """Listen to the gateway's ends of the pipes, once the worker has its own ends."""
        for _, theirs in self._ends.values():
            os.close(theirs)
        return [
            Printed(ours, partial(log.printed, slice_name, stream))
            for stream, (ours, _) in self._ends.items()
        ]

    def close(self) -> None:
        """Close the pipes: no worker was started with them."""
        for ours, theirs in self._ends.values():
            os.close(ours)
            os.close(theirs)


def fingerprint(spec: SliceSpec, setting: Setting, workers: WorkersSpec) -> str:
    """Return what differs wherever a slice's worker would be started in another way, or speak another
    version of the wire. Where its own code lies does not count: a worker keeps the code that it has begun
    with."""
    changes = {**dict(workers.environment), **dict(setting.environment)}
    variables = sorted(environment(changes, workers.inherit, own_python=False).items())
    how = VERSION, spec.python, setting, variables, _limits(workers)
    return hashlib.sha256(repr(how).encode()).hexdigest()


def spawn(
    spec: SliceSpec, setting: Setting, workers: WorkersSpec, given: Sequence[int], pipes: Pipes
) -> Child:
    """Start a worker, and return its keeper. `given`: the descriptors of its socket and of its areas; they
    stay open here. Raises OSError if the process cannot be started."""
    _LEFT[:] = [popen for popen in _LEFT if popen.poll() is None]
    said, say = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    fds = (say, *given)
    mark = uuid.uuid4().hex
    changes = {**dict(workers.environment), **dict(setting.environment), MARK: mark}
    changes[FINGERPRINT] = fingerprint(spec, setting, workers)
    try:
        popen = subprocess.Popen(  # noqa: S603  # nothing of it comes from a client
            _command(spec, setting, workers, fds, bool(pipes)),
            stdin=subprocess.DEVNULL,
            stdout=pipes.end("stdout"),
            stderr=pipes.end("stderr"),
            pass_fds=fds,
            env=environment(changes, workers.inherit, own_python=not spec.python),
            start_new_session=True,
        )
        child = Child(popen.pid, os.pidfd_open(popen.pid), said, mark, popen)
        child.waits = workers.orphan_s > 0
        return child
    except OSError:
        os.close(said)
        raise
    finally:
        os.close(say)


def _command(
    spec: SliceSpec, setting: Setting, workers: WorkersSpec, fds: Sequence[int], name_lines: bool
) -> list[str]:
    """Return the command that starts a worker. `fds`: the keeper's pipe, and the worker's socket and
    areas."""
    return [
        *python_command("serving.worker", spec.python), "--slice", spec.name,
        "--fd", str(fds[1]), "--shared", ",".join(map(str, fds[2:])), "--say", str(fds[0]),
        "--cores", ",".join(map(str, setting.cores)), "--threads", str(setting.threads),
        "--device", setting.device, *_limits(workers), *(("--name-lines",) if name_lines else ()),
        "--owner", workers.owner, "--orphan-s", str(workers.orphan_s),
    ]  # fmt: skip


def _limits(workers: WorkersSpec) -> list[str]:
    return [
        "--memory", str(workers.memory_bytes), "--open-files", str(workers.open_files),
        "--processes", str(workers.processes),
    ]  # fmt: skip
