"""Starts worker processes, watches them, reaps them. When to start one again is `control`'s business."""

import asyncio
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from serving.runtime.environment import environment, python_command
from serving.runtime.slicing.contract import Setting, SlicingError
from serving.runtime.slicing.opening import PreparedShares, Shares
from serving.runtime.workers.link import Link, LinkEvents
from serving.runtime.workers.model_log import ModelLog, Printed
from serving.runtime.workers.rehearsing import RehearsalHosts
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.worker.frames.shared import SharedArea
from serving.worker.process.keeper import DONE
from serving.worker.process.tree import marked

STOP_GRACE_S: Final = 5.0
"""What `stop` gives workers to finish their batch and exit before it kills them."""
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
KILLED_WAIT_S: Final = 4.0
"""For how long it then waits for them: nothing withstands SIGKILL but a driver that holds a process up."""
SAID_BYTES_MAX: Final = 4096
"""Of a keeper's sentence: what a pipe takes at once (PIPE_BUF)."""
MARK: Final = "PENSTOCK_KEEPER"
"""A variable that says under which keeper a process was started: it outlives the keeper."""
END_WAIT_S: Final = 5.0
"""How long an MPS daemon may take to end the work of a worker that is to be killed."""
_LOOKS: Final = 200
_LOOK_S: Final = 0.02

_UNBOUND: Final = WorkersSpec()


class _Child:
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


