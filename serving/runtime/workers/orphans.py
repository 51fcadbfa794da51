"""Takes over the worker that an earlier gateway has left on a slice (`serving/worker/process/orphans.py`)."""

import os
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from serving.runtime.workers.spawning import Child, Pipes
from serving.worker.process.orphans import CALL_BYTES_MAX, DIFFERS, TAKEN, Call, peer

ANSWER_S: Final = 10.0
"""For a keeper to answer. If it does not, another worker starts beside it, and takes its memory again: this
is longer than a disturbed machine lets a process wait."""
END_S: Final = 10.0
"""For a worker that cannot be taken over to end, with all that it has started."""


def take_over(address: bytes, fingerprint: str, given: Sequence[int], pipes: Pipes) -> Child | None:
    """Return the keeper of the worker that waits at an address, None if none does. `given`: its new
    connection and areas; they stay open here. A worker that was started in another way has ended then.

    It may take seconds, so call it in a thread.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.settimeout(ANSWER_S)
        try:
            caller.connect(address)
            pid, user = peer(caller)
            pidfd = os.pidfd_open(pid) if user == os.getuid() else -1
        except (OSError, ValueError):  # none listens, or from where no process is seen
            return None
        if pidfd < 0:
            return None
        answer, said = b"", -1
        with suppress(OSError):  # it has ended just now, or says nothing
            answer, said = _asked(caller, Call(fingerprint, len(given) - 1, bool(pipes)), given, pipes)
        if answer.startswith(TAKEN):
            child = Child(pid, pidfd, said, answer.removeprefix(TAKEN).decode())
            child.waits = True
            return child
        if answer == DIFFERS:
            select.select([pidfd], [], [], END_S)
    os.close(pidfd)
    if said >= 0:
        os.close(said)
    return None


def _asked(caller: socket.socket, call: Call, given: Sequence[int], pipes: Pipes) -> tuple[bytes, int]:
    """Return the keeper's answer, and the pipe for its last words."""
    said, say = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        outputs = [end for stream in ("stdout", "stderr") if (end := pipes.end(stream)) is not None]
        socket.send_fds(caller, [call.pack()], [say, *given, *outputs])
        return caller.recv(CALL_BYTES_MAX), said
    except OSError:
        os.close(said)
        raise
    finally:
        os.close(say)
