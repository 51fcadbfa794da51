"""The small values that all code shares, each with one meaning (docs/glossary.md).

Instants are integer microseconds of one monotonic clock; latencies are float microseconds.
"""

from dataclasses import dataclass
from enum import StrEnum

NEVER_US = 1 << 62
"""An instant later than any other: "no deadline"."""


class Kind(StrEnum):
    """How a request ended; each request ends exactly once, in exactly one of these ways."""

    COMPLETED = "completed"
    REJECTED = "rejected"  # never queued, or its model found its input bad
    SHED = "shed"  # queued, then given up
    FAILED = "failed"  # the model, its worker or the gateway could not answer
    CANCELLED = "cancelled"  # the client left


class Reason(StrEnum):
    """Why a request ended as it did; low-cardinality, a metric label and a part of error bodies."""

    OK = "ok"
    # rejected
    BAD_INPUT = "bad_input"
    TOO_LARGE = "too_large"
    UNKNOWN_MODEL = "unknown_model"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    QUEUE_FULL = "queue_full"
    MEMORY_FULL = "memory_full"
    OVERLOAD = "overload"
    QUOTA = "quota"
    RATE_LIMITED = "rate_limited"
    DEADLINE_UNREACHABLE = "deadline_unreachable"
    NO_REPLICA = "no_replica"
    NOT_LOADED = "not_loaded"
    DRAINING = "draining"
    # shed
    DEADLINE_QUEUED = "deadline_queued"
    DEADLINE_RUNNING = "deadline_running"
    DEADLINE_UNMET = "deadline_unmet"
    # failed
    WORKER_LOST = "worker_lost"
    MODEL_ERROR = "model_error"
    SEQUENCE_LOST = "sequence_lost"
    # cancelled
    CLIENT_GONE = "client_gone"


class Downgrade(StrEnum):
    """Why overload changed the variant that answered; low-cardinality, a metric label."""

    LOAD = "load"  # the slices cannot carry the load with better variants
    BACKLOG = "backlog"  # some waiting requests would be late
    DEADLINE = "deadline"  # the better variant would have been late, even alone
    ABSENT = "absent"  # no better variant is on the slice
    COST = "cost"  # better variants cost more than the ceiling


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """How and why a request ended. Bugs are no outcomes: they are assertions.

    Outcomes are compared by identity, because each is one object in ALL_OUTCOMES.
    """

    kind: Kind
    reason: Reason


COMPLETED = Outcome(Kind.COMPLETED, Reason.OK)
BAD_INPUT = Outcome(Kind.REJECTED, Reason.BAD_INPUT)
TOO_LARGE = Outcome(Kind.REJECTED, Reason.TOO_LARGE)
UNKNOWN_MODEL = Outcome(Kind.REJECTED, Reason.UNKNOWN_MODEL)
UNAUTHENTICATED = Outcome(Kind.REJECTED, Reason.UNAUTHENTICATED)  # without a valid API key
FORBIDDEN = Outcome(Kind.REJECTED, Reason.FORBIDDEN)  # its API key does not permit it
QUEUE_FULL = Outcome(Kind.REJECTED, Reason.QUEUE_FULL)
MEMORY_FULL = Outcome(Kind.REJECTED, Reason.MEMORY_FULL)
OVERLOAD = Outcome(Kind.REJECTED, Reason.OVERLOAD)
QUOTA = Outcome(Kind.REJECTED, Reason.QUOTA)  # its tenant is over its fair share, others are within theirs
RATE_LIMITED = Outcome(Kind.REJECTED, Reason.RATE_LIMITED)  # its tenant sends more than its `rate:` allows
DEADLINE_UNREACHABLE = Outcome(Kind.REJECTED, Reason.DEADLINE_UNREACHABLE)
NO_REPLICA = Outcome(Kind.REJECTED, Reason.NO_REPLICA)
NOT_LOADED = Outcome(Kind.REJECTED, Reason.NOT_LOADED)  # the variant can be loaded, but not in time
DRAINING = Outcome(Kind.REJECTED, Reason.DRAINING)
DEADLINE_QUEUED = Outcome(Kind.SHED, Reason.DEADLINE_QUEUED)
DEADLINE_RUNNING = Outcome(Kind.SHED, Reason.DEADLINE_RUNNING)
DEADLINE_UNMET = Outcome(Kind.SHED, Reason.DEADLINE_UNMET)
WORKER_LOST = Outcome(Kind.FAILED, Reason.WORKER_LOST)
MODEL_ERROR = Outcome(Kind.FAILED, Reason.MODEL_ERROR)
SEQUENCE_LOST = Outcome(Kind.FAILED, Reason.SEQUENCE_LOST)  # what its model kept for it is gone
CLIENT_GONE = Outcome(Kind.CANCELLED, Reason.CLIENT_GONE)

ALL_OUTCOMES = (
    COMPLETED, BAD_INPUT, TOO_LARGE, UNKNOWN_MODEL, UNAUTHENTICATED, FORBIDDEN, QUEUE_FULL, MEMORY_FULL,
    OVERLOAD, QUOTA, RATE_LIMITED, DEADLINE_UNREACHABLE, NO_REPLICA, NOT_LOADED, DRAINING,
    DEADLINE_QUEUED, DEADLINE_RUNNING, DEADLINE_UNMET, WORKER_LOST, MODEL_ERROR, SEQUENCE_LOST, CLIENT_GONE,
)  # fmt: skip