class Supervisor:
    """All workers of this gateway; `events` hears of each through its link."""

    def __init__(
        self,
        events: LinkEvents,
        shares: Shares | None = None,
        log: ModelLog | None = None,
        workers: WorkersSpec = _UNBOUND,
        profiles: Path = Path("profiles"),
    ) -> None:
        """Watch the workers of these shares, by default of cores.

        `log` takes what models raise and print; without it workers print where this process does. `workers`:
        what each is given and held to. `profiles`: the folder by which rehearsed workers answer.
        """
        self._events = events
        self._shares = shares or PreparedShares()
        self._opening: dict[str, str] = {}  # slices whose share is being opened; why they are to end
        self._log = log
        self._workers = workers
        self._rehearsals = RehearsalHosts(profiles)
        self._links: set[Link] = set()
        self._ending: set[asyncio.Future[None]] = set()
        self._stopping = False

    async def start(self, spec: SliceSpec) -> None:
        """Spawn the slice's worker: `worker_ready` or `worker_lost` follows. Nothing while stopping.

        Call it from the main thread: a worker dies with the thread that started it (PR_SET_PDEATHSIG).
        """
        if self._stopping:
            return
        self._links = {link for link in self._links if not link.ended.is_set()}
        if spec.rehearsed:
            await self._rehearse(spec)
            return
        loop = asyncio.get_running_loop()
        pipes = _Pipes()
        try:
            setting = await self._open(spec)
            if self._log is not None:
                pipes.open()
            ours, child, areas = _spawn(spec, setting, self._workers, pipes)
        except (OSError, SlicingError) as error:
            pipes.close()
            Link(spec.name, self._events).fail_to_start(str(error))
            return
        link = Link(spec.name, self._events, child, areas)
        printed: list[Printed] = []
        if self._log is not None:
            link.on_raised = self._log.raised
            printed = pipes.listen(spec.name, self._log)
        self._links.add(link)
        loop.add_reader(child.pidfd, self._reap, loop, child, link, printed)
        await loop.create_unix_connection(lambda: link, sock=ours)

    async def _rehearse(self, spec: SliceSpec) -> None:
        link, ours = self._rehearsals.begin(spec, self._events)
        if ours is not None:
            self._links.add(link)
            await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)

    async def _open(self, spec: SliceSpec) -> Setting:
        """Return the settings that the worker starts with. Raises SlicingError if the worker has to end
        before it begins."""
        self._opening[spec.name] = ""
        try:
            setting = await self._shares.open(spec)
        finally:
            reason = self._opening.pop(spec.name)
        if self._stopping or reason:
            raise SlicingError(reason or "was ended: the gateway stops")
        return setting

    def release(self, slice_name: str) -> None:
        """Give back the share of a slice that is gone, once its worker has ended."""
        self._shares.close(slice_name)

    def kill(self, slice_name: str, reason: str) -> None:
        """End the slice's worker now, ready or not; `worker_lost` follows, with the reason."""
        if slice_name in self._opening:
            self._opening[slice_name] = reason
        for link in [link for link in self._links if link.slice == slice_name and not link.ended.is_set()]:
            if self._shares.is_shared(slice_name):
                ending = asyncio.ensure_future(self._end_shared(link, reason))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
            else:
                link.kill(reason)

    async def _end_shared(self, link: Link, reason: str) -> None:
        """End a worker's work at its device, then the worker; the worker at least, before long."""
        link.blame(reason)  # without its device it may end before it is killed
        ended = asyncio.ensure_future(self._shares.end(link.slice, link.pid))
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        await asyncio.wait([ended], timeout=END_WAIT_S)
        link.kill(reason)

    async def check(self, slice_name: str, pid: int) -> None:
        """End the slice's worker if it computes outside of its share."""
        if self._shares.is_shared(slice_name) and (wrong := await self._shares.check(slice_name, pid)):
            self.kill(slice_name, f"was ended: {wrong}")

    async def ended(self, slice_name: str) -> None:
        """Wait until no process of the slice that was started before lives any more."""
        for link in [link for link in self._links if link.slice == slice_name]:
            await link.ended.wait()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End all workers: they may finish their batch within `grace_s`, then they are killed.

        Returns when each has ended, been reaped and reported lost. No worker starts after it.
        """
        self._stopping = True
        for link in self._links:
            link.close()
        if not await self._all_end(grace_s):
            for link in self._links:
                link.kill()
            await self._all_end(KILLED_WAIT_S)
        self._rehearsals.stop()
        if self._ending:
            await asyncio.wait(self._ending, timeout=END_WAIT_S)
        await self._shares.stop()

    async def _all_end(self, wait_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                for link in self._links:
                    await link.ended.wait()
        return all(link.ended.is_set() for link in self._links)

    @staticmethod
    def _reap(loop: asyncio.AbstractEventLoop, child: _Child, link: Link, printed: list[Printed]) -> None:
        loop.remove_reader(child.pidfd)
        how = child.reap()
        link.overran = bool(child.overran)
        for each in printed:  # its last words first
            each.close()
        link.exited(how, crashed=child.crashed)


class _Pipes:
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

    def listen(self, slice_name: str, log: ModelLog) -> list[Printed]:
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


def _spawn(
    spec: SliceSpec, setting: Setting, workers: WorkersSpec, pipes: _Pipes
) -> tuple[socket.socket, _Child, tuple[SharedArea, SharedArea]]:
    with ExitStack() as theirs, ExitStack() as ours:
        sock, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.callback(sock.close)
        theirs.callback(far.close)
        sock.setblocking(False)
        said, say = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ours.callback(os.close, said)
        theirs.callback(os.close, say)
        areas: list[SharedArea] = []
        for way in ("requests", "answers"):
            areas.append(SharedArea.create(f"penstock-{spec.name}-{way}"))
            ours.callback(areas[-1].close)
        fds = (far.fileno(), areas[0].fd, areas[1].fd, say)
        mark = uuid.uuid4().hex
        given = {**dict(workers.environment), **dict(setting.environment), MARK: mark}
        popen = subprocess.Popen(  # noqa: S603  # nothing of it comes from a client
            _command(spec, setting, workers, fds, bool(pipes)),
            stdin=subprocess.DEVNULL,
            stdout=pipes.end("stdout"),
            stderr=pipes.end("stderr"),
            pass_fds=fds,
            env=environment(given, workers.inherit, own_python=not spec.python),
            start_new_session=True,
        )
        child = _Child(popen, said, f"{MARK}={mark}")
        ours.pop_all()
        return sock, child, (areas[0], areas[1])


def _command(
    spec: SliceSpec, setting: Setting, workers: WorkersSpec, fds: tuple[int, int, int, int], name_lines: bool
) -> list[str]:
    """Return the command that starts a worker. `fds`: the worker's socket and areas, and the keeper's
    pipe."""
    return [
        *python_command("serving.worker", spec.python), "--slice", spec.name, "--parent", str(os.getpid()),
        "--fd", str(fds[0]), "--shared", f"{fds[1]},{fds[2]}", "--say", str(fds[3]),
        "--cores", ",".join(map(str, setting.cores)), "--threads", str(setting.threads),
        "--device", setting.device, "--memory", str(workers.memory_bytes),
        "--open-files", str(workers.open_files), "--processes", str(workers.processes),
        *(("--name-lines",) if name_lines else ()),
    ]  # fmt: skip
