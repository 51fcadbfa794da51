"""What an answer says of itself beside its outputs: where its time went, what computed it, whether it was
kept, why it is none, when to come back. REST carries it in header fields, gRPC in trailing metadata, under
the same names.
"""

from router.protocol.outcomes import ANSWERS
from router.tensors.parts.recent import Recent
from serving.ports import Reply

Lines = bytes
"""Header fields as they stand on the wire, each after a line break."""

_FRACTIONS = tuple(f".{thousandths:03}" for thousandths in range(1000))
"""A table, as formatting floats or padded integers costs 0.3 us more an answer."""

_ACCURACIES: Recent[float, str] = Recent(256)
"""Lines by accuracy: there are as many as variants, and as sets of those that vote."""

DEADLINE_FIELD = "x-penstock-deadline-ms"
REHEARSED_FIELD = "x-penstock-rehearsed"


def deadline_ms(due_us: int) -> str:
    """Return how soon after its arrival an answer was due, in milliseconds: `250`, or `12.500`."""
    return f"{due_us // 1000}{_FRACTIONS[due_us % 1000] if due_us % 1000 else ''}"


def completed_lines(reply: Reply, due_us: int, began_us: int, now_us: int) -> Lines:
    """Return when the answer was due, variant, rows of the batch, and the phases of a completed call in
    milliseconds (W3C Server Timing).

    They reach from `began_us`, when the first of it was read, until `now_us`, when its answer is made: it was
    read and checked, waited for a slice, its batch filled, it went to the worker, the model ran, it came
    back, and its answer was made. The first is what the others leave, so that they add up. Where the cache
    was asked, what it did; of a kept answer its age in whole seconds (RFC 9111, 5.1). Of the variant what is
    known: its accuracy, why it was not a better one; where several voted, how they did; and the name by which
    feedback means the answer. Of an answer that was made up for a rehearsal, that it was.
    """
    queue_us, batch_us, compute_us = reply.queue_us, reply.batch_us, reply.compute_us
    input_us, output_us = reply.input_us, reply.output_us
    answer_us = max(now_us - reply.ready_us, 0) if reply.ready_us else 0
    known_us = queue_us + batch_us + input_us + compute_us + output_us + answer_us
    request_us = max(now_us - began_us - known_us, 0)
    more = ""
    if reply.accuracy is not None:
        more = _ACCURACIES.get(reply.accuracy) or _accuracy_line(reply.accuracy)
    if reply.downgrade:
        more += f"\r\nx-penstock-downgrade: {reply.downgrade}"
    if reply.confidence is not None:
        more += f"\r\nx-penstock-confidence: {reply.confidence:.4g}"
    if reply.votes:
        more += f"\r\nx-penstock-votes: {reply.votes}"
    if reply.query:
        more += f"\r\nx-penstock-query: {reply.query}"
    if reply.rehearsed:
        more += f"\r\n{REHEARSED_FIELD}: true"
    if reply.cache:
        more += f"\r\nx-cache: {reply.cache}"
        if reply.cache == "hit":
            more += f"\r\nage: {reply.age_us // 1_000_000}"
    return (
        f"\r\nserver-timing: request;dur={request_us // 1000}{_FRACTIONS[request_us % 1000]}, "
        f"queue;dur={queue_us // 1000}{_FRACTIONS[queue_us % 1000]}, "
        f"batch;dur={batch_us // 1000}{_FRACTIONS[batch_us % 1000]}, "
        f"input;dur={input_us // 1000}{_FRACTIONS[input_us % 1000]}, "
        f"infer;dur={compute_us // 1000}{_FRACTIONS[compute_us % 1000]}, "
        f"output;dur={output_us // 1000}{_FRACTIONS[output_us % 1000]}, "
        f"answer;dur={answer_us // 1000}{_FRACTIONS[answer_us % 1000]}"
        f"\r\n{DEADLINE_FIELD}: {deadline_ms(due_us)}"
        f"\r\nx-penstock-variant: {reply.variant}\r\nx-penstock-batch-rows: {reply.batch_rows}{more}"
    ).encode()


def _accuracy_line(accuracy: float) -> str:
    line = f"\r\nx-penstock-accuracy: {accuracy:.4g}"
    _ACCURACIES.put(accuracy, line)
    return line


def failure_fields(reply: Reply, due_us: int = 0) -> dict[str, str]:
    """Return the reason of a call that was not completed, when its answer was due (0: it never became a
    call), of its phases those that took any time, and what the tenant's limits leave."""
    fields = {"x-penstock-reason": reply.outcome.reason.value}
    if due_us:
        fields[DEADLINE_FIELD] = deadline_ms(due_us)
    phases = (
        ("queue", reply.queue_us), ("batch", reply.batch_us), ("input", reply.input_us),
        ("infer", reply.compute_us), ("output", reply.output_us),
    )  # fmt: skip
    if known := ", ".join(f"{name};dur={us / 1000:.3f}" for name, us in phases if us):
        fields["server-timing"] = known
    if reply.limits:
        fields |= separate(reply.limits.encode())
    return fields


def retry_ms(reply: Reply) -> int:
    """Return in how many ms from now another try may fare better, rounded up; 0 if the client is not to be
    told."""
    return -(-reply.retry_us // 1000) if ANSWERS[reply.outcome].retry else 0


def separate(lines: Lines) -> dict[str, str]:
    """Return the fields by their names, for servers that take them one by one."""
    fields = {}
    for line in lines.decode("latin-1").split("\r\n")[1:]:
        name, _, fields[name] = line.partition(": ")
    return fields
