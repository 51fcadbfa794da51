"""Does a planned placement keep promises that a naive one breaks? The same rates, live, on this machine.

  python -m loadtests.placing.placed
  python -m loadtests.placing.placed --rates digits=200,minilm=15 --seconds 8 --rounds 3 --json placed.json

`digits` has to be answered sooner than one batch of `minilm` takes. `plan` is what `penstock place` prints
for the rates; `each core` has both models on a slice of every core, `all cores` both on one slice of all.
They are played in turns, each time on a gateway of its own that was asked for a few seconds before. Gateway
and client are on the same core in every run; what each took is said. Figures are medians of the rounds that
can be believed; a placement without any is VOID.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from loadtests.harness.dispatch import Server, measure
from loadtests.harness.gateway import ROOT, Gateway, started
from loadtests.harness.payloads import Contents, Target
from loadtests.harness.processes import pin, undisturbed
from loadtests.harness.report import IN_TIME, Summary, summarise, without_nan
from loadtests.openloop import Ask, Course, prepare
from loadtests.scheduling.two_slos import Party
from loadtests.stand.cores import Usage, intruders, parties
from loadtests.stand.testbed import CONNECTIONS_MAX, may_go_first

PARTIES = (Party("digits", "cnn", 5), Party("minilm", "fp32-128", 250))
PLAN, EACH, ALL = "plan", "each core", "all cores"
CONNECTIONS = 64  # opened before a run
WORDS = (40, 80)  # of a text: about the largest size, which is what a plan reckons with
WARM_UP_S = 2.0  # of load before each run, which count for nothing
KEPT = 0.99  # of the requests of a model, within its SLO
PLAN_S = 120.0  # within which a plan has to be there

Slices = Sequence[Mapping[str, object]]  # as `slices:` of penstock.yaml


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement: its slices, and those of each model."""

    name: str
    slices: Slices
    models: Mapping[str, Sequence[str]]

    def entries(self) -> list[dict[str, object]]:
        """Return the models as in `models:` of penstock.yaml."""
        return [party.entry("slo") | {"slices": list(self.models[party.model])} for party in PARTIES]


@dataclass(frozen=True, slots=True)
class Round:
    """A run against one placement; `cpu`: cores that each party kept busy."""

    placement: str
    loads: Sequence[Summary]
    cpu: Mapping[str, float]
    voids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a model in a placement: medians of its `rounds` that can be believed, or of all where none can."""

    placement: str
    model: str
    attainment: float
    p50_ms: float
    p99_ms: float
    rounds: int

    @property
    def kept(self) -> bool:
        """Whether its promise was."""
        return self.attainment >= KEPT


def main() -> int:
    """Return 0 if every placement has rounds that can be believed, 1 if one has none, 2 if nothing ran."""
    asked = _arguments()
    rounds: list[Round] = []
    try:
        rates = read_rates(asked.rates)
        with _profiles(asked) as profiles:
            naive = naive_placements(len(os.sched_getaffinity(0)))
            plan = planned(naive[0], rates, profiles)
            _say([plan, *naive], asked)
            for one in play_rounds([plan, *naive], profiles, rates, asked):
                rounds.append(one)
                _say_round(one)
    except (ValueError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"placed: {error}\n")
        return 2
    found = figures(rounds)
    show(found, rounds, Console(width=None if sys.stdout.isatty() else 150))
    if asked.json:
        report = {"arguments": sys.argv[1:], "plan": asdict(plan), "rounds": list(map(asdict, rounds)),
                  "figures": list(map(asdict, found))}  # fmt: skip
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(without_nan(report), allow_nan=False) + "\n")
    return 0 if all(one.rounds for one in found) else 1


def naive_placements(cores: int) -> list[Placed]:
    """Return every model on every core: on a slice of each, and on one slice of all of them."""
    names = [f"core-{number}" for number in range(cores)]
    models = [party.model for party in PARTIES]
    return [
        Placed(EACH, [{"name": name, "cores": 1} for name in names], dict.fromkeys(models, names)),
        Placed(
            ALL, [{"name": "all", "cores": cores, "threads": cores}], {model: ["all"] for model in models}
        ),
    ]


def planned(from_: Placed, rates: Mapping[str, float], profiles: Path) -> Placed:
    """Return what `penstock place` prints for settings that have `from_` in place.

    RuntimeError, with what it said, where it has no plan that holds.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        config, plan = Path(folder, "penstock.yaml"), Path(folder, "plan.yaml")
        settings = {"slices": list(from_.slices), "models": from_.entries(), "profiles": str(profiles)}
        config.write_text(json.dumps(settings))  # YAML holds JSON
        stated = ",".join(f"{model}={rate:g}" for model, rate in rates.items())
        command = [sys.executable, "-m", "router.cli", "place", str(config), "--rates", stated]
        told = subprocess.run(
            [*command, "--settings", str(plan)], cwd=ROOT, capture_output=True, text=True, timeout=PLAN_S,
            check=False,
        )  # fmt: skip
        if told.returncode or not plan.exists():
            raise RuntimeError(f"`penstock place --rates {stated}` has no plan:\n{told.stdout}{told.stderr}")
        found = yaml.safe_load(plan.read_text())
        on = {(Path(folder) / entry["path"]).resolve().name: entry["slices"] for entry in found["models"]}
    return Placed(PLAN, found["slices"], on)


