"""What is lost when something dies in the midst of a scale-up? A live gateway, a step of load, one fault.

  python -m loadtests.scaling.autoscaling_faults
  python -m loadtests.scaling.autoscaling_faults --only "spot slice lost" --seconds 20 --json faults.json

The model waits instead of computing (20 ms, and 10 ms a row), on up to six slices, of which five are spot.
Load steps up, replicas are started, and meanwhile: kill -9 of a new worker; kill -9 of the only worker that
answers; a spot slice that gets batches is taken away (`POST /v2/slices/NAME/lost`) while others start; kill
-9 of the gateway, which is started again. Nothing may be lost but what was in the killed process; lost is a
request without an answer, or with an error that is no stated refusal. The count is right again when as many
replicas get batches as are wished, and at least as many as were before the fault, and that stays so for two
seconds. Lost requests count on any machine; a run in which the client was late is VOID for its latencies.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtests.failures.changes import DONE, KILL_AFTER_S, Move
from loadtests.failures.losses import DOWN, GOOD, LATE, LOST, REFUSAL, caught, endings_of
from loadtests.harness.dispatch import Load, Server, measure
from loadtests.harness.processes import undisturbed
from loadtests.harness.record import Record
from loadtests.harness.report import Promise, summarise, without_nan
from loadtests.scaling.autoscaling_live_subjects import WAITING, Cast, waiting
from loadtests.scaling.autoscaling_live_trace import arrivals
from loadtests.scaling.autoscaling_live_watch import await_rest, kept_profiles
from loadtests.stand.living import Living, kill, living
from loadtests.stand.testbed import CONNECTIONS_MAX, may_go_first
from serving.simulation.traffic.patterns import RateStep

SPOT = 5  # of the six slices: whatever is started beyond the first can be taken away
# requests a second; one to three replicas answer BUSY, four or five FULL
CALM, BUSY, FULL = 12.0, 90.0, 200.0
CALM_S, BUSY_S = 3.0, 8.0
RIGHT_S = 40.0  # within which the count has to be right again
STAYS_S = 2.0  # and stays so
CONNECTIONS = 64
TAKEN = "its owner takes it away"


@dataclass(slots=True)
class Fault:
    """`what` was done, in `move` (its `end_s`: when the count was right again); replicas that were `wished`
    before, and `then`."""

    move: Move = field(default_factory=Move)
    wished: int = 0
    then: int = 0
    what: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`strike` waits for the scale-up and does it; `steps`: the load before FULL."""

    name: str
    strike: Callable[[Living, Fault], None]
    steps: Sequence[RateStep] = (RateStep(CALM, CALM_S),)


@dataclass(frozen=True, slots=True)
class Finding:
    """A scenario that was played. `wished`: replicas before, and once the count was right again (after
    `right_s` seconds); `endings`: requests by how they ended; `settled`: share in time of those due
    from then on; `broken`: promises that were not kept."""

    scenario: str
    what: str
    wished: tuple[int, int]
    offered: int
    endings: Mapping[str, int]
    reasons: Mapping[str, int]
    right_s: float
    settled: float
    broken: Sequence[str]
    voids: Sequence[str]


def main() -> int:
    """Return 0 if every promise was kept and every run can be believed, 1 if not, 2 if a run could not be
    made."""
    asked = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 150)
    findings: list[Finding] = []
    failed = False
    with kept_profiles(asked.profiles) as profiles:
        for scenario in SCENARIOS:
            if asked.only and scenario.name not in asked.only:
                continue
            try:
                findings.append(play(scenario, asked.seconds, asked.seed, profiles))
            except (ValueError, OSError, RuntimeError) as error:
                sys.stderr.write(f"autoscaling_faults: {scenario.name}: {error}\n")
                failed = True
            else:
                show(findings[-1:], console)
    if len(findings) > 1:
        show(findings, console)
    if asked.json:
        found = {"arguments": sys.argv[1:], "findings": list(map(asdict, findings))}
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(without_nan(found), allow_nan=False) + "\n")
    return 2 if failed else int(any(one.broken or one.voids for one in findings))


