"""The trace that goes out with a batch which another server computes: that of one of its requests, as a
request to a server has one parent (W3C Trace Context, section 3.2)."""

from collections.abc import Callable, Sequence

from serving.runtime.calls.batch_lanes import Lanes
from serving.runtime.calls.payloads import Pending
from serving.scheduler.waiting.requests import Request
from serving.values.traces import NO_TRACE, SAMPLED, TraceContext, flags_of


def came_with(request: Request) -> str:
    """Return the traceparent of a request's own client."""
    return request.trace


class Outgoing:
    """`below`: returns the traceparent for what is done for a request elsewhere, "" for none. Of a gateway
    that makes no spans, it is the client's."""

    __slots__ = ("below",)

    def __init__(self) -> None:
        self.below: Callable[[Request], str] = came_with

    def trace(self, lanes: Lanes, variant: str, pending: Sequence[Pending]) -> TraceContext:
        """Return the trace of the first request that is sampled. Without any, return that of the first with a
        trace: the other server then samples as little as the client wants. NO_TRACE if the worker itself
        computes the variant."""
        found = NO_TRACE
        if variant not in lanes.asking:
            return found
        for each in pending:
            request, call = each.request, each.call
            parent = self.below(request)
            if not parent:
                continue
            state = call.trace_state if call.trace == request.trace else ""  # it may be a successor's call
            if flags_of(parent) & SAMPLED:
                return TraceContext(parent, state)
            if found is NO_TRACE:
                found = TraceContext(parent, state)
        return found
