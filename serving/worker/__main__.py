"""`python -m serving.worker`: the process of one slice. The gateway starts it; it has no other use.

It is told its socket (and shared memory) as inherited descriptors, so nothing lies on disk, and the death of
either side is end of file for the other. Only its keeper listens, for the next gateway.
"""

import argparse
import faulthandler
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from serving.worker.process.confined import bound, leave_no_core, yield_memory
from serving.worker.process.keeper import Charge, keep
from serving.worker.process.orphans import FINGERPRINT, Waiting, Waits, address


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="serving.worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="socket to the gateway")
    parser.add_argument("--shared", default="", metavar="REQUESTS,ANSWERS", help="two memfds, or none")
    parser.add_argument("--slice", required=True, help="name of the slice, for process listings")
    parser.add_argument("--cores", default="", metavar="0,1", help="cores to stay on, or none")
    parser.add_argument("--threads", type=int, default=1, help="compute threads")
    parser.add_argument("--device", default="cpu", metavar="cuda:0", help="where models compute")
    parser.add_argument("--say", type=int, required=True, help="pipe for how the worker ended")
    parser.add_argument("--owner", default="", help="what names the gateway across its lives")
    parser.add_argument("--orphan-s", type=float, default=0.0, help="how long it waits for the next gateway")
    parser.add_argument("--memory", type=int, default=0, metavar="BYTES", help="at most, 0: no bound")
    parser.add_argument("--open-files", type=int, default=0, metavar="N", help="at most, 0: as the gateway")
    parser.add_argument("--processes", type=int, default=0, metavar="N", help="of the user, at most")
    parser.add_argument("--name-lines", action="store_true", help="printed lines name their models")
    return parser.parse_args(argv)


def main() -> int:
    """Return 0 after end of file, 1 if the worker cannot be what it was asked to be, 2 after garbage."""
    asked = arguments()
    # Ctrl-C reaches the whole foreground group; the gateway decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_no_core()
    sys.dont_write_bytecode = True  # an edit within a second, of the same size, would find the old code
    # End of file is noticed between batches; the keeper also ends a batch whose gateway died.
    waits = Waits(asked.orphan_s, address(asked.owner, asked.slice), os.environ.get(FINGERPRINT, ""))
    waiting = keep(Charge(asked.say, (asked.fd, *_areas(asked)), asked.memory, waits))
    faulthandler.enable()  # a crash in a model's C code says where its Python code was
    yield_memory()
    if asked.open_files:
        bound(resource.RLIMIT_NOFILE, asked.open_files)
    if asked.processes:
        bound(resource.RLIMIT_NPROC, asked.processes)
    cores = {int(core) for core in asked.cores.split(",") if core}
    if cores and (missing := _stay_on(cores)):
        sys.stderr.write(f"slice {asked.slice}: the cores {missing} are not available here\n")
        return 1
    return _serve(asked, waiting)


def _areas(asked: argparse.Namespace) -> list[int]:
    """Return the descriptors of the shared memory."""
    return [int(fd) for fd in asked.shared.split(",") if fd]


def _stay_on(cores: set[int]) -> list[int]:
    """Pin this process; returns the cores that the kernel did not grant."""
    # Asked of the kernel, not compared with the mask before: that is the gateway's own, maybe a narrow one.
    with suppress(OSError):
        os.sched_setaffinity(0, cores)
    return sorted(cores - os.sched_getaffinity(0))


def _serve(asked: argparse.Namespace, waiting: Waiting | None) -> int:
    # Heavy: numpy and what models import make thread pools, which must inherit the affinity set above.
    from serving.worker.backends.chosen import ChosenBackend
    from serving.worker.frames.shared import SharedArea
    from serving.worker.frames.wire import ProtocolError
    from serving.worker.loop.device_loop import DeviceLoop
    from serving.worker.loop.loader import SWITCH_S
    from serving.worker.loop.serve import WorkerLoop
    from serving.worker.process.libraries import open_torch_beside
    from serving.worker.process.output import name_lines, say_rest

    descriptors = _areas(asked)
    areas = (SharedArea(descriptors[0]), SharedArea(descriptors[1])) if descriptors else None
    if asked.name_lines:
        name_lines()
    sys.setswitchinterval(SWITCH_S)
    open_torch_beside()
    code = 0
    with socket.socket(fileno=asked.fd) as sock:
        backend = ChosenBackend(asked.threads, asked.device)
        make = WorkerLoop if asked.device == "cpu" else DeviceLoop
        worker = make(sock, areas, backend, asked.device)
        if waiting is not None:
            worker.next_gateway = waiting.wait
        try:
            worker.serve()
        except ProtocolError as error:
            sys.stderr.write(f"slice {asked.slice}: the gateway {error}\n")
            code = 2
        say_rest()
        # A thread cannot be ended, and the interpreter's own end waits for what it computes; with torch that
        # end takes a second, in which whoever moves a slice waits. A GPU's context is to be closed.
        if worker.loading or asked.device == "cpu":
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
