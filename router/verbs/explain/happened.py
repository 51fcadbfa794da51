"""What became of a model's requests between two readings, in sentences."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from router.observing.reasons import downgrade, ending
from router.verbs.explain.body import Explanation, Promise
from router.verbs.explain.numbers import accuracy
from router.verbs.report.numbers import percent

if TYPE_CHECKING:  # a reader of JSON needs no prometheus_client
    from router.observing.telemetry import Counters


def happened(now: Explanation, promise: Promise, before: Explanation | None) -> Iterator[str]:
    """Yield what happened since the earlier reading, or since the start if there is none or the gateway
    was restarted. Which variants answered concerns this promise; all else concerns all that the model
    promises."""
    was = before["counters"] if before is not None and before["uptime_s"] <= now["uptime_s"] else None
    elapsed_s = now["uptime_s"] - (before["uptime_s"] if was is not None and before is not None else 0.0)
    span = "since the start" if was is None else f"of the last {elapsed_s:.1f} s"
    counters = now["counters"]
    asked = counters["requests"] - (was["requests"] if was else 0)
    if not asked:
        yield f"{span}: no requests"
        return
    tier = promise["tier"]
    own = _less(counters["answers"].get(tier, {}), was["answers"].get(tier, {}) if was else {})
    completed = counters["completed"] - (was["completed"] if was else 0)
    parts = [_answered(own)]
    if completed != sum(own.values()):
        parts.append(f"{completed:,} with those of all tiers")
    rows = counters["measured_rows"] - (was["measured_rows"] if was else 0)
    if rows:
        total = counters["accuracy_rows"] - (was["accuracy_rows"] if was else 0.0)
        parts.append(f"mean accuracy {accuracy(total / rows)}")
    yield f"{span}: {', '.join(parts)}"
    scope = "" if completed == sum(own.values()) else ", of all tiers"
    yield from _overloaded(counters, was, (completed, asked), scope)


def _answered(answers: Mapping[str, int]) -> str:
    total = sum(answers.values())
    shares = [f"{name} {percent(count / total)}" for name, count in answers.items()]
    return f"{total:,} answered ({', '.join(shares)})" if total else "none answered"


def _overloaded(
    counters: "Counters", was: "Counters | None", count: tuple[int, int], scope: str
) -> Iterator[str]:
    """Yield lines on answers of less good variants and on requests without an answer.

    `count`: the completed requests, and all requests.
    """
    completed, asked = count
    downgrades = _less(counters["downgrades"], was["downgrades"] if was else {})
    if downgrades:
        reasons = (f"{percent(each / completed)} {downgrade(why)}" for why, each in downgrades.items())
        yield f"answered by less good variants{scope}: {', '.join(reasons)}"
    none = {
        **_less(counters["rejected"], was["rejected"] if was else {}),
        **_less(counters["shed"], was["shed"] if was else {}),
        **_less(counters["failed"], was["failed"] if was else {}),
    }
    if none:
        yield f"without an answer: {percent(sum(none.values()) / asked)} of the requests"
        for why, each in none.items():
            yield f"  {percent(each / asked)} {ending(why)} ({why})"


def _less(counts: Mapping[str, int], was: Mapping[str, int]) -> dict[str, int]:
    """Return how much each count grew, the largest growth first; leave out counts that did not grow."""
    added = {name: count - was.get(name, 0) for name, count in counts.items()}
    return {name: added[name] for name in sorted(added, key=lambda each: -added[each]) if added[name]}
