"""What happened to every arrival of a run, each told exactly once."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

# Reasons of arrivals that got no HTTP answer; their status is NO_STATUS.
NO_STATUS = 0
REFUSED = "connection_refused"
CLOSED = "connection_closed"
UNREADABLE = "answer_unreadable"
NO_ANSWER = "no_answer"
NO_CONNECTION = "client_connections_max"
NO_TIME = "client_too_slow"
CLIENT_FAULTS = (NO_CONNECTION, NO_TIME)  # never sent, for which the server cannot be blamed: they void a run


@dataclass(slots=True)
class Record:
    """One row per arrival, by its number; instants are nanoseconds of `time.monotonic_ns`.

    `loads` says to which load an arrival belongs. `sent_ns` is when the client came to it, and handed it
    to a connection, new or kept alive; 0 where it never did. `done_ns` is when its outcome was known; 0 while
    it is not.
    """

    due_ns: Sequence[int]
    loads: Sequence[int]
    start_ns: int = 0  # instant 0 of the arrivals
    sent_ns: list[int] = field(init=False)
    done_ns: list[int] = field(init=False)
    statuses: list[int] = field(init=False)
    reasons: list[str] = field(init=False)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.due_ns)
        self.sent_ns, self.done_ns, self.statuses = [0] * count, [0] * count, [NO_STATUS] * count
        self.reasons = [""] * count
        self.left = count

    def settle(self, number: int, status: int, reason: str = "") -> None:
        """Note the outcome of an arrival. Raises RuntimeError if it had one already."""
        if self.done_ns[number]:
            before = f"{self.statuses[number]} {self.reasons[number]}"
            raise RuntimeError(f"arrival {number} ended twice: {before}, then {status} {reason}")
        self.done_ns[number] = time.monotonic_ns()
        self.statuses[number] = status
        self.reasons[number] = reason
        self.left -= 1


@dataclass(frozen=True, slots=True)
class ClientState:
    """What the client itself did in a run; `cpu` is its share of one core, connect times are milliseconds."""

    cpu: float
    load_average: float
    connections_opened: int
    connections_peak: int
    connections_max: int
    connect_ms_max: float
