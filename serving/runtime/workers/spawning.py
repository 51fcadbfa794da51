"""The process of one worker: how it is started, what it prints, and how it ended."""

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
from serving.worker.process.keeper import DONE
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
MARK: Final = "PENSTOCK_KEEPER"
"""A variable that says under which keeper a process was started: it outlives the keeper."""
_LOOKS: Final = 200
_LOOK_S: Final = 0.02


class Child:
    """The keeper of a worker (`serving/worker/process/keeper.py`), known by its pidfd: no signal handler, no
    thread, no mistaken pid. `overran`: why it has ended its worker by itself, "" where it has not."""

    def __init__(self, popen: "subprocess.Popen[bytes]", said: int, mark: str) -> None:
        self.pid = popen.pid
        self.pidfd = os.pidfd_open(popen.pid)
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
        with suppress(ProcessLookupError, PermissionError):
            # Where the keeper itself was killed; not reaped yet, so the number is still its own.
            os.killpg(self.pid, signal.SIGKILL)
        code = self._popen.wait()
        said = ""
        with suppress(BlockingIOError):
            said = os.read(self._said, SAID_BYTES_MAX).decode()
        if not said:  # the keeper has not ended what is left; to read all processes may take a while
            threading.Thread(target=_end_strays, args=(self._mark,)).start()
        self.overran = said if said != DONE else ""
        for descriptor in (self.pidfd, self._said):
            os.close(descriptor)
        self.crashed = code > 0 or -code in _FAULTS or bool(self.overran)
        self.pidfd = -1
        if self.overran:
            return self.overran
        return f"exited with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def _end_strays(mark: str) -> None:
    """Kill what was started under a keeper that is gone, until there is none: one may start another."""
    for _ in range(_LOOKS):
        strays = marked(mark)
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


def spawn(
    spec: SliceSpec, setting: Setting, workers: WorkersSpec, given: Sequence[int], pipes: Pipes
) -> Child:
    """Start a worker, and return its keeper. `given`: the descriptors of its socket and of its areas; they
    stay open here. Raises OSError if the process cannot be started."""
    said, say = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    fds = (say, *given)
    mark = uuid.uuid4().hex
    changes = {**dict(workers.environment), **dict(setting.environment), MARK: mark}
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
        return Child(popen, said, f"{MARK}={mark}")
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
        *python_command("serving.worker", spec.python), "--slice", spec.name, "--parent", str(os.getpid()),
        "--fd", str(fds[1]), "--shared", ",".join(map(str, fds[2:])), "--say", str(fds[0]),
        "--cores", ",".join(map(str, setting.cores)), "--threads", str(setting.threads),
        "--device", setting.device, "--memory", str(workers.memory_bytes),
        "--open-files", str(workers.open_files), "--processes", str(workers.processes),
        *(("--name-lines",) if name_lines else ()),
    ]  # fmt: skip
