"""The tables that can be imported, told apart by their columns, as measured batches."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from router.settings.values.problems import one_of, unknown_name
from router.verbs.profiling.asked import MeasureRequestError
from router.verbs.profiling.importing.table import Line, Table
from serving.policy.placement.terms.geometry import known_geometry
from serving.values.slice_specs import PROCESS_COUNT_MAX, Share

OWN = ("kind", "share", "batch", "p50_ms", "p99_ms")
OWN_MORE = ("model", "variant", "procs", "memory_mb", "load_s")
PARVA = ("mig instance", "batch size", "workload number", "throughput", "latency")
PERF_ANALYZER = ("inferences/second", "p99 latency")
MODEL_ANALYZER = ("model", "batch", "concurrency", "model config path")
_COMPUTE = ("server compute input", "server compute infer", "server compute output")
_AGREES = 0.05
"""By how much a latency and a throughput of one batch may differ, beside a rounded millisecond."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the command line says for a table that does not: "" or 0 if it does not say either."""

    model: str = ""
    variant: str = ""
    kind: str = ""
    share: str = ""
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """A line as a measured batch."""

    line: Line
    model: str
    variant: str
    kind: str
    share: Share
    rows: int
    p50_us: float
    p99_us: float
    memory_bytes: int = 0
    load_us: int = 0


Reader = Callable[[Table, Told], Iterator[Batch]]


def read_batches(table: Table, told: Told) -> list[Batch]:
    """Return the batches of a table. MeasureRequestError says which line is wrong, or that it is no table."""
    forms: tuple[tuple[tuple[str, ...], Reader], ...] = (
        (PARVA, _parva),
        (MODEL_ANALYZER, _model_analyzer),
        (PERF_ANALYZER, _perf_analyzer),
        (("batch", "p50_ms"), _own),
    )
    for columns, read in forms:
        if table.has(*columns):
            return [*read(table, told)]
    raise MeasureRequestError(
        f"{table.file}:1: an unknown table; got the columns {', '.join(table.columns[:8])}; expected "
        f"{', '.join(OWN)}, or a CSV file of perf_analyzer or Model Analyzer"
    )


def _own(table: Table, told: Told) -> Iterator[Batch]:
    """Yield the batches of a table with our own columns. The command line states any column that is
    missing."""
    known = (*OWN, *OWN_MORE)
    for column in table.columns:
        if column not in known:
            raise MeasureRequestError(f"{table.file}:1: {unknown_name('unknown column', column, known)}")
    for line in table.lines:
        p50_us = line.number("p50_ms") * 1e3
        p99_us = line.number("p99_ms", default=p50_us / 1e3) * 1e3
        yield _batch(
            line, told, line.count("batch"), (p50_us, p99_us), line.count("procs", default=1),
            memory_bytes=round(line.number("memory_mb", default=0) * (1 << 20)),
            load_us=round(line.number("load_s", default=0) * 1e6),
        )  # fmt: skip


def _parva(table: Table, told: Told) -> Iterator[Batch]:
    """Yield the batches of ParvaGPU's tables. `mig instance` is a number of compute slices; a throughput of 0
    means out of memory.

    Latencies are rounded to milliseconds, and throughputs are of one process, so throughputs tell the time.
    """
    for line in table.lines:
        throughput, rows = line.number("throughput"), line.count("batch size")
        if not throughput:
            continue
        took_us = rows / throughput * 1e6
        said_us = line.number("latency") * 1e6
        if abs(took_us - said_us) > 1000 + _AGREES * said_us:
            took_us = said_us
        size = line.count("mig instance")
        kind = told.kind or line.text("kind", default="")
        geometry = known_geometry(kind) or ()
        name = next((each.name for each in geometry if each.name.startswith(f"{size}g.")), "")
        if not name:
            raise line.fault(f"no MIG instance of {size} slices is known of {kind or 'no kind'}; say --kind")
        share = f"mig:{name}"
        yield _batch(line, told, rows, (took_us, took_us), line.count("workload number"), share=share)


