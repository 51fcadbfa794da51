"""Workers of rehearsed slices: one host process has them all (`serving.worker.rehearsed`).

The gateway speaks with each over a link, as with a real worker. The control socket to the host carries only
beginnings and ends. If the host ends, so do all of its workers; the next start brings a new host.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from serving.runtime.environment import environment
from serving.runtime.workers.link import Link, LinkEvents
from serving.values.slice_specs import SliceSpec
from serving.worker.frames.shared import SharedArea
from serving.worker.rehearsed.notes import PACKET_BYTES_MAX, Begin, End, Ended, pack, unpack

PATIENCE_S: Final = 2.0
"""How long the host may take to end a slice; then it is stopped or stuck, and is killed."""


class RehearsedWorker:
    """A worker of the host, as a link sees a process. `pid`: the host's."""

    def __init__(self, host: "_Host", number: int) -> None:
        self.pid = host.pid
        self._host = host
        self._number = number

    def kill(self) -> None:
        """End this worker alone, or all of the host if it does not hear."""
        self._host.end(self._number)


class RehearsalHosts:
    """Starts rehearsed workers, and the host when there is none. `profiles`: the folder of profiles."""

    def __init__(self, profiles: Path) -> None:
        self._profiles = profiles
        self._host: _Host | None = None
        self._lives = Counter[str]()

    def begin(self, spec: SliceSpec, events: LinkEvents) -> tuple[Link, socket.socket | None]:
        """Begin the slice's worker: `worker_ready` or `worker_lost` follows once the link is connected.

        The socket is None if the worker could not be begun.
        """
        self._lives[spec.name] += 1
        try:
            if self._host is None or self._host.gone:
                self._host = _Host(self._profiles)
            return self._host.begin(spec, self._lives[spec.name], events)
        except OSError as error:
            link = Link(spec.name, events)
            link.fail_to_start(str(error))
            return link, None

    def stop(self) -> None:
        """End the host; its workers have ended."""
        if self._host is not None:
            self._host.close()


class _Host:
    """The process, and what is said over its control socket."""

    def __init__(self, profiles: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._popen = _spawn(theirs.fileno(), profiles)
        self._control.setblocking(False)
        self.pid = self._popen.pid
        self.gone = False
        self._pidfd = os.pidfd_open(self.pid)
        self._links: dict[int, Link] = {}
        self._count = 0
        self._outbox: deque[tuple[bytes, Sequence[int]]] = deque()
        self._writes = False
        self._loop.add_reader(self._pidfd, self._reap)
        self._loop.add_reader(self._control.fileno(), self._take)

    def begin(self, spec: SliceSpec, life: int, events: LinkEvents) -> tuple[Link, socket.socket]:
        """Return the link of a new worker, and its socket. OSError if there are no descriptors left."""
        with ExitStack() as ours, ExitStack() as theirs:
            sock, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ours.callback(sock.close)
            theirs.callback(far.close)
            sock.setblocking(False)
            areas: list[SharedArea] = []
            for way in ("requests", "answers"):
                areas.append(SharedArea.create(f"penstock-{spec.name}-{way}"))
                ours.callback(areas[-1].close)
            given = [os.dup(fd) for fd in (far.fileno(), areas[0].fd, areas[1].fd)]
            self._count += 1
            number = self._count
            note = Begin(
                number, spec.name, spec.device, spec.kind, str(spec.share), life, spec.rehearsal
            )  # fmt: skip
            link = Link(spec.name, events, RehearsedWorker(self, number), (areas[0], areas[1]))
            self._links[number] = link
            ours.pop_all()
        self._put(pack(note), given)
        return link, sock

    def end(self, number: int) -> None:
        """End a worker as a kill does."""
        if number in self._links and not self.gone:
            self._put(pack(End(number)))
            self._loop.call_later(PATIENCE_S, self._insist, number)

    def close(self) -> None:
        """Let the process end."""
        if not self.gone:
            self._unwatch()
            self._control.close()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(PATIENCE_S)
            if self._popen.returncode is None:
                self._popen.kill()
                self._popen.wait()
            self._part()

    def _insist(self, number: int) -> None:
        if number in self._links and not self.gone:
            self._popen.kill()

    # what goes out

    def _put(self, packet: bytes, descriptors: Sequence[int] = ()) -> None:
        self._outbox.append((packet, descriptors))
        if not self._writes:
            self._flush()

    def _flush(self) -> None:
        """Send what waits; go on when the host has taken some of it."""
        while self._outbox:
            packet, descriptors = self._outbox[0]
            try:
                socket.send_fds(self._control, [packet], descriptors)
            except BlockingIOError:
                if not self._writes:
                    self._writes = True
                    self._loop.add_writer(self._control.fileno(), self._flush)
                return
            except OSError:  # the host is gone; its end is told by the pidfd
                pass
            self._outbox.popleft()
            _close(descriptors)
        if self._writes:
            self._writes = False
            self._loop.remove_writer(self._control.fileno())

    # what comes in

    def _take(self) -> None:
        try:
            packet = self._control.recv(PACKET_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._loop.remove_reader(self._control.fileno())
            return
        note = unpack(packet)
        if isinstance(note, Ended) and (link := self._links.pop(note.number, None)) is not None:
            link.exited(note.how, note.crashed)

    def _reap(self) -> None:
        """End the links of all workers of this process, because the process has exited."""
        code = self._popen.wait()
        self._unwatch()
        self._control.close()
        self._part()
        how = f"exited with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        for link in [*self._links.values()]:
            link.exited(f"was lost: the process of the rehearsed slices {how}")
        self._links.clear()

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._control.fileno())
        if self._writes:
            self._loop.remove_writer(self._control.fileno())

    def _part(self) -> None:
        self.gone = True
        os.close(self._pidfd)
        for _, descriptors in self._outbox:
            _close(descriptors)
        self._outbox.clear()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _spawn(control: int, profiles: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603  # nothing of it comes from a client
        [
            sys.executable, "-P", "-m", "serving.worker.rehearsed", "--fd", str(control),
            "--profiles", str(profiles),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=(control,),
        env=environment({}),
        start_new_session=True,
    )  # fmt: skip
