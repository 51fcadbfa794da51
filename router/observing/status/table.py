"""A status as a live table.

The gateway only counts; rates and percentiles are differences of two readings, taken here.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from router.observing.cache_status import CacheStatus, cache_lines
from router.observing.cells.table import cells_table, fault_line
from router.observing.isolation import isolation_lines
from router.observing.rollout_status import rollout_sentence
from router.observing.scaled_status import scaled_lines
from router.observing.sequence_status import sequence_lines
from router.observing.status.attention import promise_notices, shift_sentences
from router.observing.status.devices import gpus_table
from router.observing.status.document import (
    EdgeStatus,
    ModelStatus,
    MoveStatus,
    ProposalStatus,
    SliceStatus,
    Status,
)
from router.observing.status.edge_lines import rate_lines, tls_lines
from router.observing.status.nodes import nodes_table

if TYPE_CHECKING:  # a reader of JSON needs no prometheus_client
    from router.observing.telemetry import Counters

ENDINGS_MAX: Final = 8
"""Models of which it is shown how requests ended: all of it is to fit a screen."""
DOUBTFUL: Final = " profiles that batches do not bear out, and what those take over them:"
PROFILES_MAX: Final = 8
"""Replicas of which it is shown that their profile is wrong."""
WAITING_MAX: Final = 4
"""Of what a move waits for, as many are shown."""
ANSWERING_MAX: Final = 2
"""Of the variants that answered a model's requests, as many are shown."""
PIPE_WIDTH: Final = 1000  # where there is no terminal to ask: wide enough to cut nothing

_COUNTED: Final = ("queued", "req/s", "rows/s", "in time %", "burn 1h")
_ACCURATE: Final = ("accuracy", "down %")  # of the answers; and which were of a less good variant
_LEFT_ALIGNED: Final = ("model", "state", "variant", "replicas")
_SPARED: Final = ("batch", "rows/s", "down %", "accuracy", "burn 1h", "variant", "p50 ms", "replicas")
"""Columns that a narrow terminal is spared, in this order, until whole names fit: `--json` has them all."""
_GAPS: Final = (2, 1, 0)  # blanks behind a column, beside the one that the table's box takes
_one_line = partial(Text, no_wrap=True, overflow="ellipsis")  # cut where the terminal ends


