"""What the gateway prints, without ever waiting for whoever reads it.

A `Sink` is a bounded queue and one thread for one place to print to. What does not fit is dropped and
counted, and a line says so once there is room. A reader that has gone changes nothing. `Output` takes the
place of this process' standard output and standard error, so that what C libraries and children print goes
the same way.
"""

import fcntl
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Final, Self

QUEUE_BYTES: Final = 1 << 20
"""Of lines that wait for one place: some 8,000 lines, a second of a busy access log."""
LINE_COST_BYTES: Final = 100
"""What a waiting line counts beside its bytes: the Python object around them."""
PIPE_BYTES: Final = 1 << 20
"""Of what C code and children print, until it is read: what Linux gives an ordinary user (pipe(7))."""
LINE_BYTES_MAX: Final = 8 << 10
"""A printed line without an end is said in pieces of this size."""
FLUSH_S: Final = 2.0
"""What the end of the process waits for a reader."""
STREAMS: Final = ("stdout", "stderr")

_READ_BYTES: Final = 64 << 10


class Sink:
    """Lines for one descriptor, from any thread. `notice(count)`: what is said of that many dropped ones."""

    def __init__(self, descriptor: int, notice: Callable[[int], str]) -> None:
        self.dropped = 0
        """Lines that were not written, since the start."""
        self.notice = notice
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._held_bytes = 0
        self._missed = 0  # dropped lines that no line has reported yet
        self._gone = False  # the reader, for ever
        self._writing = False
        self._ends = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="penstock-output", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Print a line, or several at once; its end is added. Never waits for the reader."""
        content = line.encode(errors="backslashreplace") + b"\n"
        with self._changed:
            cost = len(content) + LINE_COST_BYTES
            if self._gone or self._ends or self._held_bytes + cost > QUEUE_BYTES:
                self._miss(1)
                return
            self._held_bytes += cost
            self._lines.append(content)
            self._changed.notify_all()

    def flush(self, wait_s: float = FLUSH_S) -> bool:
        """Return whether all that was put is written, within that many seconds."""
        end_s = monotonic() + wait_s
        with self._changed:
            while (self._lines or self._writing) and not self._gone:
                left_s = end_s - monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    return False
        return True

    def close(self, wait_s: float = FLUSH_S) -> None:
        """Write what waits, within that many seconds, and take no more."""
        self.flush(wait_s)
        with self._changed:
            self._ends = True
            self._changed.notify_all()

    def _miss(self, count: int) -> None:
        self.dropped += count
        self._missed += count

    def _run(self) -> None:
        while True:
            lines, missed = self._take()
            if not lines:
                return
            content = b"".join(lines)
            if missed:  # they came after these lines, when the queue was full
                content += self.notice(missed).encode(errors="backslashreplace") + b"\n"
            written = self._write(content)
            with self._changed:
                self._writing = False
                if not written:
                    self.dropped += len(lines)
                    self._missed += len(lines) + missed
                self._changed.notify_all()

    def _take(self) -> tuple[list[bytes], int]:
        """Return the lines that wait, as soon as there are some, and how many were missed; no lines: the
        end."""
        with self._changed:
            while not self._lines and not self._ends:
                self._changed.wait()
            lines = list(self._lines)
            self._lines.clear()
            self._held_bytes = 0
            self._writing = bool(lines)
            missed, self._missed = self._missed, 0
        return lines, missed

    def _write(self, content: bytes) -> bool:
        """Return whether all of it is written."""
        rest = memoryview(content)
        while rest and not self._gone:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # whoever started this process wants it so
                select.select((), (self._descriptor,), ())
            except BrokenPipeError:
                with self._changed:
                    self._gone = True
                    self._miss(len(self._lines))
                    self._lines.clear()
            except OSError:  # a full disk, for instance: the next lines may find room
                return False
        return not rest


class Output:
    """Standard output and standard error of this process, from `start` to `close`.

    `stdout`, `stderr`: the sinks, one and the same where both are the same file, so that their lines keep
    their order. `printed(stream, line)` takes what others print, from a thread.
    """

    def __init__(self, notice: Callable[[int], str], printed: Callable[[str, str], None]) -> None:
        for number in (1, 2):
            _opened(number)
        self._places = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in (1, 2)]
        same = os.path.sameopenfile(*self._places)
        self.stdout = Sink(self._places[0], notice)
        self.stderr = self.stdout if same else Sink(self._places[1], notice)
        self._printed = printed
        self._pumps: list[threading.Thread] = []
        self._python = (sys.stdout, sys.stderr)

    @property
    def places(self) -> tuple[int, int]:
        """The descriptors that were this process' standard output and standard error."""
        return self._places[0], self._places[1]

    @property
    def last_words(self) -> int:
        """The descriptor that was this process' standard error: for what is printed while it crashes."""
        return self._places[1]

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """One or two."""
        return (self.stdout,) if self.stdout is self.stderr else (self.stdout, self.stderr)

    def start(self) -> Self:
        """Start to read here what this process prints. Raises OSError if there are no more descriptors."""
        for number, stream in zip((1, 2), STREAMS, strict=True):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            with suppress(OSError):  # a user's share of pipe buffers is spent: 64 KiB then
                fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            # C code may print while it holds the interpreter, which the thread that reads needs.
            os.set_blocking(theirs, False)
            os.dup2(theirs, number)
            os.close(theirs)
            pump = threading.Thread(
                target=self._pump, args=(ours, stream), name=f"penstock-{stream}", daemon=True
            )
            pump.start()
            self._pumps.append(pump)
        sys.stdout, sys.stderr = _Printing(1, self._printed), _Printing(2, self._printed)
        return self

    def close(self) -> None:
        """Print where this process printed before; what waits is written first, within FLUSH_S."""
        sys.stdout, sys.stderr = self._python
        if self._pumps:
            for number, place in zip((1, 2), self._places, strict=True):
                os.dup2(place, number)
            for pump in self._pumps:
                pump.join(FLUSH_S / 10)  # a child that lives on holds its pipe open
            self._pumps.clear()
        for sink in self.sinks:
            sink.close()

    def flush(self, wait_s: float) -> None:
        """Wait for readers, no longer than that."""
        for sink in self.sinks:
            sink.flush(wait_s)

    def _pump(self, descriptor: int, stream: str) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            for line in _lines(pipe.read):
                with suppress(Exception):  # nothing may end this thread
                    self._printed(stream, line.decode(errors="replace"))