def play_rounds(
    placements: Sequence[Placed], profiles: Path, rates: Mapping[str, float], asked: argparse.Namespace
) -> Iterator[Round]:
    """Yield every placement in turn, `asked.rounds` times; all placements of a round are asked the same."""
    where = asked.core, may_go_first()
    for number in range(asked.rounds):
        course = Course(asked.seconds, contents=Contents(words=WORDS, seed=asked.seed + number))
        for placed in placements:
            with _serving(placed, profiles, asked.core) as gateway:
                play(placed.name, gateway, rates, Course(WARM_UP_S, contents=Contents(words=WORDS)), where)
                yield play(placed.name, gateway, rates, course, where)


def play(
    name: str, gateway: Gateway, rates: Mapping[str, float], course: Course, where: tuple[int, bool]
) -> Round:
    """Play one open-loop run; `where`: the client's core, and whether it goes first there."""
    asks = [Ask(Target(party.model), f"{rates[party.model]}", party.slo_ms) for party in PARTIES]
    server = Server(gateway.host, gateway.rest_port, CONNECTIONS, CONNECTIONS_MAX)
    prepared = prepare(asks, course, server)
    usage = Usage(parties(gateway))
    with undisturbed(*where):
        record, client = measure(prepared.loads, server)
    cpu = usage.shares()
    report = summarise(record, prepared.promises, prepared.span_s, client)
    return Round(name, report.loads, cpu, [*report.voids, *intruders(cpu)])


def figures(rounds: Sequence[Round]) -> list[Figures]:
    """Return a row for each model of each placement, in the order in which they were played."""
    found = []
    for placement in dict.fromkeys(one.placement for one in rounds):
        every = [one for one in rounds if one.placement == placement]
        valid = [one for one in every if not one.voids]
        for place, party in enumerate(PARTIES):
            loads = [one.loads[place] for one in valid or every]
            attainment = statistics.median(load.attainment for load in loads)
            p50_ms, p99_ms = (
                statistics.median(load.latency[name] for load in loads) for name in ("p50_ms", "p99_ms")
            )
            found.append(Figures(placement, party.model, attainment, p50_ms, p99_ms, len(valid)))
    return found


