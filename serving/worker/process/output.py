"""What models print: each line says which model's code printed it.

The gateway reads a worker's standard output and error through pipes. Lines that Python code prints carry the
name of the model whose code runs on the printing thread. Lines from elsewhere, such as C libraries and
threads of the model's own, carry none: they are the slice's.
"""

import io
import os
import sys
import threading
from typing import Final

NAME_BEGINS: Final = b"\x1e"
NAME_ENDS: Final = b"\x1f"
"""Around a model's name at the begin of a line; no name and no text has these characters."""
LINE_BYTES_MAX: Final = 4000
"""A longer line is cut in several. A write of up to 4096 bytes (PIPE_BUF) to a pipe is never torn apart."""


class _Speaking(threading.local):
    """The model with code that runs on this thread; "" for none."""

    model: str = ""


SPEAKING: Final = _Speaking()


class _Lines(io.RawIOBase):
    """Writes whole lines to a descriptor, each with its model's name."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._begun: dict[tuple[int, str], bytes] = {}  # by thread and model: a line without its end

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]  # any buffer
        piece = bytes(data)
        model = SPEAKING.model
        key = (threading.get_ident(), model)
        *lines, rest = (self._begun.pop(key, b"") + piece).split(b"\n")
        while len(rest) > LINE_BYTES_MAX:
            lines.append(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        if rest:
            self._begun[key] = rest
        for line in lines:
            self._put(model, line)
        return len(piece)

    def _put(self, model: str, line: bytes) -> None:
        name = NAME_BEGINS + model.encode() + NAME_ENDS if model else b""
        for begin in range(0, len(line) or 1, LINE_BYTES_MAX):
            try:
                os.write(self._descriptor, name + line[begin : begin + LINE_BYTES_MAX] + b"\n")
            except OSError:  # the gateway is gone: a model does not fail for that
                return

    def say_rest(self) -> None:
        """Write the lines that have not ended."""
        for (_, model), line in list(self._begun.items()):
            self._put(model, line)
        self._begun.clear()


def name_lines() -> None:
    """Make sys.stdout and sys.stderr of this process name the models that print, from now on."""
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)


def say_rest() -> None:
    """Write what was printed without an end of line; for the end of the process."""
    for stream in (sys.stdout, sys.stderr):
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, _Lines):
            raw.say_rest()


def _stream(descriptor: int) -> io.TextIOWrapper:
    raw = _Lines(descriptor)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", "\n", write_through=True)  # type: ignore[arg-type]  # as `python -u`