def _lines(read: Callable[[int], bytes]) -> Iterator[bytes]:
    begun = b""
    while data := read(_READ_BYTES):
        *lines, begun = (begun + data).split(b"\n")
        yield from lines
        if len(begun) > LINE_BYTES_MAX:
            yield begun
            begun = b""
    if begun:
        yield begun


def _opened(number: int) -> None:
    """Make sure that the descriptor is open; else the next file that this process opens would be printed
    to."""
    try:
        os.fstat(number)
    except OSError:
        nothing = os.open(os.devnull, os.O_RDWR)
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)


class _Printing:
    """In the place of sys.stdout and sys.stderr: what Python code of this process prints, by lines."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, number: int, printed: Callable[[str, str], None]) -> None:
        self._number = number
        self._stream = STREAMS[number - 1]
        self._printed = printed
        self._begun = threading.local()

    def write(self, text: str) -> int:
        """Take text; its last line waits for its end."""
        *lines, begun = (getattr(self._begun, "text", "") + text).split("\n")
        if len(begun) > LINE_BYTES_MAX:
            lines.append(begun)
            begun = ""
        self._begun.text = begun
        for line in lines:
            self._printed(self._stream, line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: only a line without an end waits."""

    def fileno(self) -> int:
        """Return the descriptor, which is read here too."""
        return self._number

    def isatty(self) -> bool:
        """Return False: it is never a terminal."""
        return False