def show(found: Sequence[Figures], rounds: Sequence[Round], console: Console) -> None:
    """Print a row for each model of each placement, and which placements keep both promises."""
    offered = {party.model: rounds[0].loads[place] for place, party in enumerate(PARTIES)} if rounds else {}
    table = Table(title="open loop, medians of rounds; latency in ms from the due time, of answers 200")
    table.add_column("placement")
    table.add_column("model")
    for column in ("SLO ms", "req/s", "in time", "p50", "p99", "rounds", "promise"):
        table.add_column(column, justify="right")
    for one in found:
        if one.model == PARTIES[0].model:
            table.add_section()
        load = offered[one.model]
        table.add_row(
            one.placement, one.model, f"{load.slo_ms:g}", f"{load.offered_rate:.0f}", f"{one.attainment:.2%}",
            f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}", str(one.rounds) if one.rounds else "VOID",
            "kept" if one.kept else "broken",
        )  # fmt: skip
    console.print(table)
    for played in rounds:
        for void in played.voids:
            console.print(f"VOID: a round of {played.placement}: {void}", style="bold red", highlight=False)


def read_rates(text: str) -> dict[str, float]:
    """Parse MODEL=RATE,... into requests a second by model. Raises ValueError, in a sentence, unless every
    model has one."""
    models = [party.model for party in PARTIES]
    try:
        rates = {
            name.strip(): float(rate) for name, _, rate in (part.partition("=") for part in text.split(","))
        }
    except ValueError:
        rates = {}
    if sorted(rates) != sorted(models) or min(rates.values()) <= 0:
        raise ValueError(f"--rates: expected {','.join(f'{model}=RATE' for model in models)}, got {text!r}")
    return rates


@contextlib.contextmanager
def _serving(placed: Placed, profiles: Path, core: int) -> Iterator[Gateway]:
    """Yield a ready gateway on its core; its workers are on the cores of their slices."""
    with started(placed.entries(), (), profiles, slices=list(placed.slices)) as gateway:
        pin(gateway.pid, [core])
        yield gateway


@contextlib.contextmanager
def shipped_profiles() -> Iterator[Path]:
    """Yield a folder with the profiles that are shipped; what gateways add to it goes when it is left."""
    with tempfile.TemporaryDirectory(prefix="penstock-profiles-") as made:
        shipped = ROOT / "profiles"
        shutil.copytree(shipped, made, dirs_exist_ok=True, ignore=shutil.ignore_patterns("local"))
        yield Path(made)


def _profiles(asked: argparse.Namespace) -> contextlib.AbstractContextManager[Path]:
    return contextlib.nullcontext(asked.profiles.resolve()) if asked.profiles else shipped_profiles()


def _say(placements: Sequence[Placed], asked: argparse.Namespace) -> None:
    for placed in placements:
        slices = ", ".join(f"{one['name']} ({one['cores']} cores)" for one in placed.slices)
        on = "; ".join(f"{model} on {', '.join(names)}" for model, names in placed.models.items())
        print(f"{placed.name}: slices {slices}; {on}")
    cores = sorted(os.sched_getaffinity(0))
    print(f"workers on cores {cores}; in every run gateway and client on core {asked.core}", flush=True)


def _say_round(one: Round) -> None:
    loads = ", ".join(
        f"{load.name} {load.attainment:.2%} (p99 {load.latency['p99_ms']:.1f} ms)" for load in one.loads
    )
    cpu = ", ".join(f"{name} {share:.2f}" for name, share in one.cpu.items())
    print(f"  {one.placement}: {loads}; cores busy: {cpu}{'  VOID' if one.voids else ''}", flush=True)
    for load in one.loads:
        missed = [f"{each.count} {each.outcome}" for each in load.outcomes if each.outcome != IN_TIME]
        if missed:
            print(f"    {load.name}: {', '.join(missed)}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rates", default="digits=200,minilm=15", metavar="MODEL=RATE,...", help="requests a second")
    add("--seconds", type=float, default=8, help="of each run")
    add("--rounds", type=int, default=3)
    add("--seed", type=int, default=0)
    add("--core", type=int, default=0, help="of gateway and client")
    add("--profiles", type=Path, metavar="DIR", help="profiles that stay, instead of the shipped ones")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
