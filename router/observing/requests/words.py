"""A request in sentences: what became of it, why, and what would have had it answered in time."""

from collections.abc import Iterator
from datetime import UTC, datetime

from router.observing.reasons import LATE, downgrade, ending
from router.observing.requests.body import BatchBody, MateBody, RequestBody
from serving.values.vocabulary import Reason

NAMED = 8
"""Mates of a batch that are named."""
SHOWN_MS = 0.05
"""Shorter phases are not told."""
CROWDED = (
    Reason.OVERLOAD, Reason.QUEUE_FULL, Reason.DEADLINE_UNREACHABLE, Reason.DEADLINE_UNMET,
    Reason.DEADLINE_QUEUED, Reason.DEADLINE_RUNNING,
)  # fmt: skip
"""Endings of requests that more slices would have answered."""
UNLIKE = 1.25
"""A batch that took so many times its prediction was disturbed, or its profile is old."""


def request_lines(found: RequestBody) -> list[str]:
    """Return the lines on a request."""
    at = datetime.fromtimestamp(found["arrived_unix_s"], UTC).strftime("%H:%M:%S.%f")[:-3]
    name = _named(found)
    rows = _many(found["rows"], "row")
    size = f" of size {found['size']}" if found["size"] else ""
    by = f", tenant {found['tenant']}" + (f", tier {found['tier']}" if found["tier"] else "")
    lines = [
        f"{name}: {found['model']}, {rows}{size}{by}; it came at {at} UTC",
        f"  {ending(found['ending'])}, after {found['latency_ms']:.1f} ms, due in {found['due_ms']:.1f} ms",
    ]
    if found["detail"]:
        lines.append(f"  {_plain(found['detail'])}")
    lines += _section("time", _phases(found))
    lines += _section("batch", _batch(found))
    return lines + _section("what would have helped", helps(found))


def table(requests: list[RequestBody]) -> list[str]:
    """Return a line for each request, newest first."""
    if not requests:
        return ["no request that is kept was late, refused or failed"]
    rows = [
        (
            datetime.fromtimestamp(each["arrived_unix_s"], UTC).strftime("%H:%M:%S"),
            _named(each),
            each["model"],
            f"{each['latency_ms']:.0f} of {each['due_ms']:.0f} ms",
            ending(each["ending"]),
        )
        for each in requests
    ]
    wide = [max(len(row[at]) for row in rows) for at in range(4)]
    return ["  ".join([*(row[at].ljust(wide[at]) for at in range(4)), row[4]]) for row in rows]


def helps(found: RequestBody) -> list[str]:
    """Return what would have had the request answered in time; nothing for one that was."""
    if found["in_time"]:
        return []
    return list(_late(found)) if found["ending"] == LATE else list(_refused(found))


def _late(found: RequestBody) -> Iterator[str]:
    over = found["latency_ms"] - found["due_ms"]
    batch = found["batch"]
    if batch and batch["predicted_ms"] and batch["elapsed_ms"] > UNLIKE * batch["predicted_ms"]:
        times = batch["elapsed_ms"] / batch["predicted_ms"]
        yield (
            f"a batch that takes what it usually does: this one took {times:.1f} times its prediction, "
            "so something disturbed its slice"
        )
    if found["queue_ms"] > over:
        yield f"{over:.1f} ms less in the queue: more slices, or a cheaper variant that may answer"
    yield f"an SLO or tier of {found['latency_ms']:.0f} ms or more"


def _refused(found: RequestBody) -> Iterator[str]:
    if found["ending"] in (Reason.RATE_LIMITED, Reason.QUOTA):
        yield "fewer requests of this tenant, or a larger `rate:` or `weight:` of it in penstock.yaml"
    elif found["ending"] in (Reason.MODEL_ERROR, Reason.WORKER_LOST):
        yield "the gateway's log has the model's own lines"
    elif found["ending"] in CROWDED:
        latest = found["latest_batch"] or found["batch"]
        needed = found["queue_ms"] + (latest["elapsed_ms"] if latest else 0)
        if latest and needed > found["due_ms"]:
            yield (
                f"an SLO or tier of {needed:.0f} ms or more: it had waited {found['queue_ms']:.0f} ms, "
                f"and a batch of {_many(latest['rows'], 'row')} took {latest['elapsed_ms']:.0f} ms then"
            )
        yield f"more slices, or a cheaper variant: `penstock explain {found['model']}` says what they carry"


def _phases(found: RequestBody) -> list[str]:
    phases = (
        ("in the queue", "queue_ms"), ("until the batch was full", "fill_ms"), ("to the worker", "input_ms"),
        ("computing", "compute_ms"), ("back", "output_ms"),
    )  # fmt: skip
    took = [(found[key], words) for words, key in phases]  # type: ignore[literal-required]
    told = [f"{each_ms:.1f} ms {words}" for each_ms, words in took if each_ms >= SHOWN_MS]
    lines = [", ".join(told)] if told else []
    kept = {"hit": "it had a kept answer", "join": "it waited for an equal request's answer"}
    return [*lines, kept[found["cache"]]] if found["cache"] in kept else lines


def _batch(found: RequestBody) -> Iterator[str]:
    batch = found["batch"]
    if batch is None:
        return
    why = f", {downgrade(found['downgrade'])}" if found["downgrade"] else ""
    yield f"{batch['variant']} on {batch['slice']}{why}; {', '.join(found['may_answer'])} could answer"
    yield (
        f"{_many(batch['rows'], 'row')} of {_many(batch['requests'], 'request')}; "
        f"it took {batch['elapsed_ms']:.1f} ms, "
        f"{batch['predicted_ms']:.1f} ms were predicted"
    )
    if others := _mates(found, batch):
        yield f"with {others}"


def _mates(found: RequestBody, batch: BatchBody) -> str:
    others = [_named(each) for each in batch["mates"] if each["number"] != found["number"]]
    more = batch["requests"] - 1 - len(others[:NAMED])
    return ", ".join([*others[:NAMED], *([f"{more} more"] * (more > 0))])


def _named(each: RequestBody | MateBody) -> str:
    return _plain(each["name"]) or str(each["number"])


def _plain(text: str) -> str:
    """Return the text without what a terminal would obey: clients choose names."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _section(title: str, lines: Iterator[str] | list[str]) -> list[str]:
    found = [f"  {each}" for each in lines]
    return ["", title, *found] if found else []
