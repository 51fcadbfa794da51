"""At which rates another variant would carry a model's load: the ladder's own sums, turned round.

A rung carries the load while a row of it takes no more of the slices' time than the rate leaves for one. So
a rung that takes `row_us` does up to `room_us / row_us` rows a second, in the `room_us` that are planned with
for this model in a second. Rows are taken to cost what they do in the batches of now: at other rates these
are larger or smaller, and the figures are rough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from router.verbs.explain.body import Explanation, LadderOfSlice, Promise

SECOND_US = 1_000_000
_SAME = 1e-6  # as shares: sums of floats that are meant to be equal


@dataclass(frozen=True, slots=True)
class RungFigures:
    """Of a rung, over the slices of a stretch: the variant, and the most that a row of it takes there."""

    variant: str
    accuracy: float | None
    row_us: float
    rows: int
    one_us: float
    cost: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Slices with equal ladders; `rows`: their rungs, the most accurate first."""

    slices: tuple[str, ...]
    rows: tuple[RungFigures, ...]
    preferred: int
    carrying: int

    @property
    def carries(self) -> RungFigures:
        """The rung that carries the load."""
        return self.rows[self.carrying]


def stretches(ladders: Sequence[LadderOfSlice]) -> list[Stretch]:
    """Return the ladders that have any rung, those that stand alike together, in the order of their
    slices."""
    alike: dict[tuple[tuple[str, ...], int, int], list[LadderOfSlice]] = {}
    for each in ladders:
        if each["rungs"]:
            names = tuple(rung["variant"] for rung in each["rungs"])
            alike.setdefault((names, each["preferred"], each["carrying"]), []).append(each)
    return [
        Stretch(tuple(each["slice"] for each in found), _rows(found), preferred, carrying)
        for (_, preferred, carrying), found in alike.items()
    ]


def _rows(ladders: Sequence[LadderOfSlice]) -> tuple[RungFigures, ...]:
    found = []
    for rungs in zip(*(each["rungs"] for each in ladders), strict=True):
        slowest = max(rungs, key=lambda rung: rung["row_us"])
        one_us, cost = (max(rung[what] for rung in rungs) for what in ("one_us", "cost"))
        found.append(
            RungFigures(
                slowest["variant"], slowest["accuracy"], slowest["row_us"], slowest["rows"], one_us, cost
            )
        )
    return tuple(found)


def room_us(now: Explanation, promise: Promise) -> float:
    """Return the part of the slices' time in a second (us) that is planned for this promise. It is all that
    may be planned, unless others that share the slices leave it less. What the ladders do is evidence: there
    is enough for the rungs that carry the load, and too little for the rungs above."""
    room = now["load_share"] * now["slices"] * SECOND_US
    ladders = [each for each in promise["ladders"] if each["rungs"]]
    afford_us = None if promise["tier"] else now["afford_us"]  # it is for requests without a tier
    carried_us = [each["rungs"][each["carrying"]]["row_us"] for each in ladders]
    if afford_us is not None and any(afford_us > row_us * (1 + _SAME) for row_us in carried_us):
        room = min(room, now["rate"] * afford_us)  # no more is but what the lowest rung takes, or what fits
    for each in ladders:
        rungs, carrying = each["rungs"], each["carrying"]
        if carrying > each["preferred"]:
            room = min(room, now["rate"] * rungs[carrying - 1]["row_us"])
        if carrying < len(rungs) - 1:
            room = max(room, now["rate"] * rungs[carrying]["row_us"])
    return room


def carried(row_us: float, room: float) -> float:
    """Return the rows a second up to which a rung carries the load."""
    return room / row_us


def slices_more(row_us: float, now: Explanation, room: float) -> int:
    """Return how many slices more it takes for a rung to carry the load of now."""
    missing_us = now["rate"] * row_us - room
    return max(1, ceil(missing_us / (now["load_share"] * SECOND_US) - _SAME))


def capacity(now: Explanation, promise: Promise, room: float) -> float:
    """Return the rows a second that the lowest rungs of all slices carry together, at today's batch times,
    using all their time.

    A rung that fits no two batches into its SLO counts with its present batches.
    """
    free = room / (now["load_share"] * now["slices"] * SECOND_US) if now["slices"] else 1.0
    lowest = [each["rungs"][-1] for each in promise["ladders"] if each["rungs"]]
    today = [(each["capacity_today"], each["row_us"]) for each in lowest]
    return free * sum(carries["rows_per_s"] if carries else SECOND_US / row_us for carries, row_us in today)