def percentile_us(bounds_us: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """Return the value below which that share (0..1) of a histogram lies, linear inside a bucket.

    `counts` has one more entry than `bounds_us`, for what is above all bounds: such a percentile is
    given as the last bound. None where nothing was counted.
    """
    rank = share * sum(counts)
    if not rank:
        return None
    below, lower = 0, 0
    for bound, here in zip(bounds_us, counts, strict=False):
        if here and below + here >= rank:
            return lower + (bound - lower) * (rank - below) / here
        below += here
        lower = bound
    return float(lower)


def render(previous: Status | None, current: Status, elapsed_s: float, width: int = PIPE_WIDTH) -> Group:
    """Return the tables of what happened in the `elapsed_s` between two readings (without a previous one,
    or where the gateway was restarted in between: since its start). `width`: of the terminal."""
    cached_before: dict[str, CacheStatus] = {}
    if previous is None or previous["uptime_s"] > current["uptime_s"]:
        before, elapsed_s, span = {}, current["uptime_s"], "since the start"
    else:
        before = {model["name"]: model["counters"] for model in previous["models"]}
        cached_before = _cached(previous)
        span = f"of the last {elapsed_s:.1f} s"
    head = Text.assemble(
        ("ready", "bold green") if current["ready"] else ("not ready", "bold red"),
        f", up {_duration(current['uptime_s'])}, rates {span}",
    )
    missing = [*_missing(current["models"])]
    moves = [*_rehearsal(current["slices"])]
    moves += map(_one_line, (*_edges(current.get("edges", ())), *_move(current.get("move"), missing)))
    moves += map(_one_line, (*tls_lines(current.get("tls")), *rate_lines(current.get("rates", ()))))
    moves += [Text(f" {text}", "bold red") for text in _burning(current["models"], before)]
    moves += [Text(f" {rollout_sentence(each)}") for each in current.get("rollouts", ())]
    moves += [Text(f" {text}") for _, text in shift_sentences(current)]
    moves += map(Text, _proposal(current.get("proposal")))  # whole: the command is there to be copied
    models = _models_table(current["models"], before, elapsed_s, width)
    lines = _ending_lines(current["models"], before)
    lines += [Text(f" {sentence}") for sentence in missing]
    scaled = {model["name"]: model["scaling"] for model in current["models"] if "scaling" in model}
    isolated = {model["name"]: model["isolation"] for model in current["models"] if "isolation" in model}
    for told in (
        _doubtful_profiles(current["models"]),
        cache_lines(_cached(current), cached_before),
        scaled_lines(scaled),
        isolation_lines(isolated),
        sequence_lines(
            {each["name"]: each["sequences"] for each in current["models"] if "sequences" in each}
        ),
    ):
        lines += map(_one_line, told)
    gpus = [gpus_table(current["gpus"])] if "gpus" in current else []
    nodes = [nodes_table(current["nodes"])] if "nodes" in current else []
    if "cells" in current:
        nodes.append(cells_table(current["cells"]))
        moves += map(_one_line, filter(None, (fault_line(current["cells"]),)))
    return Group(head, *moves, models, *lines, _slices_table(current["slices"]), *nodes, *gpus)


def _models_table(
    models: Sequence[ModelStatus], before: "Mapping[str, Counters]", elapsed_s: float, width: int
) -> Table:
    """Return a row of each model, with as many columns as fit."""
    varied = any(len(by_variant(model["counters"])) > 1 for model in models)
    titles = (
        *_LEFT_ALIGNED,
        *_COUNTED,
        *(_ACCURATE if varied else ()),
        "batch",
        "p50 ms",
        "p99 ms",
        "SLO ms",
    )
    cells = (_model_row(model, before.get(model["name"]), max(elapsed_s, 1e-9), varied) for model in models)
    return _fitted(titles, [dict(zip(titles, row, strict=True)) for row in cells], width)


def _ending_lines(models: Sequence[ModelStatus], before: "Mapping[str, Counters]") -> list[Text]:
    """Return a heading, and a line of each model with requests that were not completed in time; else none."""
    endings = dict(_worst_endings(models, before))
    if not endings:
        return []
    width = max(map(len, endings))
    lines = [_one_line(f" {name:{width}}   {line}") for name, line in endings.items()]
    return [Text(" not completed in time, % of requests:"), *lines, Text()]


def _edges(edges: Sequence[EdgeStatus]) -> Iterator[str]:
    """Yield sentences on ports, only if a port has ended."""
    for edge in edges:
        if not edge["listening"]:
            yield f" the {edge['name']} port is closed"
        elif edge["restarts"]:
            yield f" the {edge['name']} port ended by itself and was opened again, {edge['restarts']} times"


def _burning(models: Sequence[ModelStatus], before: Mapping[str, "Counters"]) -> Iterator[str]:
    """Yield the promises that are broken now, and how most of the missed requests ended."""
    for model in models:
        missed = before[model["name"]]["missed"] if model["name"] in before else {}
        yield from (notice["text"] for notice in promise_notices(model, missed))


def _rehearsal(slices: Sequence[SliceStatus]) -> Iterator[Text]:
    """Yield that answers are made up, if any slice is rehearsed."""
    count = sum(one.get("rehearsed", False) for one in slices)
    if count:
        many = f"{count} of {len(slices)} slices are rehearsed"
        yield Text(f" REHEARSAL: {many}; their answers are made up", style="bold yellow", no_wrap=True)


def _slices_table(slices: Sequence[SliceStatus]) -> Table:
    """Return a row of each slice and its worker."""
    table = Table("slice", "worker", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for title in ("pid", "restarts"):
        table.add_column(title, justify="right")
    for one in slices:
        rehearsed = ("rehearsed",) if one.get("rehearsed") else ()
        notice = (one["notice"],) if "notice" in one else ()
        state = ", ".join((one["state"], *rehearsed, *notice))
        table.add_row(one["name"], escape(state), str(one["pid"] or "-"), str(one["restarts"]))
    return table


def _fitted(titles: Sequence[str], rows: Sequence[Mapping[str, str]], width: int) -> Table:
    """Return the models' table without the columns that make it too wide; closer together before one goes
    that says how the model does."""
    lengths = {
        title: max(len(title), *(Text.from_markup(row[title]).cell_len for row in rows), 0)
        for title in titles
    }
    shown, gap = list(titles), _GAPS[0]
    for spared in ("", *_SPARED):
        shown = [title for title in shown if title != spared]
        for gap in _GAPS if spared in _SPARED[-4:] else _GAPS[:2]:
            if 1 + sum(lengths[title] + 1 + gap for title in shown) <= width:
                return _table(shown, rows, gap)
    return _table(shown, rows, gap)


def _table(titles: Sequence[str], rows: Sequence[Mapping[str, str]], gap: int) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, gap, 0, 0))
    for title in titles:
        table.add_column(title, justify="left" if title in _LEFT_ALIGNED else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[title] for title in titles))
    return table


