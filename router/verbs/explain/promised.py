"""What is promised, in words."""

from router.verbs.explain.body import Explanation, Promise
from router.verbs.explain.numbers import accuracy, milliseconds
from serving.values.objectives import BALANCED, CHEAPEST


def promised(now: Explanation, promise: Promise) -> str:
    """Return the promise in one line."""
    slo = f"{promise['percentile']:g} % of requests within {milliseconds(promise['slo_us'])}"
    if promise["slo_rows"]:
        count = promise["slo_rows"]
        slo += f" for each {count:,} rows" if count > 1 else " for each row"
    tier = f", tier {promise['tier']}" if promise["tier"] else ""
    parts = [f"{now['model']}{tier}: {slo}", "" if now["selection"] else _aim(promise)]
    if promise["accuracy_min"]:
        parts.append(f"at least {accuracy(promise['accuracy_min'])} accurate")
    if promise["cost_max"] is not None:
        parts.append(f"for at most {promise['cost_max']:g} a million rows")
    return ", ".join(filter(None, parts))


def _aim(promise: Promise) -> str:
    if not promise["chooses"]:
        return ""
    aims = {CHEAPEST: "the cheapest answer", BALANCED: "answers that balance accuracy and time"}
    return aims.get(promise["optimize"], "the most accurate answer that the load allows")