def settings(cast: Cast, profiles: Path) -> dict[str, Any]:
    """Return the settings: one model on the slices of its cast; SPOT slices may be taken away."""
    return {
        "server": {"host": "127.0.0.1"},
        "slices": cast.slices(SPOT),
        "models": [cast.entry({"min": 1, "max": cast.most})],
        "profiles": str(profiles),
        "cache": False,
    }


def play(scenario: Scenario, seconds: float, seed: int, profiles: Path) -> Finding:
    """Play the scenario on a gateway of its own, with FULL load for `seconds`. Errors as in `Living`."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as made:
        folder = Path(made)
        cast = waiting(folder, seed)
        load = Load(arrivals([*scenario.steps, RateStep(FULL, seconds)], seed), cast.subject.requests())
        with living(folder, settings(cast, profiles)) as there, ThreadPoolExecutor(1) as threads:
            await_rest(there.gateway)
            server = Server("127.0.0.1", there.ports[0], CONNECTIONS, CONNECTIONS_MAX)
            fault = Fault()
            with undisturbed(None, may_go_first()):
                struck = threads.submit(_struck, scenario, there, fault)  # as the client, at the same time
                record, client = measure([load], server)
            struck.result()
    span_s = float(load.due_s[-1])
    slo_ms = cast.subject.terms.slo_ms
    voids = [*summarise(record, [Promise(WAITING, slo_ms)], span_s, client).voids]
    if fault.move.end_s > record.start_ns / 1e9 + span_s:
        voids.append("the count was right only after the load had ended: raise --seconds")
    return judge(scenario.name, record, fault, slo_ms, voids)


def judge(name: str, record: Record, fault: Fault, slo_ms: float, voids: Sequence[str]) -> Finding:
    """Return what became of the requests, and which promises were broken."""
    move = fault.move
    due_s = np.asarray(record.due_ns, np.int64) / 1e9
    latency_ms = (np.asarray(record.done_ns, np.int64) - np.asarray(record.due_ns, np.int64)) / 1e6
    endings = endings_of(record, latency_ms <= slo_ms, move)
    after = endings[due_s >= move.end_s]
    stray = int(((endings == LOST) & ~caught(record, move.faults_s)).sum())
    broken = [f"{stray} requests that no killed process had were lost"] if stray else []
    if LOST in endings and not move.faults_s:
        broken = [f"{int((endings == LOST).sum())} requests were lost, and who died had none"]
    reasons = Counter(
        f"{status} {reason}".strip()
        for status, reason in zip(record.statuses, record.reasons, strict=True)
        if reason
    )
    return Finding(
        name, fault.what, (fault.wished, fault.then), len(endings),
        dict(Counter(endings.tolist()).most_common()), dict(reasons.most_common()), move.end_s - move.order_s,
        float((after == GOOD).mean()) if len(after) else float("nan"), broken, voids,
    )  # fmt: skip


def show(findings: Sequence[Finding], console: Console) -> None:
    """Show a row for each scenario, what its refusals said, and which promises it broke."""
    table = Table(title="a fault in a live scale-up, open loop")
    for column in ("fault", "what"):
        table.add_column(column)
    for column in ("requests", GOOD, LATE, REFUSAL, DOWN, LOST, "wished", "right after s", "then in time"):
        table.add_column(column, justify="right")
    for one in findings:
        counts = [str(one.endings.get(name, 0)) for name in (GOOD, LATE, REFUSAL, DOWN, LOST)]
        table.add_row(
            one.scenario + (" VOID" if one.voids else ""), one.what, str(one.offered), *counts,
            " then ".join(map(str, one.wished)), f"{one.right_s:.1f}", f"{one.settled:.1%}",
        )  # fmt: skip
    console.print(table)
    for one in findings:
        told = ", ".join(f"{count} x {what}" for what, count in one.reasons.items()) or "nobody was refused"
        console.print(f"{one.scenario}: {told}", highlight=False)
        for broken in one.broken:
            console.print(f"  BROKEN: {broken}", style="bold red", highlight=False, markup=False)
        for void in one.voids:
            console.print(f"  VOID: {void}", style="bold red", highlight=False, markup=False)


# the faults


def replicas(there: Living) -> Mapping[str, Any]:
    """Return why the model has as many replicas as it has. Raises ConnectionError if the gateway does not
    say."""
    status, told = there.ask("GET", f"/v2/models/{WAITING}/explain")
    if status != 200:
        raise ConnectionError(f"GET /v2/models/{WAITING}/explain answers {status}: {told}")
    said: Mapping[str, Any] = told["replicas"]
    return said


def _struck(scenario: Scenario, there: Living, fault: Fault) -> None:
    """Strike, and wait until the replica count is right again."""
    scenario.strike(there, fault)
    right_s = 0.0

    def stays_right() -> bool:
        nonlocal right_s
        now, at_s = replicas(there), time.monotonic()
        right = now["ready"] == now["count"] == now["desired"] >= fault.wished
        right_s = (right_s if now["desired"] == fault.then else 0.0) or at_s if right else 0.0
        fault.then = int(now["desired"])
        return right and at_s - right_s >= STAYS_S

    there.until(stays_right, f"have {fault.wished} replicas that get batches", RIGHT_S)
    fault.move.end_s, fault.move.ended = right_s, DONE
    if fault.move.down_s[0]:
        fault.move.down_s = fault.move.down_s[0], fault.move.end_s


def _new_worker(there: Living, fault: Fault, old: Sequence[str]) -> tuple[str, int]:
    """Return the slice and process of a worker that is being started; and how many are wished at this
    time."""
    there.until(lambda: len(there.workers()) > len(old), "start a worker under more load")
    time.sleep(KILL_AFTER_S)
    fault.wished = int(replicas(there)["desired"])
    return next((name, pid) for name, pid in there.workers().items() if name not in old)


def _at(fault: Fault, what: str, *, answers: bool = True) -> None:
    """Note that the fault comes now. `answers`: what dies has requests, which may be lost with it."""
    fault.what, fault.move.order_s = what, time.monotonic()
    if answers:
        fault.move.faults_s.append(fault.move.order_s)


def _new_killed(there: Living, fault: Fault) -> None:
    name, pid = _new_worker(there, fault, [*there.workers()])
    _at(fault, f"the worker of {name}, while it starts", answers=False)
    kill(pid)


def _old_killed(there: Living, fault: Fault) -> None:
    ((name, pid),) = there.workers().items()
    new, _ = _new_worker(there, fault, [name])
    _at(fault, f"the worker of {name}, while {new} starts")
    kill(pid)


def _spot_lost(there: Living, fault: Fault) -> None:
    spots = {each["name"] for each in there.settings["slices"] if each["spot"]}
    there.until(lambda: bool(_ready(there) & spots), "give batches to a spot slice")
    victim = min(_ready(there) & spots)
    new, _ = _new_worker(there, fault, [*there.workers()])
    _at(fault, f"{victim} is taken away, while {new} starts")
    status, told = there.ask("POST", f"/v2/slices/{victim}/lost", {"reason": TAKEN})
    if status >= 300:
        raise RuntimeError(f"POST /v2/slices/{victim}/lost answers {status}: {told}")


def _gateway_killed(there: Living, fault: Fault) -> None:
    _new_worker(there, fault, [*there.workers()])
    _at(fault, "the gateway, while workers start")
    fault.move.down_s = fault.move.order_s, float("inf")
    there.kill()
    there.start()


def _ready(there: Living) -> set[str]:
    """Return the slices with a replica that gets batches."""
    status, told = there.ask("GET", "/v2/status")
    if status != 200:
        raise ConnectionError(f"GET /v2/status answers {status}: {told}")
    (model,) = told["models"]
    return {each["slice"] for each in model["replicas"] if each["state"] == "ready"}


SCENARIOS = (
    Scenario("new worker killed", _new_killed),
    Scenario("old worker killed", _old_killed),
    Scenario("spot slice lost", _spot_lost, (RateStep(CALM, CALM_S), RateStep(BUSY, BUSY_S))),
    Scenario("gateway killed", _gateway_killed),
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [scenario.name for scenario in SCENARIOS]
    add = parser.add_argument
    add("--only", nargs="+", choices=names, default=(), metavar="FAULT", help=", ".join(names))
    add("--seconds", type=float, default=20, help="of full load in each run")
    add("--seed", type=int, default=0)
    add("--profiles", type=Path, metavar="DIR", help="profiles and tables that stay: a next start is sooner")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
