"""What became of requests while a gateway was changed: who was lost, and which promises were broken."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtests.failures.changes import DIGITS, MINILM, SLO_MS, Move, Scenario
from loadtests.harness.record import CLOSED, NO_STATUS, REFUSED, Record
from loadtests.harness.report import OK, percentiles
from serving.values.vocabulary import ALL_OUTCOMES, BAD_INPUT, TOO_LARGE, UNKNOWN_MODEL, Kind

GOOD, LATE, REFUSAL, DOWN, LOST = "in time", "late", "refused", "down", "lost"
AFTER_S = 1.0  # that the window lasts beyond the end of the change
FAULT_S = 1.0  # before and after a process is killed, in which what it had may be found lost
_PERCENTILES = {"p50_ms": 50.0, "p99_ms": 99.0}
_MISTAKES = {BAD_INPUT, TOO_LARGE, UNKNOWN_MODEL}  # the requests are right, so these are no refusals
_REFUSALS = {
    each.reason.value for each in ALL_OUTCOMES if each.kind in (Kind.REJECTED, Kind.SHED)
} - {each.reason.value for each in _MISTAKES}  # fmt: skip

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
    """The requests of a model that were due in a part of a run. `endings`: how many ended so; percentiles are
    of answers 200."""

    offered: int
    endings: Mapping[str, int]
    attainment: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A change that was played. `parts`: by model and "whole", "before", "window", "after"; `reasons` of
    `ended`; `outcomes` other than 200, by model, of the whole; `broken`: promises that were not kept."""

    scenario: str
    ended: str
    reasons: Sequence[str]
    took_s: float
    parts: Mapping[str, Mapping[str, Part]]
    outcomes: Mapping[str, Mapping[str, int]]
    broken: Sequence[str]
    voids: Sequence[str]


def judge(
    scenario: Scenario, record: Record, move: Move, untruths: Sequence[str], voids: Sequence[str]
) -> Finding:
    """Return what became of the requests, and which promises were broken."""
    due_s = np.asarray(record.due_ns, np.int64) / 1e9
    latency_ms = (np.asarray(record.done_ns, np.int64) - np.asarray(record.due_ns, np.int64)) / 1e6
    owners = np.asarray(record.loads)
    slos_ms = np.asarray([scenario.slo_ms, SLO_MS[MINILM]])[owners]
    endings = endings_of(record, latency_ms <= slos_ms, move)
    window_s = move.order_s, move.end_s + AFTER_S
    spans = {
        "whole": (-np.inf, np.inf),
        "before": (-np.inf, window_s[0]),
        "window": window_s,
        "after": (window_s[1], np.inf),
    }
    parts: dict[str, dict[str, Part]] = {}
    outcomes: dict[str, dict[str, int]] = {}
    ok = np.asarray(record.statuses) == OK
    for number, model in enumerate((DIGITS, MINILM)):
        own = owners == number
        parts[model] = {}
        for name, (from_s, until_s) in spans.items():
            chosen = own & (due_s >= from_s) & (due_s < until_s)
            parts[model][name] = _part(endings[chosen], latency_ms[chosen & ok])
        unanswered = np.flatnonzero(own & ~ok)
        outcomes[model] = dict(
            Counter(
                f"{record.statuses[each]} {record.reasons[each]}".strip() for each in unanswered
            ).most_common()
        )
    broken = [*untruths, *_broken(scenario, record, move, endings)]
    return Finding(
        scenario.name, move.ended, move.reasons, move.end_s - move.order_s, parts, outcomes, broken, voids
    )  # fmt: skip


def endings_of(record: Record, in_time: npt.NDArray[np.bool_], move: Move) -> npt.NDArray[np.str_]:
    """Return how each request ended, as `ending` says."""
    asked = zip(record.statuses, record.reasons, in_time.tolist(), record.sent_ns, strict=True)
    return np.asarray([
        ending(status, reason, good, sent_ns / 1e9, move) for status, reason, good, sent_ns in asked
    ])  # fmt: skip


def ending(status: int, reason: str, in_time: bool, sent_s: float, move: Move) -> str:
    """Return one of GOOD, LATE, REFUSAL, DOWN and LOST."""
    if status == OK:
        return GOOD if in_time else LATE
    from_s, until_s = move.down_s
    if status == NO_STATUS and reason in (REFUSED, CLOSED) and from_s <= sent_s <= until_s:
        return DOWN  # it came to a port that was dead by then
    return REFUSAL if status != NO_STATUS and reason in _REFUSALS else LOST


def _broken(scenario: Scenario, record: Record, move: Move, endings: npt.NDArray[np.str_]) -> list[str]:
    found = []
    if move.ended != scenario.ends:
        found.append(f"it was {move.ended}, not {scenario.ends}: {'; '.join(move.reasons)}")
    if stray := int(((endings == LOST) & ~caught(record, move.faults_s)).sum()):
        away = " that no killed process had" if move.faults_s else ""
        found.append(f"{stray} requests{away} were lost")
    gaps = sum(reason == "no_replica" for reason in record.reasons)
    if gaps and not move.faults_s:
        found.append(f"{gaps} requests came while their model was routed nowhere")
    return found


def caught(record: Record, faults_s: Iterable[float]) -> npt.NDArray[np.bool_]:
    """Return which requests were under way when a process was killed: that had them, if anybody had."""
    sent_s = np.asarray(record.sent_ns, np.int64) / 1e9
    done_s = np.asarray(record.done_ns, np.int64) / 1e9
    found = np.zeros(len(sent_s), bool)
    for fault_s in faults_s:
        found |= (sent_s <= fault_s + FAULT_S) & (done_s >= fault_s - FAULT_S)
    return found


def _part(endings: npt.NDArray[np.str_], latency_ms: Floats) -> Part:
    counts = Counter(endings.tolist())
    attainment = counts[GOOD] / len(endings) if len(endings) else float("nan")
    return Part(len(endings), dict(counts), attainment, **percentiles(latency_ms, _PERCENTILES))
