"""Why the variant that answers does, and what would change it, in sentences."""

from collections.abc import Iterator, Sequence

from router.verbs.explain.body import Explanation, Promise, RungBody, Variant
from router.verbs.explain.carries import carries
from router.verbs.explain.figures import RungFigures, Stretch, room_us, stretches
from router.verbs.explain.happened import happened
from router.verbs.explain.numbers import accuracy, joined, milliseconds, named, rate
from router.verbs.explain.promised import promised
from router.verbs.explain.prospects import prospects
from router.verbs.explain.selection import selection_sentences
from serving.values.objectives import CHEAPEST, MOST_ACCURATE

_READY = "ready"


def sentences(now: Explanation, promise: Promise, before: Explanation | None = None) -> list[str]:
    """Return all that there is to say of one of its promises; with an earlier reading, also of what happened
    since. A line that begins with a space belongs to the one above that does not."""
    if now["selection"]:
        return [*selection_sentences(now, promise, before)]
    found = stretches(promise["ladders"])
    lines = [promised(now, promise), "", "may answer", f"  {_may(now, promise)}"]
    if refused := [*_may_not(now, promise)]:
        lines += ["do not answer", *(f"  {each}" for each in refused)]
    lines += ["", "now", *(f"  {each}" for each in _now(now, promise, found))]
    lines += [f"  {each}" for each in happened(now, promise, before)]
    if carried := [*carries(promise)]:
        lines += ["", "what a slice carries", *(f"  {each}" for each in carried)]
    if others := [*prospects(now, promise, found)]:
        lines += ["", "what would change it", *(f"  {each}" for each in others)]
    return lines


def _may(now: Explanation, promise: Promise) -> str:
    known = {each["name"]: named(each) for each in now["variants"]}
    may = [known[name] for name in promise["variants"]]
    return ", ".join(may) or "none: no variant that is served is accurate enough"


def _may_not(now: Explanation, promise: Promise) -> Iterator[str]:
    """Yield each variant that may not answer, or not on every slice, and why."""
    for each in now["variants"]:
        if not each["served"]:
            yield f"{named(each)} is not served: penstock.yaml leaves it out"
        elif each["name"] in promise["variants"]:
            yield from _left_out(each, promise)
        elif not promise["chooses"]:
            yield f"{named(each)} answers only where a request pins it"
        elif each["accuracy"] is None:
            floor = accuracy(promise["accuracy_min"])
            yield f"{each['name']}, whose accuracy was not measured, may be below the floor of {floor}"
        else:
            floor = accuracy(promise["accuracy_min"])
            yield f"{named(each)} is below the floor of {floor}"


def _left_out(variant: Variant, promise: Promise) -> Iterator[str]:
    """Yield why a variant is no rung on slices where it may answer, as far as accuracy is concerned."""
    reasons: dict[str, list[str]] = {}
    for each in promise["ladders"]:
        if variant["name"] not in [rung["variant"] for rung in each["rungs"]]:
            state = variant["states"].get(each["slice"], "") + _because(variant, each["slice"])
            reasons.setdefault(_why_no_rung(variant, promise, each["rungs"], state), []).append(each["slice"])
    everywhere = len(promise["ladders"]) > 1
    for why, slices in reasons.items():
        where = f" on {joined(slices)}" if everywhere else ""
        yield f"{named(variant)}{where} {why}"


def _because(variant: Variant, slice_name: str) -> str:
    """Return why it is not there, after a colon."""
    reason = variant.get("reasons", {}).get(slice_name, "")
    return f": {reason}" if reason else ""


def _why_no_rung(variant: Variant, promise: Promise, rungs: Sequence[RungBody], state: str) -> str:
    """Return why a ladder leaves a variant out: it is not there, costs too much, or takes as long as a rung
    that is as accurate. A variant over the cost is slower than all rungs, so the first rung has the better
    answer unless it is less accurate."""
    if state != _READY:
        return f"is not loaded ({state})" if state else "is not loaded"
    own = variant["accuracy"]
    better = [each for each in rungs if own is None or (each["accuracy"] or 0.0) >= own]
    if better:
        return f"takes no less time than {better[-1]['variant']}, which is no less accurate"
    if promise["cost_max"] is not None:
        return f"costs more than {promise['cost_max']:g} a million rows"
    return "is no choice there"


