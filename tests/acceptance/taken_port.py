"""`penstock` with a trap door: SIGUSR1 ends the listener of metrics and takes its port, as an accept that
fails and another process would."""

import contextlib
import os
import signal
import socket

from router.cli import main
from router.observing.telemetry import MetricsServer

_taken: list[socket.socket] = []


def take(port: int) -> None:
    """End what listens on the port in this process, and listen there."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
            listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens and found.getsockname()[1] == port:
                found.shutdown(socket.SHUT_RDWR)
    _taken.append(socket.create_server(("127.0.0.1", port)))


if __name__ == "__main__":
    start = MetricsServer.start

    async def started(self: MetricsServer, host: str, port: int) -> int:
        bound = await start(self, host, port)
        signal.signal(signal.SIGUSR1, lambda _number, _frame: take(bound))
        return bound

    MetricsServer.start = started  # type: ignore[method-assign]
    main()