def _perf_analyzer(table: Table, told: Told) -> Iterator[Batch]:
    """Yield the batches of a table in microseconds. For each batch size, take the lines of the least load, as
    they wait least."""
    load = next((each for each in ("concurrency", "request rate") if each in table.columns), "")
    for line in _least_loaded(table, load, ("batch size", "batch")):
        p50_us = line.number("p50 latency", "avg latency")
        ratio = line.number("p99 latency") / p50_us if p50_us else 1.0
        if table.has(*_COMPUTE):
            p50_us = sum(line.number(each) for each in _COMPUTE)
        yield _batch(
            line, told, _rows(line, told, "batch size", "batch"), (p50_us, p50_us * max(ratio, 1)), 1
        )


def _model_analyzer(table: Table, told: Told) -> Iterator[Batch]:
    """Yield the batches of the table of inferences. For each batch size, take the lines of the least load, as
    they wait least."""
    latencies = {
        found[1]: (column, 1e3 if found[2] == "ms" else 1.0)
        for column in table.columns
        if (found := re.fullmatch(r"(p50|p99|avg) latency \((ms|us)\)", column))
    }
    if "p99" not in latencies:
        raise MeasureRequestError(
            f"{table.file}:1: no column p99 Latency (ms); expected Model Analyzer's table of inferences"
        )
    for line in _least_loaded(table, "concurrency", ("batch",)):
        rows, load = line.count("batch"), line.count("concurrency")
        p99_us = line.number(latencies["p99"][0]) * latencies["p99"][1]
        mean = latencies.get("p50") or latencies.get("avg")
        if mean is not None:
            p50_us = line.number(mean[0]) * mean[1]
        else:  # Little's law
            throughput = line.number("throughput (infer/sec)")
            p50_us = rows * load / throughput * 1e6 if throughput else p99_us
        group = re.match(r"(\d+)[:/]", line.values.get("instance group", ""))
        yield _batch(line, told, rows, (p50_us, p99_us), int(group[1]) if group else 1)


def _least_loaded(table: Table, load: str, batch: tuple[str, ...]) -> list[Line]:
    least: dict[tuple[str, ...], Line] = {}
    others = ("model", "model config path", "instance group")
    for line in table.lines:
        key = tuple(line.values.get(each, "") for each in (*batch, *others))
        if key not in least or (load and line.number(load) < least[key].number(load)):
            least[key] = line
    return [*least.values()]


def _rows(line: Line, told: Told, *columns: str) -> int:
    if any(line.values.get(each) for each in columns):
        return line.count(*columns)
    if not told.batch:
        raise line.fault("the table does not say how many rows a batch has; expected --batches ROWS")
    return told.batch


def _batch(
    line: Line, told: Told, rows: int, times_us: tuple[float, float], processes: int, **more: object
) -> Batch:
    """Return the batch of a line; several processes of a MIG instance are a share of their own."""
    text = str(more.pop("share", "")) or line.text("share", default=told.share)
    if not text:
        raise line.fault("the table does not say on which share; expected --shares SHARE")
    try:
        share = Share.parse(text if ":" in text else f"{text}:1")
    except ValueError as error:
        raise line.fault(f"{error}; expected {one_of(('whole', 'mps:30', 'mig:2g.35gb'))}") from None
    if processes > 1:
        if share.kind != "mig" or processes > PROCESS_COUNT_MAX:
            expected = f"1, or up to {PROCESS_COUNT_MAX} in a mig: share"
            raise line.fault(f"{processes} processes at once in {share}; expected {expected}")
        share = share.with_processes(processes)
    p50_us, p99_us = times_us
    if not 0 < p50_us <= p99_us:
        raise line.fault(f"p50 is {p50_us:g} us and p99 {p99_us:g} us; expected 0 < p50 <= p99")
    return Batch(
        line,
        told.model or line.text("model", default=""),
        told.variant or line.text("variant", default=""),
        told.kind or line.text("kind", default=""),
        share,
        rows,
        p50_us,
        p99_us,
        **more,  # type: ignore[arg-type]  # memory_bytes and load_us
    )
