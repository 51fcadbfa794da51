"""What a slice carries, in words: as profiled, and at what batches take today."""

from collections.abc import Iterator

from router.verbs.explain.body import Carries, Promise
from router.verbs.explain.numbers import joined, milliseconds
from router.verbs.report.capacity import TERM, capacity, rows_per_s


def carries(promise: Promise) -> Iterator[str]:
    """Yield, for each variant that a slice may run, its profiled capacity and what that supposes. If batches
    take something else by now, also yield the capacity with that. Slices that carry the same share a line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for ladder in promise["ladders"]:
        for rung in ladder["rungs"]:
            told = _told(rung["profiled_capacity"], rung["capacity_today"])
            alike.setdefault((rung["variant"], told), []).append(ladder["slice"])
    for (variant, told), slices in alike.items():
        where = f" on {joined(slices)}" if len(promise["ladders"]) > 1 else ""
        yield f"{variant}{where}: {told}"
    if alike:
        half = milliseconds(promise["slo_us"] / 2)
        yield (
            f"{TERM}: the batch that carries most, of those that take at most {half}, half the SLO, by "
            "typical latencies (medians), with the model alone on the slice"
        )


def _told(profiled: Carries | None, today: Carries | None) -> str:
    first = f"{TERM} {_carried(profiled)}"
    if profiled is None or today is None:
        return first if today is profiled else f"{first}; at what batches take today {_carried(today)}"
    same = rows_per_s(profiled["rows_per_s"]) == rows_per_s(today["rows_per_s"])
    return f"{first}; at what batches take today {'the same' if same else _carried(today)}"


def _carried(found: Carries | None) -> str:
    return (
        "none: one row alone takes longer"
        if found is None
        else capacity(found["rows_per_s"], found["batch_rows"])
    )
