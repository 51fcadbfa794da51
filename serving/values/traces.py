"""The trace that a request belongs to, as it goes from server to server: W3C Trace Context
(https://www.w3.org/TR/trace-context/, "the standard" below)."""

import re
from typing import Final, NamedTuple

PARENT_CHARS: Final = 55
"""Of a traceparent of version 00."""
STATE_CHARS_MAX: Final = 512
"""Of a tracestate that goes on: so many should, as the standard says in section 3.3.1.5."""
SAMPLED: Final = 1
"""The flag of a caller that samples."""
_TRACE_ID: Final = slice(3, 35)
_FLAGS_AT: Final = 53
_PARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})(-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?"
)
"""Section 3.2: no id is all zeros, and no version ff; versions after 00 may have more parts."""
_STATE: Final = re.compile(r"[\x20-\x7e]+")
"""What a field of HTTP and of gRPC may hold alike."""


class TraceContext(NamedTuple):
    """`parent`: a traceparent of version 00; `state`: the tracestate beside it. "" for none."""

    parent: str
    state: str


NO_TRACE: Final = TraceContext("", "")


def trace_context(traceparent: str, tracestate: str) -> TraceContext:
    """Return what a caller's two fields say; NO_TRACE where the first is none by the standard.

    A state that no field may hold is left out, and one that is too long loses its last entries.
    """
    found = _PARENT.fullmatch(traceparent)
    if found is None or (found[1] == "00" and found[3] is not None):
        return NO_TRACE
    return TraceContext(f"00{found[2]}", _state(tracestate.strip()))


def trace_id_of(parent: str) -> str:
    """Return the trace's id of a traceparent that `trace_context` has returned; "" for none."""
    return parent[_TRACE_ID]


def flags_of(parent: str) -> int:
    """Return the flags of a traceparent that `trace_context` has returned."""
    return int(parent[_FLAGS_AT:PARENT_CHARS], 16)


def _state(stated: str) -> str:
    if _STATE.fullmatch(stated) is None:
        return ""
    if len(stated) <= STATE_CHARS_MAX:
        return stated
    return stated[: STATE_CHARS_MAX + 1].rpartition(",")[0].rstrip()