def _now(now: Explanation, promise: Promise, found: Sequence[Stretch]) -> Iterator[str]:
    """Yield which variant carries the load, and why."""
    if not found:
        yield from _nothing(now, promise)
        return
    room = room_us(now, promise)
    load = _load(now, room)
    if len(found) > 1:
        yield load
    for stretch in found:
        if len(found) > 1:
            yield f"on {joined(stretch.slices)}: {_carrying(now, promise, stretch, room)}"
        else:
            yield f"{_carrying(now, promise, stretch, room)}; {load}"
        yield from _unkept(promise, stretch)
    if now["waiting_rows"]:
        yield f"{now['waiting_rows']:,} rows wait"


def _nothing(now: Explanation, promise: Promise) -> Iterator[str]:
    """Yield why no slice can be given a batch."""
    if not promise["variants"]:
        yield "nothing answers: every request is refused"
        return
    yield f"nothing answers: none of {joined(promise['variants'])} can be given a batch on any slice"
    for each in now["variants"]:
        if each["name"] in promise["variants"]:
            for where, state in each["states"].items():
                yield f"{each['name']} on {where} is {state}{_because(each, where)}"


def _carrying(now: Explanation, promise: Promise, stretch: Stretch, room: float) -> str:
    """Return which rung the load leaves time for; what runs a batch is decided then, by what waits."""
    carries = stretch.carries
    name, takes = carries.variant, f"it takes {milliseconds(carries.row_us)} a row"
    if now["rate"]:
        takes += f" in batches of {carries.rows}"
    if carries.cost:
        takes += f", at {carries.cost:.3g} a million rows"
    if stretch.carrying == stretch.preferred:
        idle = not now["rate"] or len(promise["variants"]) == 1
        start = f"{name} answers" if idle else f"there is time for {name}"
        return f"{start}, {_standing(promise, stretch)}: {takes}"
    above = stretch.rows[stretch.carrying - 1]
    start = f"there is time for {name}"
    if now["rate"] * carries.row_us > room / now["load_share"]:
        start = f"{name} answers, the quickest that may, though there is no time for all"
    why = f"{above.variant} would take {milliseconds(above.row_us)} and answers only while little waits"
    return f"{start}: {takes}, {why}"


def _standing(promise: Promise, stretch: Stretch) -> str:
    """Return why the rung answers that does without pressure."""
    if not promise["chooses"]:
        return "whatever the load, as nothing is stated by which to choose"
    if len(promise["variants"]) == 1:
        return "the only one that may"
    if promise["optimize"] == MOST_ACCURATE:
        first = stretch.carries.variant == promise["variants"][0]
        return "the most accurate that may" if first else "the best that is a choice there"
    return "the quickest that may" if promise["optimize"] == CHEAPEST else "the best balance"


def _load(now: Explanation, room: float) -> str:
    if not now["rate"]:
        return "no requests come"
    slices = "1 slice" if now["slices"] == 1 else f"{now['slices']} slices"
    can = f"for each of which {slices} can spend {milliseconds(room / now['rate'])}"
    return f"{rate(now['rate'])} rows/s come, {can}"


def _unkept(promise: Promise, stretch: Stretch) -> Iterator[str]:
    """Yield the promises that rungs cannot keep: a cost that all exceed, a time that a row alone exceeds."""
    slo_us, cost_max = promise["slo_us"], promise["cost_max"]
    if cost_max is not None and stretch.rows[-1].cost > cost_max:
        yield f"all cost more than {cost_max:g} a million rows: the cheapest answers"
    late: list[RungFigures] = [row for row in stretch.rows[stretch.preferred :] if row.one_us > slo_us]
    for row in late:
        yield (
            f"{row.variant} takes {milliseconds(row.one_us)} for one row alone, more than "
            f"{milliseconds(slo_us)}: only what has more time is given to it"
        )
