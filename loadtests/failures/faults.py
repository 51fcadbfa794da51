"""A worker that dies, one that hangs, and rows that a model raises on, under steady load.

  python -m loadtests.failures.faults
  python -m loadtests.failures.faults --only "kill -9" --seconds 4 --rate 200 --json faults.json

The model sleeps 4 ms and 0.2 ms a row, so batches are in flight when the fault comes and the machine hardly
matters. Every request must get exactly one answer, a right one or a clear error. Promised beyond that:
violations only in the lost batch and until the worker is back; where a second slice serves the model, only in
the lost batch; and of a batch with a poisonous row, only that row fails. Exit status 1 where one is broken.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from loadtests.harness.gateway import ROOT, Gateway, started
from loadtests.harness.processes import undisturbed
from loadtests.harness.wire import Answer, post
from loadtests.stand.checked import NO_ANSWER, RIGHT, WRONG, Client, Question, Sent
from loadtests.stand.testbed import may_go_first
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw

MODEL = ROOT / "tests" / "models" / "poisonable"
SLO_S = 0.05
STALL_S = 1.0  # limits.stall_s: a worker that hangs is replaced after this
CALM_S = 1.0  # of load before the fault
BIN_S = 0.1
BACK_S = 60.0  # within which a worker has to be back
LATE_SENT_S = 0.005  # p99 of sent minus due: a client that is later than this makes its own violations
POISON_EVERY = 97  # requests
STRAY_MAX = 0.002  # share of requests that may fail their SLO for no fault of ours: the machine is shared
REFUSED = "500 model_error"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`sent`: the signal that the worker of one of `slices` gets, None where rows are poisonous instead."""

    name: str
    slices: int = 1
    sent: signal.Signals | None = None


