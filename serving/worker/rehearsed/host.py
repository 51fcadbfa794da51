"""The rehearsal host: one process, one thread, as many rehearsed workers as the gateway begins.

It sleeps in the kernel until a socket has bytes, or the earliest of the instants in one heap has come. A
worker without work costs three descriptors, and no time.
"""

import heapq
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from serving.profile.derived.latency import Latency
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share
from serving.worker.frames.orders import LoadOrder
from serving.worker.frames.shared import SharedArea
from serving.worker.rehearsed.neighbours import Key, Neighbours
from serving.worker.rehearsed.notes import (
    DESCRIPTORS,
    PACKET_BYTES_MAX,
    Begin,
    End,
    Ended,
    pack,
    unpack,
)
from serving.worker.rehearsed.session import Session
from serving.worker.rehearsed.timing import Pace

_READ: Final = select.EPOLLIN | select.EPOLLRDHUP
KILLED: Final = "was killed by SIGKILL"


class Host:
    """All rehearsed workers of one gateway. `control`: its socket to the gateway; its end is theirs."""

    def __init__(self, control: socket.socket, profiles: Path) -> None:
        self._control = control
        self._store = ProfileStore(profiles)
        self._latencies: dict[tuple[str, str, str, str], tuple[object, Latency]] = {}
        self._poll = select.epoll()
        self._poll.register(control.fileno(), select.EPOLLIN)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._by_number: dict[int, Session] = {}
        self._by_fd: dict[int, Session] = {}
        self._by_device: dict[str, set[Session]] = {}
        self._writing: set[int] = set()
        self._cost: dict[tuple[str, str], Neighbours] = {}  # by kind of device and of share

    def run(self) -> None:
        """Serve until the gateway closes the control socket."""
        while True:
            # select counts in microseconds, epoll in milliseconds; but only epoll takes many descriptors.
            select.select([self._poll], [], [], self._wait_s())
            for fd, events in self._poll.poll(0):
                if fd == self._control.fileno():
                    if not self._take_notes():
                        return
                elif (session := self._by_fd.get(fd)) is not None:
                    if events & select.EPOLLOUT:
                        session.writable()
                    if events & ~select.EPOLLOUT:
                        session.readable()
            self._call_due()

    def _wait_s(self) -> float | None:
        return max(self._due[0][0] - self.now_us(), 0) / 1e6 if self._due else None

    def _call_due(self) -> None:
        while self._due and self._due[0][0] <= self.now_us():
            heapq.heappop(self._due)[2]()

    # notes of the gateway

    def _take_notes(self) -> bool:
        """Carry out one note; False at the end of the control socket."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._control, PACKET_BYTES_MAX, DESCRIPTORS)
        except ConnectionResetError:
            return False
        if not packet:
            return False
        note = unpack(packet)
        if isinstance(note, Begin):
            self._begin(note, descriptors)
        elif isinstance(note, End) and note.number in self._by_number:
            self._by_number[note.number].end(KILLED)
        return True

    def _begin(self, begin: Begin, descriptors: list[int]) -> None:
        sock = socket.socket(fileno=descriptors[0])
        sock.setblocking(False)
        areas = SharedArea(descriptors[1]), SharedArea(descriptors[2])
        beside = self._by_device.setdefault(begin.device, set())
        name = begin.slice, begin.life
        cost = self._costs(begin)
        pace = Pace(begin.rehearsal, name, self.now_us(), lambda: self._neighbours(begin), cost)
        session = Session(begin, sock, areas, pace, self)
        beside.add(session)
        self._by_number[begin.number] = self._by_fd[sock.fileno()] = session
        self._poll.register(sock.fileno(), _READ)
        session.start()

    def _costs(self, begin: Begin) -> Neighbours:
        key = begin.kind, Share.parse(begin.share).kind
        if key not in self._cost:
            self._cost[key] = Neighbours(self._store.co_runs(key[0]), key[1])
        return self._cost[key]

    def _neighbours(self, begin: Begin) -> list[Key]:
        """Return what other slices of its device compute at the moment."""
        now_us = self.now_us()
        beside = (each for each in self._by_device[begin.device] if each.begin.number != begin.number)
        return [each.computes for each in beside if each.busy_until_us > now_us]

    # what sessions ask for: `session.Surroundings`

    @staticmethod
    def now_us() -> int:
        return time.monotonic_ns() // 1000

    def at(self, due_us: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (due_us, next(self._order), call))

    def watch(self, sock: socket.socket, writable: bool) -> None:
        fd = sock.fileno()
        if (fd in self._writing) == writable or fd not in self._by_fd:
            return
        self._poll.modify(fd, _READ | (select.EPOLLOUT if writable else 0))
        (self._writing.add if writable else self._writing.discard)(fd)

    def latency(self, begin: Begin, order: LoadOrder) -> Latency:
        """Return the latency by the current profile, which may have been imported since the last load."""
        key = (begin.kind, order.model, order.variant, begin.share)
        profile = self._store.read(*key[:3], Share.parse(begin.share))
        if profile is None:
            raise LookupError(
                f"there is no profile of it on {begin.share} of {begin.kind}; "
                "`penstock profile --import FILE.csv` brings one"
            )
        known = self._latencies.get(key)
        if known is None or known[0] != profile:
            known = self._latencies[key] = profile, Latency(profile)
        return known[1]

    def ended(self, session: Session, how: str, crashed: bool) -> None:
        begin, fd = session.begin, session.sock.fileno()
        self._poll.unregister(fd)
        self._writing.discard(fd)
        del self._by_fd[fd], self._by_number[begin.number]
        self._by_device[begin.device].discard(session)
        with suppress(BrokenPipeError, ConnectionResetError):  # the loop finds that the gateway is gone
            self._control.send(pack(Ended(begin.number, how, crashed)))


def host_on(fd: int, profiles: Path) -> None:
    """Serve the gateway at the other end of this descriptor."""
    with socket.socket(fileno=fd) as control:
        control.setblocking(True)
        Host(control, profiles).run()
        os._exit(0)  # what is scheduled is of no use to anybody
