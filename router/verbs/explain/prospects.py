"""What would make another variant answer, in figures."""

from collections.abc import Iterator, Sequence

from router.verbs.explain.body import Explanation, Promise
from router.verbs.explain.figures import Stretch, capacity, carried, room_us, slices_more
from router.verbs.explain.numbers import about, accuracy, joined
from serving.values.objectives import MOST_ACCURATE


def prospects(now: Explanation, promise: Promise, found: Sequence[Stretch]) -> Iterator[str]:
    """Yield the rates below and above which the answering variant changes, on which slices, and where
    requests are turned away."""
    if not found:
        return
    room = room_us(now, promise)
    for stretch in found:
        where = f"on {joined(stretch.slices)}: " if len(found) > 1 else ""
        for line in _better(now, stretch, room):
            yield where + line
        for line in _worse(now, stretch, room):
            yield where + line
        if stretch.preferred and promise["chooses"]:
            best = stretch.rows[0].variant
            yield f"{where}with optimize: {MOST_ACCURATE}, {best} would answer while the load allows"
    most = capacity(now, promise, room)
    lower = _no_lower(now, promise)
    if now["rate"] > most:
        yield f"more come than about {about(most)} rows/s, which is all that can be answered{lower}"
    else:
        yield f"above about {about(most)} rows/s requests are turned away{lower}"


def _better(now: Explanation, stretch: Stretch, room: float) -> Iterator[str]:
    for row in reversed(stretch.rows[stretch.preferred : stretch.carrying]):
        more = slices_more(row.row_us, now, room)
        slices = "1 more slice" if more == 1 else f"{more} more slices"
        below = about(carried(row.row_us, room))
        yield f"below about {below} rows/s, or with {slices}, there is time for {row.variant}"


def _worse(now: Explanation, stretch: Stretch, room: float) -> Iterator[str]:
    for row, lower in zip(
        stretch.rows[stretch.carrying :], stretch.rows[stretch.carrying + 1 :], strict=False
    ):
        above = carried(row.row_us, room)
        if above > now["rate"]:
            yield f"above about {about(above)} rows/s there is only time for {lower.variant}"


def _no_lower(now: Explanation, promise: Promise) -> str:
    """Return why nothing less accurate answers then."""
    if not promise["chooses"]:
        if sum(each["served"] for each in now["variants"]) < 2:
            return ""  # there are no others
        return "; with accuracy_min, tolerance or optimize stated, others could answer"
    floor = promise["accuracy_min"]
    known = [(each["name"], each["accuracy"]) for each in now["variants"] if each["served"]]
    below = [name for name, share in known if share is not None and name not in promise["variants"]]
    if not floor or not below:
        return ""
    are = "is" if len(below) == 1 else "are"
    return f", as {joined(below)} {are} below the floor of {accuracy(floor)}"
