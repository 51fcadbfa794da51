"""Do replicas that follow the load keep what a fixed provision for the peak keeps, and for how much less?

  python -m loadtests.scaling.autoscaling_live
  python -m loadtests.scaling.autoscaling_live --subject waiting --day 180 --markdown day.md --png day.png

A day in minutes, with a crowd that comes at once in the morning: a cosine in capacities of one replica of the
most accurate variant. It is played in turns, the same arrivals, against gateways of three provisions: `slo`
(`scaling: {policy: slo}`), `hpa` (its rule, in the same gateway, on the same slices) and `fixed peak` (no
`replicas:`: every slice, always). `minilm` really computes: one or two slices of one core, and its quicker
variants may answer (`accuracy_min`); answers are judged by labels. `waiting` only waits: one to six replicas.

Latencies count from the instant a request was due. Replica-seconds are slices held, from the gateway's
metrics each 0.2 s, starts and endings included; they are held against what the gateway itself says it cost. A
round in which the client was late, or others used the cores (or the hypervisor did), is VOID.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from loadtests.harness.dispatch import Load, Server, measure
from loadtests.harness.gateway import Gateway, started
from loadtests.harness.pictures import png
from loadtests.harness.processes import undisturbed
from loadtests.harness.record import Record
from loadtests.harness.report import IN_TIME, Promise, summarise
from loadtests.scaling.autoscaling_live_shown import draw, show, write_csv, write_markdown
from loadtests.scaling.autoscaling_live_subjects import CASTS, PRICE, Cast
from loadtests.scaling.autoscaling_live_trace import (
    Count,
    Round,
    arrivals,
    changes,
    day,
    held_seconds,
    worst,
)
from loadtests.scaling.autoscaling_live_watch import (
    READ_S,
    Course,
    Machine,
    await_rest,
    kept_profiles,
    watching,
    why,
)
from loadtests.selection.variants_play import read_told
from loadtests.selection.variants_scores import Known, Stair, figures
from loadtests.selection.variants_subjects import await_variants
from loadtests.stand.cores import intruders
from loadtests.stand.stage import Place
from loadtests.stand.testbed import CONNECTIONS_MAX, may_go_first
from serving.simulation.traffic.patterns import RateStep, Seconds

PEAK = "fixed peak"
PROVISIONS = ("slo", "hpa", PEAK)
WARM_UP_S = 5.0  # of the night's load before the day, which count for nothing
CONNECTIONS = 64
_BILL_S = (
    1.0  # replica-seconds that readings and the gateway's own bill may differ by, beyond READ_S a change
)


@dataclass(frozen=True, slots=True)
class Trace:
    """The day of a subject: when its requests are due, in a warm-up and then."""

    steps: Sequence[RateStep]
    warm_up_s: Seconds
    due_s: Seconds

    @property
    def span_s(self) -> float:
        """How long it lasts."""
        return sum(step.seconds for step in self.steps)

    @property
    def load(self) -> float:
        """Requests a second, in the mean."""
        return len(self.due_s) / self.span_s


def main() -> int:
    """Return 0 if all rounds can be believed, 1 if one cannot, 2 if one could not be made."""
    asked = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 160)
    rounds: list[Round] = []
    steps: dict[str, Sequence[RateStep]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder, kept_profiles(asked.profiles) as profiles:
        for name in asked.subject:
            cast = CASTS[name](Path(folder, name), asked.seed)
            try:
                known = learn(cast, profiles)
                trace = trace_of(cast, known, asked.day, asked.seed)
                steps[name] = trace.steps
                console.print(_said(name, known, trace), highlight=False)
                for provision in [each for _ in range(asked.rounds) for each in asked.only]:
                    rounds.append(play(cast, provision, known, trace, profiles))
                    show(rounds[-1:], console)
            except (ValueError, OSError, RuntimeError) as error:
                sys.stderr.write(f"autoscaling_live: {name}: {error}\n")
                return 2
    show(rounds, console)
    for path, write in ((asked.csv, write_csv), (asked.markdown, write_markdown)):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(rounds, path)
    if asked.png:
        draw(rounds, steps, asked.png)
    return int(any(one.voids for one in rounds))


def learn(cast: Cast, profiles: Path) -> Known:
    """Return the capabilities of the variants, and the data needed to judge their answers.

    A gateway with the model everywhere supplies the data. A gateway that scales the model then makes the
    tables of replica capacity. Profiles and tables are ready for all later gateways. Raises the errors of
    `gateway.started`.
    """
    with serving(cast, PEAK, profiles) as gateway:
        known = cast.known(gateway, Place(0, 1, profiles))
        for variant in known.accuracy:
            cast.subject.learn(gateway, variant)
    with serving(cast, PROVISIONS[0], profiles):
        return known


def trace_of(cast: Cast, known: Known, day_s: float, seed: int) -> Trace:
    """Return the subject's day, and a moment of its night before."""
    full = known.full / cast.subject.terms.rows
    night = [RateStep(cast.shape.low * full, WARM_UP_S)]
    steps = day(cast.shape, day_s, full)
    return Trace(steps, arrivals(night, seed + 1), arrivals(steps, seed))


