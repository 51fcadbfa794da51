"""The sentences of reasons: for each code of an ending or of a downgrade, the words that all views show.

Clients read other sentences, which `router/protocol/outcomes.py` has beside the status of each ending.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from serving.values.vocabulary import Downgrade, Reason

LATE: Final = "late"
"""The code of an answer after its deadline; such a request was completed, so no `Reason` says it."""

ENDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        Reason.OK: "answered",
        LATE: "answered, but too late",
        Reason.BAD_INPUT: "refused: the input was not valid for the model",
        Reason.TOO_LARGE: "refused: the request was larger than a limit",
        Reason.UNKNOWN_MODEL: "refused: the gateway serves no such model",
        Reason.UNAUTHENTICATED: "refused: the request had no valid API key",
        Reason.FORBIDDEN: "refused: its API key may not use the model",
        Reason.QUEUE_FULL: "refused: the queue was full",
        Reason.MEMORY_FULL: "refused: accepted requests held all the memory they may",
        Reason.OVERLOAD: "refused: more came than the slices can answer in time",
        Reason.QUOTA: "refused: the tenant was over its share",
        Reason.RATE_LIMITED: "refused: the tenant was over its rate",
        Reason.DEADLINE_UNREACHABLE: "refused: even the next batch would have been too late",
        Reason.NO_REPLICA: "refused: no replica was up",
        Reason.NOT_LOADED: "refused: the model was not loaded, and could not be in time",
        Reason.DRAINING: "refused: the gateway was shutting down",
        Reason.DEADLINE_QUEUED: "given up in the queue: the client's deadline had passed",
        Reason.DEADLINE_RUNNING: "given up while it ran: the client's deadline had passed",
        Reason.DEADLINE_UNMET: "given up in the queue: no batch could have answered it in time",
        Reason.WORKER_LOST: "failed: its worker died",
        Reason.MODEL_ERROR: "failed: the model raised an error",
        Reason.SEQUENCE_LOST: "failed: the state of its sequence was lost",
        Reason.CLIENT_GONE: "cancelled: the client left",
    }
)

DOWNGRADES: Final[Mapping[str, str]] = MappingProxyType(
    {
        Downgrade.LOAD: "as better variants could not carry the load",
        Downgrade.BACKLOG: "as some waiting requests would have been late",
        Downgrade.DEADLINE: "as a better variant would have been late even alone",
        Downgrade.ABSENT: "as no better variant was on the slice",
        Downgrade.COST: "as better variants cost too much",
    }
)


def ending(code: str) -> str:
    """Return what became of requests that ended so; the code itself if a newer gateway sent it."""
    return ENDINGS.get(code, code)


def downgrade(code: str) -> str:
    """Return why a less good variant answered; the code itself if a newer gateway sent it."""
    return DOWNGRADES.get(code, code)
