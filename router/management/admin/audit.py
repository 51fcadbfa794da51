"""The audit log: one line for each act, which is a request that changes what the gateway does or serves."""

import logging
from dataclasses import asdict, dataclass
from typing import Final

from router.logs.logs import AUDIT

UNNAMED: Final = "a local process"
"""A caller on the Unix socket, which has no address."""
_logger = logging.getLogger(AUDIT)


@dataclass(frozen=True, slots=True)
class Act:
    """What was asked (method and path, or method and model), the caller (`by`), and the door."""

    act: str
    by: str
    door: str

    def say(self, status: object) -> None:
        """Log that the act was let in, and ended with this status of HTTP or gRPC."""
        fields = asdict(self) | {"status": status}
        text = "audit: %s by %s through %s: %s"
        _logger.info(text, self.act, self.by, self.door, status, extra={"fields": fields})

    def say_refused(self, status: object) -> None:
        """Log that the act was not let in. A flood of these is cut short, as with all warnings; lines of acts
        never are."""
        fields = asdict(self) | {"status": status, "refused": True}
        text = "audit: refused: %s by %s through %s: %s"
        _logger.warning(text, self.act, self.by, self.door, status, extra={"fields": fields})


def caller(identity: object, address: object) -> str:
    """Return the name of an identity, of a key, say; without one the client's `address`, of the socket
    library."""
    name = getattr(identity, "name", None)
    if name:
        return str(name)
    if isinstance(address, tuple | list) and len(address) > 1:
        return f"{address[0]}:{address[1]}"
    return str(address or UNNAMED)


def say_edit(sentence: str) -> None:
    """Log that an edit of the settings file is in force."""
    fields = {"act": "edit", "by": "the settings file", "status": "in force"}
    _logger.info("%s", sentence, extra={"fields": fields})
