"""The files of a recording: rotated at a size, bounded in number; what has been written stays readable.

Everything here may block: it is called in the recorder's thread.
"""

import errno
import fcntl
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from serving.recording import MAGIC, SUFFIX, RecordedFlow, arrivals_block, flows_block, header
from serving.values.specs import RecordingSpec

_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z" + re.escape(SUFFIX))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Where only room is missing, a file goes on when there is some; what else fails is left for a new file."""


class RecordBlock(NamedTuple):
    """Records as they are written, their base in monotonic us, and how many flows were known by then."""

    base_us: int
    records: bytes
    flow_count: int


class ArrivalFiles:
    """One file after the other, each named by when it starts (UTC) and locked while it is written.

    `unix_offset_us`: the wall clock less the monotonic one. It is taken once, so that the files of a gateway
    stand in their true distances even where the wall clock is set meanwhile.
    """

    def __init__(self, spec: RecordingSpec, unix_offset_us: int) -> None:
        self._spec = spec
        self._unix_offset_us = unix_offset_us
        self._file: FileIO | None = None
        self._path = Path()
        self._start_us = 0
        self._length = 0
        self._flow_count = 0  # whose names are in the file

    def write(self, block: RecordBlock, flows: Sequence[RecordedFlow]) -> None:
        """Append a block, in the next file where it has no room. OSError: nothing of it is written."""
        file = self._file or self._open(block.base_us)
        content = self._content(block, flows)
        if self._length and self._length + len(content) > self._spec.file_bytes:
            self.close()
            file = self._open(block.base_us)
            content = self._content(block, flows)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
        except OSError as error:
            self._undo(file, error)
            raise
        self._length += len(content)
        self._flow_count = block.flow_count

    def close(self) -> None:
        """End the file that is being written."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _content(self, block: RecordBlock, flows: Sequence[RecordedFlow]) -> bytes:
        start = b"" if self._length else header(self._start_us + self._unix_offset_us)
        new = flows[self._flow_count : block.flow_count]
        names = flows_block(new) if new else b""
        return start + names + arrivals_block(block.base_us - self._start_us, block.records)

    def _open(self, start_us: int) -> FileIO:
        folder = self._spec.folder
        folder.mkdir(parents=True, exist_ok=True)
        self._delete_oldest()
        at = _EPOCH + timedelta(microseconds=start_us + self._unix_offset_us)
        while True:
            self._path = folder / f"{at:%Y%m%dT%H%M%S.%fZ}{SUFFIX}"
            try:
                file = self._create(self._path)
                break
            except FileExistsError:
                at += timedelta(microseconds=1)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file, self._start_us, self._length, self._flow_count = file, start_us, 0, 0
        return file

    @staticmethod
    def _create(path: Path) -> FileIO:
        return FileIO(path, "x")

    def _undo(self, file: FileIO, error: OSError) -> None:
        """Take back a block that may be only partly written."""
        goes_on = error.errno in _ROOM and self._length > 0
        try:
            file.truncate(self._length)
            file.seek(self._length)
        except OSError:
            goes_on = False
        if not goes_on:
            with suppress(OSError):
                self.close()
        if not self._length:
            with suppress(OSError):
                self._path.unlink()

    def _delete_oldest(self) -> None:
        """Make room for a file. Only recordings are deleted, and none that another gateway is writing."""
        own = sorted(path for path in self._spec.folder.iterdir() if _recording(path))
        for path in own[: max(0, len(own) - self._spec.files + 1)]:
            with suppress(FileNotFoundError), FileIO(path, "r+") as file:
                start = file.read(len(MAGIC))
                if MAGIC[: len(start)] == start and _unlocked(file):
                    path.unlink()


def _recording(path: Path) -> bool:
    return _NAME.fullmatch(path.name) is not None and path.is_file()  # to read a FIFO would not end


def _unlocked(file: FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
