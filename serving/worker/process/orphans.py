"""A worker outlives its gateway with its replicas, and the next gateway of the same settings takes it over.

A living gateway reads the pipe into which the keeper says its last words. Once none reads it, the worker is
an orphan, and its keeper ends it after a while. Until then a gateway may call at the keeper's address, which
follows from its settings and the slice. It hands descriptors over: for the keeper's words, for frames, and
for what is printed. The keeper passes the worker's part on.
"""

import errno
import hashlib
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

FINGERPRINT: Final = "PENSTOCK_FINGERPRINT"
"""The variable that says how a worker was started; other users cannot read it, as it depends on secrets."""
CALL_BYTES_MAX: Final = 256
DESCRIPTORS_MAX: Final = 6
TAKEN, BUSY, DIFFERS = b"taken ", b"busy", b"differs"
"""What a keeper answers: it was taken over, and its mark follows; its gateway lives; or its worker was
started in another way, and ends."""

CALLER_S: Final = 1.0
"""For a caller to say what it wants."""
BIND_S: Final = 1.0
"""Between two attempts to get the address, which the slice's worker before may still have."""
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def address(owner: str, slice_name: str) -> bytes:
    """Return where the keeper of a slice's worker listens. It is no file: it goes with the keeper."""
    named = f"{os.getuid()} {owner} {slice_name}".encode()
    return b"\0penstock-" + hashlib.sha256(named).hexdigest()[:32].encode()


def peer(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end; the kernel tells."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(found)
    return pid, user


class Inheritance(NamedTuple):
    """A worker's new connection, and the descriptors of its shared memory, if there is any."""

    connection: int
    areas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """What a gateway says. `fingerprint`: of how it would start the worker. With it come the descriptors of
    the pipe for the keeper's words, of the connection and its `areas`, and of two `outputs` if there are."""

    fingerprint: str
    areas: int
    outputs: bool

    def pack(self) -> bytes:
        return f"{self.areas} {int(self.outputs)} {self.fingerprint}".encode()

    @classmethod
    def unpack(cls, data: bytes) -> "Call":
        """Return the call. Raises ValueError if it is none."""
        areas, outputs, fingerprint = data.decode().split(" ")
        return cls(fingerprint, int(areas), outputs == "1")

    @property
    def descriptors(self) -> int:
        """How many come with it."""
        return 2 + self.areas + 2 * self.outputs


class Waiting:
    """A worker's way to the next gateway. `sock`: to its keeper."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def wait(self) -> Inheritance | None:
        """Return what the next gateway hands over, once there is one; None if there will be none."""
        data, descriptors, _, _ = socket.recv_fds(self._sock, 1, DESCRIPTORS_MAX)
        if not data:
            return None
        if data == b"1":
            _print_to(descriptors[-2:])
            descriptors = descriptors[:-2]
        return Inheritance(descriptors[0], tuple(descriptors[1:]))


class Desk:
    """A keeper's: it hears that the gateway is gone, and gateways that call. `say`: the pipe for its words;
    `worker`: the way to its worker; `fingerprint`: of how that was started; `signals`: readable by a
    signal. It does not listen if it may not wait (`orphan_s` is 0)."""

    def __init__(self, say: int, worker: socket.socket, waits: "Waits", mark: str, signals: int) -> None:
        self.say = say
        self._worker = worker
        self._waits = waits
        self._mark = mark.encode()
        self._signals = signals
        self._listener: socket.socket | None = None
        self._bind_s = 0.0
        self._orphaned_s: float | None = None
        self._differs = False
        self._poll = select.poll()
        self._poll.register(signals, select.POLLIN)
        self._poll.register(say, 0)  # an error there says that no process reads it

    @property
    def over(self) -> bool:
        """Whether the worker has waited for long enough, or is of no use to the gateway that has called."""
        waited = self._orphaned_s is not None and time.monotonic() >= self._orphaned_s + self._waits.orphan_s
        return waited or self._differs

    def hear(self, most_s: float | None) -> None:
        """Wait for a signal, a caller or the gateway's end, at most so many seconds."""
        now_s = time.monotonic()
        if self._listener is None and self._waits.orphan_s and now_s >= self._bind_s:
            self._bind_s = now_s + BIND_S
            self._listen()
        ends = [] if most_s is None else [now_s + most_s]
        if self._listener is None and self._waits.orphan_s:
            ends.append(self._bind_s)
        if self._orphaned_s is not None:
            ends.append(self._orphaned_s + self._waits.orphan_s)
        wait_ms = None if not ends else max(0, round((min(ends) - now_s) * 1e3) + 1)
        for descriptor, _ in self._poll.poll(wait_ms):
            if descriptor == self._signals:
                os.read(descriptor, CALL_BYTES_MAX)
            elif descriptor == self.say:
                self._orphaned()
            elif self._listener is not None and descriptor == self._listener.fileno():
                self._hear_caller(self._listener)

    def _listen(self) -> None:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        found.setblocking(False)
        try:
            found.bind(self._waits.address)
            found.listen()
        except OSError as error:
            found.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return
        self._listener = found
        self._poll.register(found, select.POLLIN)

    def _orphaned(self) -> None:
        if self._orphaned_s is None:
            self._orphaned_s = time.monotonic()
            self._poll.unregister(self.say)

    def _hear_caller(self, listener: socket.socket) -> None:
        try:
            caller, _ = listener.accept()
        except OSError:  # it has left
            return
        with caller, suppress(OSError, ValueError):
            caller.settimeout(CALLER_S)
            data, descriptors, _, _ = socket.recv_fds(caller, CALL_BYTES_MAX, DESCRIPTORS_MAX)
            try:
                if peer(caller)[1] in (os.getuid(), 0):
                    caller.send(self._answer(Call.unpack(data), descriptors))
            finally:
                for descriptor in descriptors:
                    if descriptor != self.say:
                        os.close(descriptor)

    def _answer(self, call: Call, descriptors: Sequence[int]) -> bytes:
        if self._orphaned_s is None and _is_read(self.say):
            return BUSY
        if call.fingerprint != self._waits.fingerprint:
            self._differs = True
            return DIFFERS
        if call.descriptors != len(descriptors):
            raise ValueError("descriptors are missing")
        self._orphaned()
        for_worker = descriptors[1:]
        socket.send_fds(self._worker, [b"1" if call.outputs else b"0"], for_worker)
        if call.outputs:
            _print_to(for_worker[-2:])
        os.close(self.say)
        self.say = descriptors[0]
        self._poll.register(self.say, 0)
        self._orphaned_s = None
        return TAKEN + self._mark


@dataclass(frozen=True, slots=True)
class Waits:
    """Whether and how an orphan waits: at most `orphan_s` seconds, at `address`, for a gateway that would
    start it by the same `fingerprint`."""

    orphan_s: float = 0.0
    address: bytes = b""
    fingerprint: str = ""


def _is_read(pipe: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return not poll.poll(0)


def _print_to(outputs: Sequence[int]) -> None:
    """Let what this process prints go to these descriptors."""
    for stream, output in enumerate(outputs, 1):
        os.dup2(output, stream)