@contextlib.contextmanager
def serving(cast: Cast, provision: str, profiles: Path) -> Iterator[Gateway]:
    """Yield a gateway of this provision that is at rest, with all its variants loaded."""
    scaled = provision != PEAK
    entry = cast.entry({"min": 1, "max": cast.most} if scaled else None)
    sections = {"scaling": {"policy": provision}} if scaled else {}
    with started([entry], (), profiles, slices=cast.slices(), **sections) as gateway:
        await_variants(cast.subject, gateway)
        await_rest(gateway)
        yield gateway


def play(cast: Cast, provision: str, known: Known, trace: Trace, profiles: Path) -> Round:
    """Return the day against a gateway of its own; errors as `gateway.started`."""
    subject, kept = cast.subject, dict[int, bytes]()
    with serving(cast, provision, profiles) as gateway:
        server = Server(gateway.host, gateway.rest_port, CONNECTIONS, CONNECTIONS_MAX)
        first = may_go_first()
        measure([Load(trace.warm_up_s, subject.requests())], server)
        print(f"  {provision}: {why(gateway, subject.terms.model)}", flush=True)
        machine = Machine(gateway)
        # the watch goes first as well: if it waited for a core, the client would for the interpreter
        with undisturbed(None, first), watching(gateway) as course:
            record, client = measure([Load(trace.due_s, subject.requests())], server, kept)
        voids = intruders(machine.shares())
    promise = Promise(subject.terms.model, subject.terms.slo_ms, subject.terms.rows)
    voids += summarise(record, [promise], trace.span_s, client).voids
    (told,) = read_told(record, kept, subject, 1)
    counts, held_s = _held(record, course, trace.span_s)
    mean = Stair(trace.load * subject.terms.rows / known.full, trace.span_s)
    return Round(
        subject=subject.terms.model,
        provision=provision,
        figures=figures(told, mean, 0.0, subject.terms.rows, known),
        worst=worst(told, trace.span_s),
        held_s=held_s,
        cost=held_s * PRICE / 3600,
        changes=course.changes,
        counts=counts,
        good=[one.due_s for one in told if one.ending == IN_TIME],
        offered=[one.due_s for one in told],
        voids=[*voids, *_misread(course)],
    )


def _held(record: Record, course: Course, span_s: float) -> tuple[list[Count], float]:
    """Return the changes of the count in seconds of the day, and the replica-seconds of the day."""
    start_s = record.start_ns / 1e9
    counts = changes([Count(one.at_s - start_s, one.count) for one in course.counts])
    return counts, held_seconds(counts, 0.0, span_s)


def _misread(course: Course) -> list[str]:
    """Return a sentence if the readings of the count do not add up to the cost that the gateway states."""
    if course.fault:
        return [course.fault]
    counts = course.counts
    read_s = held_seconds(counts, counts[0].at_s, counts[-1].at_s)
    billed_s = course.cost * 3600 / PRICE
    if abs(read_s - billed_s) <= _BILL_S + READ_S * len(changes(counts)):
        return []
    return [f"{read_s:.1f} replica-seconds were read, and {billed_s:.1f} were paid for"]


def _said(name: str, known: Known, trace: Trace) -> str:
    rates = [step.rate for step in trace.steps]
    return (
        f"{name}: one replica carries {known.full:.1f} rows/s of {known.allowed[0]} in full batches; a day of"
        f" {trace.span_s:g} s, {min(rates):.1f} to {max(rates):.1f} requests/s, {len(trace.due_s)} in all;"
        f" a slice costs {PRICE:g} an hour"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--subject", nargs="+", choices=CASTS, default=list(CASTS))
    add("--only", nargs="+", choices=PROVISIONS, default=PROVISIONS, metavar="PROVISION")
    add("--day", type=float, default=180, help="how many seconds it takes")
    add("--rounds", type=int, default=1)
    add("--seed", type=int, default=0)
    add("--profiles", type=Path, metavar="DIR", help="profiles and tables that stay: a next start is sooner")
    add("--csv", type=Path, metavar="FILE")
    add("--markdown", type=Path, metavar="FILE")
    add("--png", type=png, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