def _cached(status: Status) -> dict[str, CacheStatus]:
    return {model["name"]: model["cache"] for model in status["models"] if "cache" in model}


def _model_row(model: ModelStatus, before: "Counters | None", elapsed_s: float, varied: bool) -> list[str]:
    """Return the cells of a model's row. `varied`: with the cells of _ACCURATE, which are shown once several
    variants of any model answered."""
    now = model["counters"]
    was = before or _zero(now)
    requests = now["requests"] - was["requests"]
    offered, good = now["offered"] - was["offered"], now["good"] - was["good"]
    batches = now["batches"] - was["batches"]
    counts = [a - b for a, b in zip(now["latency_counts"], was["latency_counts"], strict=True)]
    bounds_us = now["latency_bounds_us"]
    burn = now["burn"].get("1h")
    ready = sum(replica["state"] == "ready" for replica in model["replicas"])
    return [
        escape(model["name"]),
        "[green]ready[/]" if model["ready"] else "[red]not ready[/]",
        escape(_answering(model, was)),
        f"{ready}/{len(model['replicas'])}",
        str(model["queue_rows"]),
        f"{requests / elapsed_s:.1f}",
        f"{(now['rows'] - was['rows']) / elapsed_s:.1f}",
        _percent(good, offered),
        "-" if burn is None else f"{burn:.1f}",
        *(_accuracy(now, was) if varied else ()),
        f"{(now['batch_rows'] - was['batch_rows']) / batches:.1f}" if batches else "-",
        _milliseconds(percentile_us(bounds_us, counts, 0.50)),
        _milliseconds(percentile_us(bounds_us, counts, 0.99)),
        _milliseconds(model["slo_us"]),
    ]


def _answering(model: ModelStatus, was: "Counters") -> str:
    """Return which variants answered, the most often first, each with its share where they are several; the
    one that would answer where none did."""
    answers, before = by_variant(model["counters"]), by_variant(was)
    found = {name: count - before.get(name, 0) for name, count in answers.items()}
    often = sorted(filter(found.__getitem__, found), key=found.__getitem__, reverse=True)
    if len(often) < 2:
        return often[0] if often else model["answering_variant"]
    total = sum(found.values())
    shown = " ".join(f"{name} {found[name] / total:.0%}" for name in often[:ANSWERING_MAX])
    return f"{shown} …" if len(often) > ANSWERING_MAX else shown


def by_variant(counters: "Counters") -> dict[str, int]:
    """Return the completed requests by the variant that answered, of all tiers."""
    found: dict[str, int] = {}
    for answers in counters["answers"].values():
        for name, count in answers.items():
            found[name] = found.get(name, 0) + count
    return found


def _accuracy(now: "Counters", was: "Counters") -> Iterator[str]:
    rows = now["measured_rows"] - was["measured_rows"]
    yield f"{(now['accuracy_rows'] - was['accuracy_rows']) / rows:.4f}" if rows else "-"
    downgraded = sum(now["downgrades"].values()) - sum(was["downgrades"].values())
    yield _percent(downgraded, now["completed"] - was["completed"])


def _worst_endings(
    models: Sequence[ModelStatus], before: "Mapping[str, Counters]"
) -> Iterator[tuple[str, str]]:
    """Yield how requests ended that were not completed in time, for the ENDINGS_MAX models with the most.
    Each ending is a share of all the model's requests, the largest first."""
    found: list[tuple[int, str, str]] = []
    for model in models:
        now = model["counters"]
        was = before.get(model["name"]) or _zero(now)
        old = _endings(was)
        counts = {reason: count - old.get(reason, 0) for reason, count in _endings(now).items()}
        largest = sorted(filter(counts.__getitem__, counts), key=counts.__getitem__, reverse=True)
        requests = now["requests"] - was["requests"]
        shown = ", ".join(f"{reason} {_percent(counts[reason], requests)}" for reason in largest)
        found.append((sum(counts.values()), model["name"], shown))
    for count, name, shown in sorted(found, key=lambda each: -each[0])[:ENDINGS_MAX]:
        if count:
            yield name, shown


