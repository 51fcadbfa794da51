"""Why a model has as many replicas as it has, and what would change it, in sentences."""

from collections.abc import Iterator

from router.verbs.explain.body import Explanation
from router.verbs.explain.numbers import joined
from router.verbs.explain.scaled import Expected, ScaledBody

HOUR_S = 3600.0
_MILLION = 1e6
_JUST = 0.995  # from here on two digits say 1.0


def replica_sentences(now: Explanation, before: Explanation | None = None) -> list[str]:
    """Return how many there are, why, what holds them back and what would change it; with an earlier reading,
    also what answers cost since."""
    scaled = now["replicas"]
    if scaled is None:
        follow = "`replicas:` in penstock.yaml would let their number follow the load"
        return ["replicas", f"  one on {_everywhere(now)}, whatever the load; {follow}"]
    return ["replicas", *(f"  {each}" for each in _sentences(scaled, now, before))]


def _everywhere(now: Explanation) -> str:
    """Return text on the slices where the model is to be; it may answer on fewer, or on none."""
    served = [each for each in now["variants"] if each["served"]]
    slices = len({name for each in served for name in each["states"]})
    if not slices:
        return "each of its slices"
    return "its 1 slice" if slices == 1 else f"each of its {slices} slices"


def _sentences(scaled: ScaledBody, now: Explanation, before: Explanation | None) -> Iterator[str]:
    yield _standing(scaled)
    if scaled["why"]:
        yield f"why: {scaled['why']}"
    if scaled["desired"] != scaled["count"] or scaled["held"]:
        held = f": {scaled['held']}" if scaled["held"] else ""
        yield f"held back: {scaled['desired']} wished, {scaled['count']} can be had{held}"
    if scaled["up"]:
        yield f"more: {scaled['up']}"
    if scaled["down"]:
        yield f"fewer: {scaled['down']}"
    if scaled["budget"]:
        yield f"budget: {scaled['budget']}"
    yield _pressure(scaled["pressure"])
    expected = scaled["expected"]
    if expected is None:
        yield "no plan for the next minutes has been made yet"
    else:
        yield _plan(expected)
        if expected["lacking"]:
            yield f"the plan cannot have all: {expected['lacking']}"
    yield from _cost(scaled, now, before)


def _standing(scaled: ScaledBody) -> str:
    """Return how the replicas stand, for example `2 on cpu-1 and cpu-2 (at least 1, at most 4; policy slo): 1
    gets batches, ...`."""
    bounds = f"at least {scaled['least']}, at most {scaled['most']}"
    if scaled["least"] == scaled["most"]:
        bounds = f"{scaled['most']} stated"
    on = f" on {joined(scaled['slices'])}" if scaled["slices"] else ""
    parts = [f"{scaled['ready']} get batches" if scaled["ready"] != 1 else "1 gets batches"]
    if scaled["coming"]:
        parts.append(f"{scaled['coming']} being started or loaded")
    if scaled["standing"]:
        parts.append(f"{scaled['standing']} loaded beside other models, to stand by")
    return f"{scaled['count']}{on} ({bounds}; policy {scaled['policy']}): {', '.join(parts)}"


def _pressure(pressure: float) -> str:
    if pressure >= 1 / _JUST:
        return f"pressure {pressure:.3g}: more comes than what is there answers in time"
    if pressure > _JUST:
        return "pressure 1: what is there is just enough"
    return f"pressure {pressure:.2g}: at 1 what is there would be just enough"


def _plan(expected: Expected) -> str:
    low, high = expected["low"], expected["high"]
    count = f"{high}" if low == high else f"{low}, at most {high},"
    by = f" of {expected['variant']}" if expected["variant"] else ""
    why = f": {expected['why']}" if expected["why"] else ""
    return f"the plan for the next minutes reckons with {count}{by}{why}"


def _cost(scaled: ScaledBody, now: Explanation, before: Explanation | None) -> Iterator[str]:
    """Yield what the slices cost; nothing if slices have no price."""
    if not scaled["held_per_hour"]:
        return
    parts = [f"its slices cost {scaled['cost_per_hour']:.4g} an hour"]
    good, elapsed_s = _good(now, before)
    if good and scaled["cost_per_hour"]:
        each = scaled["cost_per_hour"] * elapsed_s / HOUR_S / good
        parts.append(f"{each * _MILLION:.3g} a million answers in time")
    ceiling = scaled["cost_max_per_hour"]
    most = f", of at most {ceiling:.4g}" if ceiling is not None else ""
    yield f"{', '.join(parts)}; all that are held {scaled['held_per_hour']:.4g}{most}"


def _good(now: Explanation, before: Explanation | None) -> tuple[int, float]:
    """Return (answers in time, seconds that they took) since the earlier reading; (0, 0.0) without a reading
    of this run."""
    if before is None or before["uptime_s"] >= now["uptime_s"]:
        return 0, 0.0
    return now["counters"]["good"] - before["counters"]["good"], now["uptime_s"] - before["uptime_s"]
