"""What grpc.aio logs by itself: no tracebacks of what clients do.

It logs one for each client that leaves at the wrong moment, and for each metadata entry that is no UTF-8.
"""

import logging

from grpc._cython import cygrpc

from router.logs.logs import Seldom

LOGGER = "grpc._cython.cygrpc"

_ENCODING = "Invalid encoding"  # as its message begins
_logger = logging.getLogger(__name__)


class ClientNoise(logging.Filter):
    """Lets pass what clients did not cause."""

    def __init__(self) -> None:
        super().__init__()
        self._said = Seldom(_logger)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is written."""
        if isinstance(record.msg, Exception):  # the server's loop has ended: its edge's watch says so
            return False
        if str(record.msg).startswith(_ENCODING):
            self._said.warning("a gRPC client sends metadata that is not UTF-8; it is read as Latin-1")
            return False
        # A message could not be sent, as the client had left or its deadline had passed.
        return not (record.exc_info and isinstance(record.exc_info[1], cygrpc.ExecuteBatchError))


def hush() -> None:
    """Silence grpc's client noise from now on."""
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(each, ClientNoise) for each in logger.filters):
        logger.addFilter(ClientNoise())