def _doubtful_profiles(models: Sequence[ModelStatus]) -> list[str]:
    """Return lines on how long batches take relative to their profile, for the PROFILES_MAX replicas that are
    farthest from it."""
    found = [replica for model in models for replica in model["replicas"] if replica["profile"] != "fresh"]
    found.sort(key=lambda each: -max(each["profile_ratio"], 1 / each["profile_ratio"]))
    names = [f"{each['model']} {each['variant']} on {each['slice']}" for each in found[:PROFILES_MAX]]
    width = max(map(len, names), default=0)
    lines = []
    for name, each in zip(names, found, strict=False):
        again = ", is measured anew" if each["renewing"] else ""
        lines.append(f" {name:{width}}   {each['profile']} (x{each['profile_ratio']:.2f}){again}")
    return ["", DOUBTFUL, *lines] if lines else []


def _missing(models: Sequence[ModelStatus]) -> Iterator[str]:
    """Yield a sentence for each replica that is not there, as control says why it is not as wanted."""
    for model in models:
        for each in model["replicas"]:
            if reason := each.get("reason"):
                yield f"{each['model']} {each['variant']} is {each['state']} on {each['slice']}: {reason}"


def _move(move: MoveStatus | None, missing: Collection[str]) -> Iterator[str]:
    """Yield what is not as wanted, and what is not wanted any more; without what is `missing`, which is said
    of each replica."""
    if move is None:
        return
    waiting = [sentence for sentence in move["waiting"] if sentence not in missing]
    if move["state"] != "steady":
        yield f" {move['state']}: step {move['step']} of {move['steps']}"
    for sentence in waiting[:WAITING_MAX]:
        yield f"   waiting: {sentence}"
    if len(waiting) > WAITING_MAX:
        yield f"   and {len(waiting) - WAITING_MAX} more"
    for sentence in move["reasons"]:
        if sentence not in missing:
            yield f" not as wanted: {sentence}"
    for sentence in move["refused"]:
        yield f" the edit of the settings is refused: {sentence}"


_ANOTHER = {
    "planning": "another plan is being made",
    "proposed": "there is another plan",
    "applied": "another plan was applied",
    "given up": "another plan was given up",
    "none": "there is no better plan",
}


def _proposal(proposal: ProposalStatus | None) -> Iterator[str]:
    """Yield what the gateway has planned because its desired state cannot be reached."""
    if proposal is None:
        return
    state = proposal["state"]
    yield f" {_ANOTHER.get(state, state)}, because {proposal['reason']}"
    if state != "planning":
        yield f"   {proposal['sentence']}"
    for sentence in proposal["refused"]:
        yield f"   {sentence}"
    if state == "proposed":
        for name, models in proposal["slices"].items():
            yield f"   {name}: {', '.join(models)}"
        yield f"   apply it: {proposal['command']}"


def _endings(counters: "Counters") -> dict[str, int]:
    """Return all but completed in time, by reason."""
    return {
        **counters["rejected"],
        **counters["shed"],
        **counters["failed"],
        "client_gone": counters["cancelled"],
        "late": counters["missed"].get("late", 0),
    }


def _zero(like: "Counters") -> "Counters":
    return {
        "requests": 0, "completed": 0, "rejected": {}, "shed": {}, "failed": {}, "cancelled": 0,
        "offered": 0, "good": 0, "missed": {}, "rows": 0, "goodput_rows": 0, "burn": {},
        "batches": 0, "batch_rows": 0, "compute_us": 0,
        "answers": {}, "accuracy_rows": 0.0, "measured_rows": 0, "downgrades": {},
        "latency_bounds_us": like["latency_bounds_us"],
        "latency_counts": [0] * len(like["latency_counts"]),
    }  # fmt: skip


def _percent(part: int, whole: int) -> str:
    """Cut, not rounded: 100.0 means all of them."""
    return f"{part * 1000 // whole / 10:.1f}" if whole else "-"


def _milliseconds(us: float | None) -> str:
    return "-" if us is None else f"{us / 1000:.3g}" if us < 1_000_000 else f"{us / 1000:.0f}"


def _duration(seconds: float) -> str:
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours} h {m:02} min" if hours else f"{m} min {s:02} s" if m else f"{s} s"


def follow(read: Callable[[], Status], interval_s: float, console: Console, current: Status) -> None:
    """Show the status, again every `interval_s`, until Ctrl-C."""
    read_s = time.monotonic()
    with Live(render(None, current, 0.0, console.width), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            previous, previous_s = current, read_s
            current, read_s = read(), time.monotonic()
            live.update(render(previous, current, read_s - previous_s, console.width), refresh=True)
