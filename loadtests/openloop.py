"""Open-loop load on a gateway: requests go out when they are due, however slow the answers are.

A closed loop waits for an answer before it asks again, so a server that stalls is asked less and its
latencies look good. Here the arrivals are drawn beforehand (seeded), and every latency counts from the
instant a request was due. The client measures its own lateness; a run in which it was late is void: exit 1.

  python -m loadtests.openloop --port 8000 --load digits:linear=5000 --seconds 5
  python -m loadtests.openloop --load digits=300,minilm=10 --cv 4 --png run.png --json run.json
  python -m loadtests.openloop --load noisy/mlp=100:5+900:5+100:5,quiet/mlp=20
  python -m loadtests.openloop --load mlp=minutes@trace.txt@200 --seconds 60 --timeout-ms 50

A load is [TENANT/]MODEL[:VARIANT]=RATE. RATE is requests a second; or steps, RATE:SECONDS joined by +; or
minutes@FILE, one count of requests a minute per line (@MEAN scales it); or times@FILE, one instant per line.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console

from loadtests.harness import chart, table
from loadtests.harness.dispatch import Load, Server, measure
from loadtests.harness.payloads import Contents, Target, fetch_metadata, make_questions, stated_slo_ms
from loadtests.harness.pictures import png
from loadtests.harness.processes import undisturbed
from loadtests.harness.report import Promise, Report, summarise
from serving.simulation.traffic.patterns import POISSON_CV, due_times, length_s

SLO_MS = 1000.0  # where neither the server nor the caller states one


@dataclass(frozen=True, slots=True)
class Ask:
    """One load as asked for; `pattern` as `arrivals.due_times` reads it, `slo_ms` None for the server's."""

    target: Target
    pattern: str
    slo_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """How the arrivals of all loads come: for how long, how bursty, from which seed, with which deadline."""

    seconds: float = 10.0
    cv: float = POISSON_CV
    timeout_ms: float = 0.0
    contents: Contents = field(default_factory=Contents)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can begin: its arrivals and requests, what was promised, how long the arrivals last."""

    loads: Sequence[Load]
    promises: Sequence[Promise]
    span_s: float


def main() -> int:
    """Return 0 if the run can be believed, 1 if it is void, 2 if none could be made."""
    asked = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 150)
    try:
        asks = read_loads(asked.load, read_slos(asked.slo))
        with undisturbed(asked.core, asked.realtime):
            report = run(asks, _course(asked), _server(asked))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"openloop: {error}\n")
        return 2
    table.show(report, console)
    title = "  ".join(asked.load) + f"  at {asked.host}:{asked.port}, gaps of CV {asked.cv:g}"
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps({"arguments": sys.argv[1:], **report.as_json()}) + "\n")
    if asked.png:
        chart.draw(report, asked.png, title)
    return 1 if report.voids else 0


def run(asks: Sequence[Ask], course: Course, server: Server) -> Report:
    """Play one run over one or several loads. Errors as in `prepare`, and OSError if no server listens."""
    prepared = prepare(asks, course, server)
    record, client = measure(prepared.loads, server)
    return summarise(record, prepared.promises, prepared.span_s, client)


def prepare(asks: Sequence[Ask], course: Course, server: Server) -> Prepared:
    """Draw the arrivals and make the requests, from what the server says of its models.

    ValueError for a load that cannot be read or has no arrivals, OSError where the server does not answer.
    """
    url = f"http://{server.host}:{server.port}"
    loads, promises = [], []
    for number, ask in enumerate(asks):
        rng = np.random.default_rng([course.contents.seed, number])
        due_s = due_times(ask.pattern, course.seconds, course.cv, rng)
        if not len(due_s):
            raise ValueError(f"the load {ask.target.name}={ask.pattern} has no arrivals; raise its rate")
        metadata = fetch_metadata(url, ask.target.model)
        questions = make_questions(ask.target, metadata, course.contents, course.timeout_ms)
        loads.append(Load(due_s, [question.request for question in questions]))
        slo_ms = ask.slo_ms or stated_slo_ms(metadata, course.contents.rows) or SLO_MS
        promises.append(Promise(ask.target.name, slo_ms, course.contents.rows))
    return Prepared(loads, promises, max(length_s(ask.pattern, course.seconds) for ask in asks))


def read_loads(texts: Sequence[str], slos_ms: dict[str, float]) -> list[Ask]:
    """Return the loads of all --load options; ValueError, in a sentence, for one that is none."""
    asks = []
    for text in ",".join(texts).split(","):
        name, sign, pattern = text.strip().partition("=")
        tenant, slash, rest = name.rpartition("/")
        model, colon, variant = rest.partition(":")
        if not (sign and pattern and model) or (slash and not tenant) or (colon and not variant):
            raise ValueError(f"--load: expected [TENANT/]MODEL[:VARIANT]=RATE, got {text!r}")
        asks.append(Ask(Target(model, variant, tenant), pattern, slos_ms.get(model)))
    names = [ask.target.name for ask in asks]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"--load: {', '.join(sorted(twice))} is given more than once")
    if unused := set(slos_ms) - {ask.target.model for ask in asks}:
        raise ValueError(f"--slo: no load asks for {', '.join(sorted(unused))}")
    return asks


def read_slos(text: str) -> dict[str, float]:
    """Parse MODEL=MS,... into milliseconds by model. Raises ValueError for anything else."""
    slos_ms = {}
    for part in filter(None, text.split(",")):
        model, _, ms = part.partition("=")
        try:
            slos_ms[model.strip()] = float(ms)
        except ValueError:
            raise ValueError(f"--slo: expected MODEL=MILLISECONDS, got {part!r}") from None
    return slos_ms


def _course(asked: argparse.Namespace) -> Course:
    contents = Contents(asked.rows, asked.words, asked.distinct, asked.seed)
    return Course(asked.seconds, asked.cv, asked.timeout_ms, contents)


def _server(asked: argparse.Namespace) -> Server:
    return Server(asked.host, asked.port, asked.connections, asked.connections_max, asked.patience_s)


def _words(text: str) -> tuple[int, int]:
    low, sign, high = text.partition("-")
    bounds = int(low), int(high if sign else low)
    if not 1 <= bounds[0] <= bounds[1]:
        raise ValueError
    return bounds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--load",
        action="append",
        required=True,
        help="loads, with commas between; see above; may be repeated",
    )
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="of REST")
    add("--seconds", type=float, default=10, help="of every load that is not steps")
    add("--cv", type=float, default=POISSON_CV, help="of the gaps: 1 Poisson, 4 bursts, 0 a metronome")
    add("--seed", type=int, default=0, help="of arrivals and contents")
    add("--slo", default="", metavar="MODEL=MS,...", help="instead of what the server states")
    add("--timeout-ms", type=float, default=0, help="send this deadline as x-request-timeout-ms")
    add("--rows", type=int, default=1, help="per request")
    add("--words", type=_words, default=(3, 60), metavar="LOW-HIGH", help="of a text")
    add("--distinct", type=int, default=256, help="different requests per load, sent in rotation")
    add("--connections", type=int, default=16, help="opened before the run")
    add("--connections-max", type=int, default=1024, help="a run that needs more is void")
    add("--patience-s", type=float, default=30, help="for the last answers")
    add("--core", type=int, help="run on this core only")
    add("--realtime", action="store_true", help="go before all else on the core (needs root)")
    add("--json", type=Path, metavar="FILE")
    add("--png", type=png, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
