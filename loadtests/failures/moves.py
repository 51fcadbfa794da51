"""Is a request lost while a gateway is changed under load? `digits` and `minilm`, live, one change at a time.

  python -m loadtests.failures.moves
  python -m loadtests.failures.moves --only migration "gateway killed" --seconds 10 --json moves.json

Changes are ordered as operators order them: a placement (`PUT /v2/placement`), a load (repository API), an
edit of penstock.yaml. Lost is a request without an answer, and one with an error that is no stated refusal;
who finds nobody listening, while a killed gateway is started again, is counted apart. The window is from the
order of a change to a second after its end. Lost requests count on any machine; a run in which the client was
late, or others used the cores, is VOID for its latencies.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtests.failures.changes import DIGITS, MINILM, SCENARIOS, SLO_MS, Move, Scenario, settings, untrue
from loadtests.failures.losses import DOWN, LOST, REFUSAL, Finding, Part, judge
from loadtests.harness.dispatch import Server, measure
from loadtests.harness.payloads import Contents, Target
from loadtests.harness.processes import undisturbed
from loadtests.harness.record import ClientState, Record
from loadtests.harness.report import summarise, without_nan
from loadtests.openloop import Ask, Course, Prepared, prepare
from loadtests.placing.placed import shipped_profiles
from loadtests.stand.cores import Usage, intruders, parties
from loadtests.stand.living import Living, living
from loadtests.stand.testbed import CONNECTIONS_MAX, may_go_first

WORDS = (3, 20)
CONNECTIONS = 64
CALM_S = 2.5  # of load before the order
QUIET_S = 1.0  # for which others are watched before and after a run


def main() -> int:
    """Return 0 if every promise was kept and every run can be believed, 1 if not, 2 if a run could not be
    made."""
    asked = _arguments()
    findings: list[Finding] = []
    console = Console(width=None if sys.stdout.isatty() else 150)
    failed = False
    for scenario in SCENARIOS:
        if asked.only and scenario.name not in asked.only:
            continue
        try:
            findings.append(play(scenario, asked))
        except (ValueError, OSError, RuntimeError) as error:
            sys.stderr.write(f"moves: {scenario.name}: {error}\n")
            failed = True
        else:
            say(findings[-1], console)
    show(findings, console)
    if asked.json:
        found = {"arguments": sys.argv[1:], "findings": list(map(asdict, findings))}
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(without_nan(found), allow_nan=False) + "\n")
    return 2 if failed else int(any(one.broken or one.voids for one in findings))


def play(scenario: Scenario, asked: argparse.Namespace) -> Finding:
    """Return the scenario on a gateway of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as made, shipped_profiles() as profiles:
        folder = Path(made)
        with living(folder, settings(folder, profiles)) as there:
            gateway = there.gateway
            server = Server(gateway.host, gateway.rest_port, CONNECTIONS, CONNECTIONS_MAX)
            prepared = prepare(_asks(scenario, asked), _course(asked), server)
            voids = _disturbed(there)
            record, client, move = _changed(there, scenario, prepared, server)
            voids += _disturbed(there)
            broken = untrue(there, scenario.after)
    report = summarise(record, prepared.promises, prepared.span_s, client)
    voids += report.voids
    if move.end_s > record.start_ns / 1e9 + prepared.span_s:
        voids.append("the change took longer than the load lasted: raise --seconds")
    return judge(scenario, record, move, broken, voids)


def say(one: Finding, console: Console) -> None:
    """Print how a change ended, at once."""
    lost = sum(parts["whole"].endings.get(LOST, 0) for parts in one.parts.values())
    console.print(f"{one.scenario}: {one.ended} after {one.took_s:.1f} s, {lost} lost", highlight=False)
    for reason in one.reasons:
        console.print(f"  {reason}", highlight=False, markup=False)
    for model, outcomes in one.outcomes.items():
        if outcomes:
            told = ", ".join(f"{count} x {what}" for what, count in outcomes.items())
            console.print(f"  {model}: {told}", highlight=False)
    for broken in one.broken:
        console.print(f"  BROKEN: {broken}", style="bold red", highlight=False, markup=False)
    for void in one.voids:
        console.print(f"  VOID: {void}", style="bold red", highlight=False, markup=False)


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print a row for each model of each change."""
    table = Table(title="a live change under an open loop; latency in ms from the due time, of answers 200")
    for column in ("change", "took s", "model"):
        table.add_column(column)
    for column in ("req", LOST, DOWN, REFUSAL, "in window", LOST, "in time: before", "window", "after",
                   "p99: before", "window"):  # fmt: skip
        table.add_column(column, justify="right")
    for one in findings:
        table.add_section()
        head = [one.scenario + (" VOID" if one.voids else ""), f"{one.took_s:.1f}"]
        for model, parts in one.parts.items():
            whole, window = parts["whole"], parts["window"]
            table.add_row(
                *head, model, str(whole.offered), *_counts(whole, LOST, DOWN, REFUSAL), str(window.offered),
                *_counts(window, LOST), *(_percent(parts[name]) for name in ("before", "window", "after")),
                *(f"{parts[name].p99_ms:.1f}" for name in ("before", "window")),
            )  # fmt: skip
            head = ["", ""]
    console.print(table)


def _changed(
    there: Living, scenario: Scenario, prepared: Prepared, server: Server
) -> tuple[Record, ClientState, Move]:
    """Return the run, with the change ordered in its midst by a thread of its own."""
    move = Move()

    def carry_out() -> None:
        time.sleep(CALM_S)
        scenario.carry_out(there, move)

    with ThreadPoolExecutor(1) as threads:
        ordered: Future[None] = threads.submit(carry_out)
        with undisturbed(None, may_go_first()):
            record, client = measure(prepared.loads, server)
        ordered.result()
    return record, client, move


def _disturbed(there: Living) -> list[str]:
    """Return why a run at this time must not be believed."""
    usage = Usage(parties(there.gateway))
    time.sleep(QUIET_S)
    return intruders(usage.shares())


def _counts(part: Part, *names: str) -> list[str]:
    return [str(part.endings.get(name, 0)) for name in names]


def _percent(part: Part) -> str:
    return f"{part.attainment:.1%}" if part.offered else "-"


def _asks(scenario: Scenario, asked: argparse.Namespace) -> list[Ask]:
    return [
        Ask(Target(DIGITS), f"{asked.digits}", scenario.slo_ms),
        Ask(Target(MINILM), f"{asked.minilm}", SLO_MS[MINILM]),
    ]


def _course(asked: argparse.Namespace) -> Course:
    return Course(asked.seconds, contents=Contents(words=WORDS, seed=asked.seed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [scenario.name for scenario in SCENARIOS]
    add = parser.add_argument
    add("--only", nargs="+", choices=names, default=(), metavar="CHANGE", help=", ".join(names))
    add("--digits", type=float, default=100, help="requests a second")
    add("--minilm", type=float, default=8, help="requests a second")
    add("--seconds", type=float, default=12, help="of each run")
    add("--seed", type=int, default=0)
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