SCENARIOS = (
    Scenario("kill -9", 1, signal.SIGKILL),
    Scenario("kill -9, two slices", 2, signal.SIGKILL),
    Scenario("SIGSTOP", 1, signal.SIGSTOP),
    Scenario("SIGSTOP, two slices", 2, signal.SIGSTOP),
    Scenario("poisonous rows"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A request of one row, to be doubled; poisonous where its first number is negative."""

    numbers: tuple[float, float, float, float]

    @property
    def poisonous(self) -> bool:
        return self.numbers[0] < 0

    @property
    def request(self) -> bytes:
        raw = struct.pack("<4f", *self.numbers)
        tensor = {"name": "INPUT", "shape": [1, 4], "datatype": "FP32",
                  "parameters": {"binary_data_size": len(raw)}}  # fmt: skip
        asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        header = json.dumps(asked, separators=(",", ":")).encode()
        headers = {"Inference-Header-Content-Length": len(header)}
        return post("/v2/models/poisonable/infer", header + raw, headers)

    def fault(self, answer: Answer) -> str:
        """Return the fault of the answer, or "" if it has every number doubled."""
        raw = answer.body[int(answer.headers.get("inference-header-content-length", len(answer.body))) :]
        expected = struct.pack("<4f", *(2 * number for number in self.numbers))
        return "" if raw == expected else f"{raw.hex()}, expected {expected.hex()}"


@dataclass(frozen=True, slots=True)
class Fault:
    """When it came, and when all workers were there again; seconds of `time.monotonic`."""

    at_s: float
    restarted_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A scenario that was played. `counts`: requests by how they ended; `timeline`: the same from the fault
    on, by BIN_S of their due times; seconds count from the fault. `broken`: promises that were not kept."""

    scenario: str
    counts: dict[str, int]
    restarted_s: float
    answered_again_s: float
    timeline: list[tuple[float, dict[str, int]]]
    broken: list[str]


def main() -> int:
    """Return 0 if every promise was kept, else 1."""
    asked = _arguments()
    findings = []
    for scenario in SCENARIOS:
        if not asked.only or scenario.name in asked.only:
            findings.append(play(scenario, asked))
            show(findings[-1])
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        found = [asdict(finding) for finding in findings]
        asked.json.write_text(json.dumps({"arguments": sys.argv[1:], "findings": found}) + "\n")
    return 1 if any(finding.broken for finding in findings) else 0


def play(scenario: Scenario, asked: argparse.Namespace) -> Finding:
    """Return the scenario on a gateway of its own, judged."""
    return judge(scenario, *run(scenario, asked))


def run(scenario: Scenario, asked: argparse.Namespace) -> tuple[Client, Fault | None, bool]:
    """Return the scenario on a gateway of its own; in the end whether all its workers are there."""
    names = [f"slice-{number}" for number in range(scenario.slices)]
    entry = {"path": str(MODEL), "slo_ms": SLO_S * 1e3, "slices": names, "batching": {"policy": asked.policy}}
    with tempfile.TemporaryDirectory(prefix="penstock-profiles-") as profiles:
        slices = [{"name": name} for name in names]
        with started([entry], (), Path(profiles), slices=slices, limits={"stall_s": STALL_S}) as gateway:
            with undisturbed(None, may_go_first()):
                client, fault = asyncio.run(_experiment(scenario, asked, gateway))
            return client, fault, len(gateway.workers()) == scenario.slices


async def _experiment(
    scenario: Scenario, asked: argparse.Namespace, gateway: Gateway
) -> tuple[Client, Fault | None]:
    client = Client(gateway)
    async with asyncio.TaskGroup() as tasks:
        if scenario.sent is None:
            tasks.create_task(client.run(_arrivals(asked, lambda: True), rows(POISON_EVERY)))
            return client, None
        strike = tasks.create_task(_strike(gateway, scenario))
        due_s = _arrivals(asked, lambda: strike.done() and _recovered(client, strike.result(), asked))
        tasks.create_task(client.run(due_s, rows(0)))
    return client, strike.result()


def _arrivals(asked: argparse.Namespace, over: Callable[[], bool]) -> Iterator[float]:
    """Yield arrivals for as long as is asked, and on until it is over: workers may take long to come back."""
    random = np.random.default_rng(asked.seed)
    yield from draw([RateStep(asked.rate, asked.seconds)], POISSON_CV, random).tolist()
    at_s = asked.seconds
    while not over() and at_s < asked.seconds + BACK_S:
        at_s += random.exponential(1 / asked.rate)
        yield at_s


def _recovered(client: Client, fault: Fault, asked: argparse.Namespace) -> bool:
    """Return whether as much as comes in CALM_S has followed a request that was answered by the new
    worker."""
    following: int = round(CALM_S * asked.rate)
    if len(client.sent) <= following:
        return False
    answered = client.sent[-following - 1]
    return answered.due_s > fault.restarted_s and answered.what == RIGHT


async def _strike(gateway: Gateway, scenario: Scenario) -> Fault:
    """Signal a worker, and wait until another is there in its place."""
    await asyncio.sleep(CALM_S)
    victim, at_s = gateway.workers()[0], time.monotonic()
    os.kill(victim, scenario.sent or signal.SIGKILL)
    async with asyncio.timeout(BACK_S):
        while len(workers := gateway.workers()) < scenario.slices or victim in workers:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # /proc tells nobody of a new child
    return Fault(at_s, time.monotonic())


def rows(poison_every: int) -> Iterator[Question]:
    """Yield different rows without end; every `poison_every`-th one is poisonous, none for 0."""
    for number in itertools.count(1):
        first = -1.0 if poison_every and number % poison_every == 0 else 1.0
        yield Row((first, float(number % 65536), 0.5, 0.25))


def judge(scenario: Scenario, client: Client, fault: Fault | None, whole: bool) -> Finding:
    """Return what became of the requests, and which promises were broken; `whole`: no worker is missing
    now."""
    sent = client.sent
    broken = _answers(client)
    if not whole:
        broken.append("a worker is missing at the end")
    if fault is None:
        broken += _poison(sent)
        return Finding(scenario.name, _count(sent), 0.0, 0.0, [], broken)
    again_s = min(
        (one.done_s for one in sent if one.due_s > fault.at_s and one.what == RIGHT), default=np.inf
    )
    until_s = again_s if scenario.slices == 1 else fault.at_s + SLO_S
    broken += _strays(sent, fault.at_s - SLO_S, until_s + SLO_S)
    return Finding(
        scenario.name, _count(sent), fault.restarted_s - fault.at_s, again_s - fault.at_s,
        timeline(sent, fault.at_s), broken,
    )  # fmt: skip


def _answers(client: Client) -> list[str]:
    """Return the faults of all answers, and the reasons that make the run impossible to judge."""
    counts = _count(client.sent)
    broken = [f"{number} x {what}" for what, number in counts.items() if what.startswith((NO_ANSWER, WRONG))]
    if client.surplus_bytes:
        broken.append(f"{client.surplus_bytes} bytes came that nobody had asked for")
    if client.sent[-1].what != RIGHT and not _is_poisonous(client.sent[-1]):
        broken.append(f"the last request was answered with {client.sent[-1].what}")
    late_s = float(np.percentile([one.sent_s - one.due_s for one in client.sent], 99))
    if late_s > LATE_SENT_S:
        broken.append(f"the client was {late_s * 1e3:.1f} ms late (p99): nothing can be said of violations")
    return broken


def _strays(sent: Sequence[Sent], from_s: float, until_s: float) -> list[str]:
    """Return the violations by requests that were due outside of these instants."""
    strays = [one for one in sent if not one.in_time(SLO_S) and not from_s <= one.due_s <= until_s]
    if len(strays) <= STRAY_MAX * len(sent):
        return []
    return [f"{len(strays)} violations outside of the lost batch and the gap: {_count(strays)}"]


def _poison(sent: Sequence[Sent]) -> list[str]:
    """Return how many poisonous rows did not fail as they should, and how many sound rows failed or were
    late."""
    passed = [one for one in sent if _is_poisonous(one) and one.what != REFUSED]
    hit = [one for one in sent if not _is_poisonous(one) and one.what != RIGHT]
    late = [one for one in sent if one.what == RIGHT and not one.in_time(SLO_S)]
    broken = [f"{len(passed)} poisonous rows ended otherwise: {_count(passed)}"] if passed else []
    if hit:
        broken.append(f"{len(hit)} sound rows failed: {_count(hit)}")
    if len(late) > STRAY_MAX * len(sent):
        broken.append(f"{len(late)} sound rows were late")
    return broken


def _is_poisonous(one: Sent) -> bool:
    return isinstance(one.question, Row) and one.question.poisonous


def _count(sent: Sequence[Sent]) -> dict[str, int]:
    """Count requests by how they ended, the most frequent first; a right answer is in time or late."""
    return dict(Counter(map(_ending, sent)).most_common())


def _ending(one: Sent) -> str:
    if one.what != RIGHT:
        return one.what
    return "in time" if one.in_time(SLO_S) else "late"


def timeline(sent: Sequence[Sent], at_s: float) -> list[tuple[float, dict[str, int]]]:
    """Return endings by bins of BIN_S of due times, from `at_s`. They go from a bin before the first
    violation to one after the last; empty without any."""
    bins: dict[int, list[Sent]] = {}
    for one in sent:
        bins.setdefault(int((one.due_s - at_s) // BIN_S), []).append(one)
    marked = [number for number, members in bins.items() if not all(one.in_time(SLO_S) for one in members)]
    if not marked:
        return []
    shown = range(min(marked) - 1, max(marked) + 2)
    return [(round(number * BIN_S, 3), _count(bins.get(number, []))) for number in shown]


def show(finding: Finding) -> None:
    """Print the scenario's counts, its timeline and its verdict."""
    total = sum(finding.counts.values())
    counts = ", ".join(f"{number} {what}" for what, number in finding.counts.items())
    print(f"\n{finding.scenario}: {total} requests: {counts}")
    if finding.restarted_s:
        print(
            f"  first right answer to a request after the fault {finding.answered_again_s:.3f} s, "
            f"all workers there {finding.restarted_s:.3f} s after it"
        )
    for from_s, found in finding.timeline:
        bars = ", ".join(f"{number} {what}" for what, number in found.items())
        print(f"  due {from_s:+6.1f} s: {bars}")
    for broken in finding.broken:
        print(f"  BROKEN: {broken}")
    if not finding.broken:
        print("  every promise was kept")


def scenario_parser(
    description: str | None, scenarios: Sequence[str], rate: float = 300, seconds: float = 10
) -> argparse.ArgumentParser:
    """Return a parser of what each command that plays faults takes: scenarios, and the load meanwhile."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=scenarios, default=(), help="these scenarios")
    parser.add_argument("--rate", type=float, default=rate, help="requests a second")
    parser.add_argument("--seconds", type=float, default=seconds)
    return parser


def _arguments() -> argparse.Namespace:
    parser = scenario_parser(__doc__, [scenario.name for scenario in SCENARIOS], rate=400, seconds=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", default="slo", help="batching policy: slo, static or aimd")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
