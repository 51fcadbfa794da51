"""Files of shared memory, as clients make them; each is gone after its test."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from router.payloads.regions.region import FOLDER

Make = Callable[[int], "Made"]


class Made:
    """A file that a client has made by shm_open."""

    def __init__(self, size: int) -> None:
        self.key = f"/penstock-test-{uuid4().hex}"
        self.path = Path(FOLDER + self.key)
        self.path.write_bytes(bytes(size))

    def write(self, data: bytes, offset: int = 0) -> None:
        """Write as the client would through its mapping."""
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def read(self, size: int, offset: int = 0) -> bytes:
        """Read what is there."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def cut(self, size: int) -> None:
        """Cut the file short."""
        os.truncate(self.path, size)


@pytest.fixture
def made() -> Iterator[Make]:
    """Makes a file of that size."""
    files: list[Made] = []

    def make(size: int) -> Made:
        files.append(Made(size))
        return files[-1]

    yield make
    for each in files:
        each.path.unlink(missing_ok=True)
