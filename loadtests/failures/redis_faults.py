"""Two gateways that share answers, under steady load, while their Redis is stopped, killed, started again.

  python -m loadtests.failures.redis_faults
  python -m loadtests.failures.redis_faults --rate 200 --seconds 20 --json redis.json

Each question is new to the one gateway that is asked it first, and LAG_S later asked of the other, which
finds in Redis what the first one computed. The model sleeps 4 ms and 0.2 ms a row. Promised: every request
gets its right answer whatever becomes of Redis, no phase has a p99 that is above that of gateways without
Redis by more than the budget of a look (and GRACE_S: the machine is shared), and while Redis answers each
gateway has the other's answers. Exit status 1 where one is broken.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal
from urllib.request import urlopen

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtests.failures.faults import LATE_SENT_S, MODEL, Row
from loadtests.harness.gateway import Gateway, started
from loadtests.harness.processes import undisturbed
from loadtests.harness.wire import Answer
from loadtests.stand.checked import RIGHT, Client, Question, Sent
from loadtests.stand.redis_server import redis_server
from loadtests.stand.testbed import may_go_first
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw

SLO_S = 1.0
LAG_S = 0.25
CALM_S = 0.5  # of a phase's load before its fault
GRACE_S = 0.0015
HITS_MIN = 0.9  # of the questions that are asked again, while Redis answers
HEAL_S = 60.0  # the longest pause of the breaker is 5 s


@dataclass(frozen=True, slots=True)
class Asked:
    """A row to be doubled; `results` counts what `x-cache` said."""

    row: Row
    results: Counter[str]

    @property
    def request(self) -> bytes:
        return self.row.request

    def fault(self, answer: Answer) -> str:
        self.results[answer.headers.get("x-cache", "not asked")] += 1
        return self.row.fault(answer)


@dataclass(frozen=True, slots=True)
class Side:
    """What became of the questions that were new, or of those asked again; times in milliseconds."""

    p50_ms: float
    p99_ms: float
    endings: dict[str, int]
    results: dict[str, int]
    late_ms: float  # p99 of sent minus due: the client's own lateness


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    new: Side
    again: Side
    broken: list[str] = field(default_factory=list)


class Course:
    """Phases, one after the other, with numbers that were never asked before."""

    def __init__(self, rate: float, seconds: float, seed: int) -> None:
        self._rate, self._seconds, self._seed = rate, seconds, seed
        self._numbers = itertools.count(1)
        self.phases: list[Phase] = []

    def play(self, name: str, gateways: Sequence[Gateway], strike: Callable[[], None] | None = None) -> None:
        """Play a phase; `strike` is called CALM_S after its first request."""
        new, again = asyncio.run(self._load(gateways, strike))
        self.phases.append(Phase(name, new, again))

    async def _load(self, gateways: Sequence[Gateway], strike: Callable[[], None] | None) -> list[Side]:
        sent: list[list[Sent]] = [[], []]
        results = [Counter[str](), Counter[str]()]
        random = np.random.default_rng(self._seed)
        async with asyncio.TaskGroup() as tasks:
            for asked_first in (0, 1):
                due_s = draw([RateStep(self._rate / 2, self._seconds)], POISSON_CV, random)
                rows = [_row(next(self._numbers)) for _ in due_s]
                for again in (0, 1):
                    client = Client(gateways[asked_first ^ again])
                    client.sent = sent[again]
                    questions = [Asked(row, results[again]) for row in rows]
                    tasks.create_task(client.run((due_s + again * LAG_S).tolist(), _turn(questions)))
            if strike is not None:
                await asyncio.sleep(CALM_S)
                strike()
        return [_side(each, found) for each, found in zip(sent, results, strict=True)]


def main() -> int:
    """Return 0 if every promise was kept, else 1."""
    asked = _arguments()
    course = Course(asked.rate, asked.seconds, asked.seed)
    with undisturbed(None, may_go_first()):
        play_all(course, asked.budget_ms)
    for phase in course.phases:
        phase.broken.extend(judge(phase, course.phases[0], asked.budget_ms))
    show(course.phases)
    if asked.json:
        found = [asdict(phase) for phase in course.phases]
        asked.json.write_text(json.dumps({"arguments": sys.argv[1:], "phases": found}) + "\n")
    return 1 if any(phase.broken for phase in course.phases) else 0


def play_all(course: Course, budget_ms: float) -> None:
    """Play every phase, on gateways and a server of their own."""
    with tempfile.TemporaryDirectory(prefix="penstock-profiles-") as profiles, redis_server() as server:
        with _pair(Path(profiles), {}) as gateways:
            course.play(WARM_UP, gateways)
            course.phases.clear()
            course.play(BARE, gateways)
        redis = {"url": server.url, "budget_ms": budget_ms}
        with _pair(Path(profiles), {"redis": redis}) as gateways:
            course.play(WITH, gateways)
            course.play(STOPPED, gateways, server.pause)
            server.resume()
            _await_healed(gateways)
            course.play(RESUMED, gateways)
            course.play(KILLED, gateways, server.kill)
            server.start()
            _await_healed(gateways)
            course.play(RESTARTED, gateways)


WARM_UP, BARE, WITH = "warm-up", "without Redis", "with Redis"
STOPPED, RESUMED, KILLED, RESTARTED = "SIGSTOP", "SIGCONT", "kill -9", "restarted"
SHARING = (WITH, RESUMED, RESTARTED)


@contextlib.contextmanager
def _pair(profiles: Path, cache: dict[str, object]) -> Iterator[list[Gateway]]:
    """Yield two gateways; the first measures the profile for both."""
    entry = {"path": str(MODEL), "slo_ms": SLO_S * 1e3, "batching": {"policy": "static", "size": 1}}
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(started([entry], (), profiles, slices=[{"name": "measured"}], cache=cache))
            for _ in range(2)
        ]


def _await_healed(gateways: Sequence[Gateway]) -> None:
    """Wait until all gateways ask Redis again. Raises RuntimeError if one does not."""
    end_s = time.monotonic() + HEAL_S
    for each in gateways:
        url = f"http://{each.host}:{each.metrics_port}/metrics"
        while "penstock_cache_redis_up 1" not in urlopen(url, timeout=30).read().decode():
            if time.monotonic() > end_s:
                raise RuntimeError(f"a gateway did not heal within {HEAL_S:g} s")
            time.sleep(0.05)


def _row(number: int) -> Row:
    return Row((1.0, float(number % 65536), float(number // 65536), 0.25))


def _turn(questions: Sequence[Asked]) -> Iterator[Question]:
    yield from questions


def _side(sent: Sequence[Sent], results: Counter[str]) -> Side:
    took_ms = [(one.done_s - one.due_s) * 1e3 for one in sent]
    p50_ms, p99_ms = np.percentile(took_ms, (50, 99)).tolist()
    late_ms = float(np.percentile([(one.sent_s - one.due_s) * 1e3 for one in sent], 99))
    return Side(p50_ms, p99_ms, dict(Counter(one.what for one in sent)), dict(results), late_ms)


def judge(phase: Phase, bare: Phase, budget_ms: float) -> list[str]:
    """Return the promises that the phase did not keep."""
    broken = []
    for name, side, base in (("new", phase.new, bare.new), ("again", phase.again, bare.again)):
        broken += [f"{name}: {count} x {what}" for what, count in side.endings.items() if what != RIGHT]
        if side.late_ms > LATE_SENT_S * 1e3:
            broken.append(f"{name}: the client was {side.late_ms:.1f} ms late (p99): nothing can be said")
        added_ms = side.p99_ms - base.p99_ms
        if added_ms > budget_ms + GRACE_S * 1e3:
            broken.append(f"{name}: {added_ms:.1f} ms more than without Redis at p99")
    hits = phase.again.results.get("hit", 0)
    if phase.name in SHARING and hits < HITS_MIN * sum(phase.again.results.values()):
        broken.append(f"again: only {hits} answers were the other gateway's: {phase.again.results}")
    return broken


def show(phases: Sequence[Phase]) -> None:
    """Print a line for each phase, and what was broken."""
    table = Table(title="ms; hits: answers that one gateway had of the other")
    for column in ("phase", "new p50", "p99", "again p50", "p99", "hits", "sent", "faults"):
        justify: Literal["left", "right"] = "left" if column == "phase" else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    for phase in phases:
        sides = (phase.new, phase.again)
        requests = sum(sum(side.endings.values()) for side in sides)
        right = sum(side.endings.get(RIGHT, 0) for side in sides)
        figures = [f"{value:.2f}" for side in sides for value in (side.p50_ms, side.p99_ms)]
        hits = str(phase.again.results.get("hit", 0))
        table.add_row(phase.name, *figures, hits, str(requests), str(requests - right))
    Console().print(table)
    for phase in phases:
        for broken in phase.broken:
            print(f"BROKEN: {phase.name}: {broken}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=60, help="requests a second, of each gateway")
    parser.add_argument("--seconds", type=float, default=10, help="of each phase")
    parser.add_argument("--budget-ms", type=float, default=2.0, help="of a look in Redis")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
