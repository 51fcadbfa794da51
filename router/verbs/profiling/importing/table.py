"""A CSV file with its lines: what a reader takes a value from, and says where a bad one stands."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from pathlib import Path

from router.settings.values.problems import shown
from router.verbs.profiling.asked import MeasureRequestError

FILE_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: its values by column, in lower case. `place` is FILE:LINE."""

    place: str
    values: dict[str, str]

    def fault(self, what: str) -> MeasureRequestError:
        """Return the error that names this line."""
        return MeasureRequestError(f"{self.place}: {what}")

    def text(self, *columns: str, default: str | None = None) -> str:
        """Return the first of these columns that is not empty, else `default`; raise if that is None."""
        found = next((self.values[each] for each in columns if self.values.get(each)), default)
        if found is None:
            raise self.fault(f"{columns[0]} is empty; expected a value")
        return found

    def number(self, *columns: str, default: float | None = None) -> float:
        """Return the number of the first of these columns that is not empty, at least 0."""
        text = self.text(*columns, default=None if default is None else str(default))
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not isfinite(value) or value < 0:
            raise self.fault(f"{columns[0]} is no number; got {shown(text)}, expected 0 or more")
        return value

    def count(self, *columns: str, default: int | None = None) -> int:
        """Return the whole number of these columns, at least 1."""
        value = self.number(*columns, default=default)
        if value < 1 or value % 1:
            raise self.fault(f"{columns[0]} is no count; got {value:g}, expected a whole number from 1 on")
        return int(value)


@dataclass(frozen=True, slots=True)
class Table:
    """A file's columns, in lower case, and its lines."""

    file: Path
    columns: tuple[str, ...]
    lines: Sequence[Line]

    def has(self, *columns: str) -> bool:
        """Return whether all these columns are there."""
        return set(columns) <= {*self.columns}


def read_table(file: Path) -> Table:
    """Return the table of a CSV file. OSError, or MeasureRequestError that says what is wrong with it."""
    content = file.read_bytes()
    if len(content) > FILE_BYTES_MAX:
        raise MeasureRequestError(f"{file}: over {FILE_BYTES_MAX >> 20} MB; expected a table of profiles")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeasureRequestError(f"{file}: no text ({error.reason}); expected a CSV file") from None
    reader = csv.reader(StringIO(text))
    try:
        columns = tuple(each.strip().lower() for each in next(reader, []))
        lines = [*_lines(file, columns, reader)]
    except csv.Error as error:
        raise MeasureRequestError(f"{file}:{reader.line_num}: no CSV: {error}") from None
    if len({*columns}) < len(columns) or not all(columns):
        raise MeasureRequestError(f"{file}:1: a column has no name, or a name is there twice")
    if not lines:
        raise MeasureRequestError(f"{file}: no lines below the first; expected one for each batch")
    return Table(file, columns, lines)


def _lines(file: Path, columns: Sequence[str], rows: Iterator[list[str]]) -> Iterator[Line]:
    for number, row in enumerate(rows, start=2):
        values = [each.strip() for each in row]
        if not any(values):
            continue
        if len(values) != len(columns):
            what = f"{len(values)} values; expected {len(columns)}, one for each column"
            raise MeasureRequestError(f"{file}:{number}: {what}")
        yield Line(f"{file}:{number}", dict(zip(columns, values, strict=True)))
