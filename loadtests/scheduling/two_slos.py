"""Two models with SLOs of 25 and 300 ms on one slice, at shares of what it can do for both.

  python -m loadtests.scheduling.two_slos
  python -m loadtests.scheduling.two_slos --points 0.6 --seconds 5 --policies slo --profiles DIR --json
  two.json

`digits` is the tight one. `minilm`, asked for a few words each time, is the loose one: the batches that its
own SLO would allow take many times as long as a digit may. The joint capacity is that of a cycle of one batch
of each in which no digit is late. `static` takes what waits, up to the largest batch of the SLO, as peers do.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from loadtests.harness.gateway import model_entry
from loadtests.harness.payloads import Contents, Target
from loadtests.harness.report import Summary
from loadtests.openloop import Ask, Course
from loadtests.stand.stage import Place, Stage, add_arguments, read_place, rows_within, set_up

POINTS = (0.6, 0.9)
POLICIES = ("slo", "static")
WORDS = (3, 8)  # of a text: its bytes stay in the smallest bucket, mostly


@dataclass(frozen=True, slots=True)
class Party:
    """A model, its promise, and the size bucket of its requests (0: it has none)."""

    model: str
    variant: str
    slo_ms: float
    size: int = 0

    def entry(self, policy: str) -> dict[str, object]:
        """Return the model's entry in `models:`."""
        return model_entry(
            self.model, slo_ms=self.slo_ms, variants=[self.variant], default_variant=self.variant,
            batching={"policy": policy},
        )  # fmt: skip


TIGHT = Party("digits", "ensemble", 25)
LOOSE = Party("minilm", "fp32-128", 300, 64)


@dataclass(frozen=True, slots=True)
class Run:
    """A policy at `load` times the joint capacity; the summaries are of the tight and of the loose model."""

    policy: str
    load: float
    loads: Sequence[Summary]
    voids: Sequence[str]


def main() -> int:
    """Return 0 if every run can be believed, 1 if one cannot, 2 if none could be made."""
    asked = _arguments()
    try:
        with read_place(asked) as place:
            runs = list(measure(asked, place))
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"two_slos: {error}\n")
        return 2
    show(runs, Console(width=None if sys.stdout.isatty() else 150))
    if asked.json:
        found = [asdict(run) for run in runs]
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps({"arguments": sys.argv[1:], "runs": found}) + "\n")
    return 1 if any(run.voids for run in runs) else 0


def measure(asked: argparse.Namespace, place: Place) -> Iterator[Run]:
    """Yield every policy at every point; all are offered the same, by the profiles that the first one
    found."""
    full: tuple[float, float] | None = None
    for policy in asked.policies:
        with set_up([TIGHT.entry(policy), LOOSE.entry(policy)], place) as stage:
            full = full or joint_capacity(stage)
            for load in asked.points:
                asks = [
                    Ask(Target(party.model), f"{load * rate}", party.slo_ms)
                    for party, rate in zip((TIGHT, LOOSE), full, strict=True)
                ]
                played = stage.play(
                    asks, Course(asked.seconds, contents=Contents(words=WORDS, seed=asked.seed))
                )
                yield Run(policy, load, played.report.loads, played.voids)


def joint_capacity(stage: Stage) -> tuple[float, float]:
    """Return requests a second of both, tight and loose: a batch of each in every cycle. A tight request that
    just missed its batch waits for one cycle, then is in the next (Nexus, SOSP 2019, 6.1).

    Among the cycles in which no tight request is late, it is the one with the largest product of the rates.
    """
    tight, loose = (stage.latency(party.model, party.variant) for party in (TIGHT, LOOSE))
    slo_us = TIGHT.slo_ms * 1e3
    cycles = []
    for loose_rows in range(1, rows_within(loose, slo_us, LOOSE.size) + 1):
        loose_us = loose.predict_us(loose_rows, LOOSE.size)
        tight_rows = rows_within(tight, (slo_us - loose_us) / 2, TIGHT.size)
        tight_us = tight.predict_us(tight_rows, TIGHT.size)
        if loose_rows == 1 or loose_us + 2 * tight_us <= slo_us:
            cycle_s = (loose_us + tight_us) / 1e6
            cycles.append((tight_rows / cycle_s, loose_rows / cycle_s))
    return max(cycles, key=lambda rates: rates[0] * rates[1])


def show(runs: Sequence[Run], console: Console) -> None:
    """Print a row for each model of each run."""
    table = Table(title="two models on one slice, open loop; latency in ms from the due time, of answers 200")
    table.add_column("policy")
    table.add_column("load", justify="right")
    table.add_column("model")
    for column in ("SLO ms", "req/s", "in time", "goodput/s", "p50", "p99", "max"):
        table.add_column(column, justify="right")
    for run in runs:
        table.add_section()
        for one in run.loads:
            table.add_row(
                run.policy, f"{run.load:g}", one.name, f"{one.slo_ms:g}", f"{one.offered_rate:.0f}",
                f"{one.attainment:.2%}", f"{one.goodput:.0f}",
                *(f"{one.latency[name]:.1f}" for name in ("p50_ms", "p99_ms", "max_ms")),
            )  # fmt: skip
    console.print(table)
    for run in runs:
        for void in run.voids:
            console.print(f"VOID: {run.policy} at {run.load:g}: {void}", style="bold red", highlight=False)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--points", type=float, nargs="+", default=POINTS, help="shares of the joint capacity"
    )
    parser.add_argument("--policies", nargs="+", default=POLICIES, help="slo, static or aimd")
    add_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
