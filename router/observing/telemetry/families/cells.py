"""Metrics of a gateway among others."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from router.observing.telemetry.counting.counts import escape
from router.observing.telemetry.counting.heading import head


class CellsPresent(NamedTuple):
    """`there`: whether each of the other cells can be called; `passed`: calls that they answered, by cell and
    outcome; `version`: of the map in force; `meets`: whether this cell meets the others."""

    there: Mapping[str, bool]
    passed: Mapping[tuple[str, str], int]
    version: int
    meets: bool


def cell_families(present: CellsPresent) -> Iterator[str]:
    """Yield the metrics of cells."""
    name = "penstock_cell_up"
    yield head(name, "gauge", "1 where this gateway can call the other cell, 0 where it cannot.")
    yield "".join(f'{name}{{cell="{escape(each)}"}} {up:d}\n' for each, up in present.there.items())
    name = "penstock_cell_requests_total"
    yield head(name, "counter", "Requests that this gateway passed on to the cell, by their outcome.")
    for (cell, outcome), count in present.passed.items():
        yield f'{name}{{cell="{escape(cell)}",outcome="{outcome}"}} {count}\n'
    name = "penstock_cell_map_version"
    yield head(name, "gauge", "The version of the map of models and cells that is in force here.")
    yield f"{name} {present.version}\n"
    name = "penstock_cell_meets"
    yield head(name, "gauge", "1 while this gateway meets the other cells at Redis, 0 while it does not.")
    yield f"{name} {present.meets:d}\n"
