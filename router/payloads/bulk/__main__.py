"""A bulk process: takes orders on its standard input, answers on its standard output, ends with its input."""

import os
import sys
from typing import BinaryIO

from router.payloads.bulk.jobs import LENGTH, perform
from serving.worker.process.confined import follow, yield_memory

NICENESS = 5
"""The gateway and its workers go first, as before the jobs of `serving/runtime/job.py`."""


def main(parent: int) -> None:
    """Perform orders until the gateway, which is the process `parent`, closes the pipe or dies."""
    os.nice(NICENESS)
    follow(parent)  # the end of its input would wait for the end of a job
    yield_memory()
    orders, answers = sys.stdin.buffer, sys.stdout.buffer
    while order := _read(orders):
        answer = perform(order)
        answers.write(LENGTH.pack(len(answer)))
        answers.write(answer)
        answers.flush()


def _read(stream: BinaryIO) -> bytes:
    """Return the next order, b"" at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return b""
    return stream.read(LENGTH.unpack(head)[0])


if __name__ == "__main__":
    main(int(sys.argv[1]))
