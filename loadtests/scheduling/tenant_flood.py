"""A tenant floods one slice: does another that stays within its share notice, and who gets what?

  python -m loadtests.scheduling.tenant_flood
  python -m loadtests.scheduling.tenant_flood --seconds 5 --profiles DIR --json flood.json

Two cases on `mlp`, whose capacity is that of its profile: `a` asks for three times the capacity and `b` for
0.3 of it, with equal weights; then both ask for three times the capacity, and `a` weighs three times as
much. Who is turned away should learn it at once: 429 `quota` where others are content with their share, 503
`overload` where nobody is.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtests.harness.gateway import model_entry
from loadtests.harness.payloads import Contents, Target
from loadtests.harness.report import OK, OutcomeCount
from loadtests.openloop import Ask, Course
from loadtests.stand.stage import Place, Played, add_arguments, capacity, read_place, set_up

MODEL, VARIANT, SLO_MS = "mlp", "fp32", 50.0
SOON_MS = 5.0  # within which a client should learn that it was turned away
ATTAINED = 0.99  # of the requests of a tenant that stays within its share
SHARE_OFF = 0.1  # by which goodput may be off the weights


@dataclass(frozen=True, slots=True)
class Part:
    """What a tenant asks for, in capacities, and what weighs for it."""

    tenant: str
    load: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    parts: Sequence[Part]


CASES = (
    Case("a floods, b stays within its share", (Part("a", 3.0), Part("b", 0.3))),
    Case("both flood, a weighs three times as much", (Part("a", 3.0, 3.0), Part("b", 3.0))),
)


@dataclass(frozen=True, slots=True)
class Treated:
    """How a tenant fared. Rates are requests a second. `told_soon`: of the requests turned away or given up,
    the share that ended within SOON_MS of being due."""

    tenant: str
    weight: float
    offered: float
    goodput: float
    attainment: float
    told_soon: float
    outcomes: Sequence[OutcomeCount]


@dataclass(frozen=True, slots=True)
class Run:
    case: str
    capacity: float
    tenants: Sequence[Treated]
    voids: Sequence[str]


def main() -> int:
    """Return 0 if every run can be believed, 1 if one cannot, 2 if none could be made."""
    asked = _arguments()
    try:
        with read_place(asked) as place:
            runs = list(measure(asked, place))
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"tenant_flood: {error}\n")
        return 2
    console = Console(width=None if sys.stdout.isatty() else 150)
    for run in runs:
        show(run, console)
    kept = promises(runs)
    for promise, met in kept.items():
        print(f"{'met' if met else 'MISSED'}: {promise}")
    if asked.json:
        found = {"arguments": sys.argv[1:], "runs": [asdict(run) for run in runs], "promises": kept}
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found) + "\n")
    return 1 if any(run.voids for run in runs) else 0


def measure(asked: argparse.Namespace, place: Place) -> Iterator[Run]:
    """Yield each case on a gateway of its own."""
    entry = model_entry(MODEL, slo_ms=SLO_MS, batching={"policy": asked.policy})
    for case in CASES:
        tenants = [{"name": part.tenant, "weight": part.weight} for part in case.parts]
        with set_up([entry], place, tenants=tenants) as stage:
            full = capacity(stage.latency(MODEL, VARIANT), SLO_MS * 1e3)
            asks = [
                Ask(Target(MODEL, tenant=part.tenant), f"{part.load * full}", SLO_MS) for part in case.parts
            ]
            played = stage.play(asks, Course(asked.seconds, contents=Contents(seed=asked.seed)))
            treated = [treat(played, number, part) for number, part in enumerate(case.parts)]
            yield Run(case.name, full, treated, played.voids)


def treat(played: Played, number: int, part: Part) -> Treated:
    """Return how the tenant of this load fared."""
    summary = played.report.loads[number]
    told_ms = played.latency_ms(number)
    record = played.record
    statuses = np.asarray(record.statuses)[np.asarray(record.loads) == number]
    turned_away = told_ms[statuses != OK]
    soon = float((turned_away <= SOON_MS).mean()) if len(turned_away) else float("nan")
    return Treated(
        part.tenant, part.weight, summary.offered_rate, summary.goodput, summary.attainment, soon,
        summary.outcomes,
    )  # fmt: skip


def promises(runs: Sequence[Run]) -> dict[str, bool]:
    """Return the promises about the valid runs, and whether each was kept."""
    kept = {}
    for run in runs:
        if run.voids:
            continue
        weights = sum(one.weight for one in run.tenants)
        goodput = sum(one.goodput for one in run.tenants)
        within = [one for one in run.tenants if one.offered <= run.capacity * one.weight / weights]
        for one in within:
            promise = f"{run.case}: {ATTAINED:.0%} of what {one.tenant} asks is answered in time"
            kept[promise] = one.attainment >= ATTAINED
        for one in run.tenants if not within else ():
            due = one.weight / weights
            promise = f"{run.case}: {one.tenant} gets {due:.0%} of the goodput, within {SHARE_OFF:.0%} of it"
            kept[promise] = abs(one.goodput / goodput - due) <= SHARE_OFF * due
    return kept


def show(run: Run, console: Console) -> None:
    """Print a row for each tenant and each way in which its requests ended."""
    title = f"{run.case}; capacity {run.capacity:.0f}/s; times in ms from due"
    table = Table(title=title)
    for column in ("tenant", "weight", "offered/s", "in time/s", "in time", "refused soon"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("outcome", "requests", "p50", "p99"):
        table.add_column(column, justify="left" if column == "outcome" else "right", no_wrap=True)
    for one in run.tenants:
        table.add_section()
        figures = [
            one.tenant, f"{one.weight:g}", f"{one.offered:.0f}", f"{one.goodput:.0f}",
            f"{one.attainment:.2%}", f"{one.told_soon:.1%}",
        ]  # fmt: skip
        for outcome in one.outcomes:
            times = f"{outcome.p50_ms:.1f}", f"{outcome.p99_ms:.1f}"
            table.add_row(*figures, outcome.outcome, str(outcome.count), *times)
            figures = [""] * len(figures)
    console.print(table)
    for void in run.voids:
        console.print(f"VOID: {void}", style="bold red", highlight=False)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="slo", help="slo, static or aimd")
    add_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
