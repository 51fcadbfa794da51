"""The exposition as OpenMetrics 1.0, which has exemplars: the same samples, other headings.

A counter's family has its name without `_total`, and what is a counter without that ending has no known type
(https://prometheus.io/docs/specs/om/open_metrics_spec/).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ACCEPTED: Final = b"application/openmetrics-text"
_COUNTER: Final = "_total"
_HELP, _TYPE = "# HELP ", "# TYPE "
_BUCKET: Final = "_bucket{"


def opened(blocks: Iterable[str], exemplars: Mapping[str, str]) -> Iterator[str]:
    """Yield the blocks of text as OpenMetrics, and its end. `exemplars`: what stands behind a sample, by its
    series."""
    for block in blocks:
        yield "".join(_line(line, exemplars) for line in block.splitlines(keepends=True))
    yield "# EOF\n"


def _line(line: str, exemplars: Mapping[str, str]) -> str:
    if line.startswith(_TYPE):
        name, _, kind = line[len(_TYPE) : -1].partition(" ")
        if (kind == "counter" and not name.endswith(_COUNTER)) or kind == "untyped":
            kind = "unknown"
        return f"{_TYPE}{name.removesuffix(_COUNTER)} {kind}\n"
    if line.startswith(_HELP):
        name, _, text = line[len(_HELP) : -1].partition(" ")
        escaped = text.replace('"', r"\"")
        return f"{_HELP}{name.removesuffix(_COUNTER)} {escaped}\n"
    if exemplars and _BUCKET in line:
        series = line.rpartition(" ")[0]
        return f"{line[:-1]}{exemplars.get(series, '')}\n"
    return line
