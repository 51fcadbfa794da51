"""Profiled capacity in words, the same for every verb that names it."""

from router.verbs.report import numbers

TERM = "profiled capacity"
MEANING = (
    "rows a second of a slice in the batch that carries most; two such batches, one after the other, fit "
    "into the promised latency; by typical latencies, with the model alone on the slice"
)


def rows_per_s(rate: float) -> str:
    """Return its figure, for example `1,781`."""
    return numbers.rate(rate)


def capacity(rate: float, rows: int) -> str:
    """Return the capacity, for example `1,781 rows/s in batches of 18`."""
    return f"{rows_per_s(rate)} rows/s in batches of {rows:,}"
