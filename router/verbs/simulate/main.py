"""`penstock simulate`: the settings' scheduler in virtual time, for rates or a recording, and what to see."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from router.settings.values.problems import fault, one_of
from router.verbs.report.output import console, save, unwritable
from router.verbs.simulate import pictures, tables, words
from router.verbs.simulate.cases import Case, SimulatedDeployment, cases
from router.verbs.simulate.governing import LEFT_OUT
from router.verbs.simulate.options import SimulateOptions
from router.verbs.simulate.page import page
from router.verbs.simulate.requirements import Requirement, read_requirements
from router.verbs.simulate.runs import Conditions, Result, find_capacity, play
from router.verbs.simulate.traffic import (
    DrawnTraffic,
    Recorded,
    Shape,
    SimulateRequestError,
    Traffic,
    read_loads,
    read_mixes,
    read_tiers,
)
from serving.simulation.devices.device import Physics
from serving.simulation.devices.faults import Hazards
from serving.simulation.devices.losses import Loss, read_losses, read_notices
from serving.values.disturbance import check_apart, read_disturbances

DRIFT_PERIOD_S = 60.0
STALL_S = 0.5

MISSED, UNUSABLE = 1, 2
"""Exit codes: something that was required does not hold; nothing can be simulated as asked."""


def simulate(options: SimulateOptions) -> int:
    """Run `penstock simulate`; return the exit code."""
    try:
        return _simulate(options)
    except SimulateRequestError as error:
        sys.stderr.write(f"{error}\n")
        return UNUSABLE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130


def _simulate(options: SimulateOptions) -> int:
    for path in (options.svg, options.html):
        if path is not None and (problem := unwritable(path)):
            raise SimulateRequestError(problem)
    traffic = _traffic(options)
    policies = [name.strip() for text in options.policy for name in text.split(",")]
    losses = _losses(options, traffic)
    ignored = _ignored(options.ignore)
    deployment = SimulatedDeployment(options.slices, options.devices, options.price, ignored, losses)
    found = cases(options.configs, policies, deployment, traffic)
    for note in dict.fromkeys((*traffic.notes, *(note for case in found for note in case.notes))):
        sys.stderr.write(f"note: {note}\n")
    names = [model.name for model in found[0].site.served]
    required = read_requirements(options.require, names, options.capacity)
    conditions = _conditions(traffic, options)
    results = _run(found, traffic, conditions, options)
    for note in dict.fromkeys(filter(None, map(words.guessed, results))):
        sys.stderr.write(f"note: {note}\n")
    missed = [(each, one) for each in required for one in results if not each.holds(one)]
    _write(results, required, options, conditions, _premises(found[0], traffic, conditions, options))
    for requirement, result in missed:
        got = requirement.got(result)
        sys.stderr.write(f"not met: {requirement.text} ({result.case.name}: {got:.6g})\n")
    return MISSED if missed else 0


def _ignored(text: str) -> tuple[str, ...]:
    """Return the keys that --ignore names; UsageError for one that no simulation can leave out."""
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    for name in names:
        if name not in LEFT_OUT:
            raise SimulateRequestError(
                f"--ignore: {fault('no key that can be left out', name, one_of(LEFT_OUT))}"
            )
    return names


def _traffic(options: SimulateOptions) -> Traffic:
    if options.trace is not None:
        given = {
            "--rate": options.rate, "--rows": options.rows, "--sizes": options.sizes, "--tier": options.tier
        }  # fmt: skip
        if other := [name for name, value in given.items() if value]:
            raise SimulateRequestError(f"--trace brings its own requests; leave out {' and '.join(other)}")
        return Recorded(options.trace)
    if not options.rate:
        raise SimulateRequestError(
            "what is asked? Give --rate MODEL=REQUESTS_A_SECOND, such as --rate digits=50,minilm=20, "
            "or --trace FILE"
        )
    shape = Shape(
        options.seconds,
        options.cv,
        read_mixes("--rows", options.rows),
        read_mixes("--sizes", options.sizes),
        options.zipf,
        read_tiers(options.tier),
    )
    try:
        return DrawnTraffic(read_loads(options.rate), shape)
    except ValueError as error:
        raise SimulateRequestError(f"--rate: {error}") from None


def _losses(options: SimulateOptions, traffic: Traffic) -> tuple[Loss, ...]:
    """Return what --lose and --spot say; UsageError where that is not in the simulated time."""
    found: list[Loss] = []
    for option, text, read in (("--lose", options.lose, read_losses), ("--spot", options.spot, read_notices)):
        try:
            said = read(text) if text else ()
        except ValueError as error:
            raise SimulateRequestError(f"{option}: {error}") from None
        for each in said:
            if each.gone_s >= traffic.seconds:
                raise SimulateRequestError(
                    f"{option}: {each.slice} goes after the end of the run; got {each.gone_s:g} s, expected "
                    f"less than {traffic.seconds:g} s; raise --seconds"
                )
        found += said
    return tuple(found)


def _conditions(traffic: Traffic, options: SimulateOptions) -> Conditions:
    if options.stall is not None and options.stall_every is None:
        raise SimulateRequestError(
            "--stall says how long a stall lasts; give --stall-every S, how often, as well"
        )
    stall_s = STALL_S if options.stall is None else options.stall
    physics = Physics(
        noise=options.noise,
        drift=options.drift,
        drift_period_s=min(DRIFT_PERIOD_S, traffic.seconds),  # so that a short run has both halves of it
        interference=options.interference,
        outlier_share=options.outliers,
        overhead_us=options.overhead_us,
    )
    hazards = Hazards(options.crash_every or 0.0, options.stall_every or 0.0, round(stall_s * 1e6))
    try:
        disturbances = read_disturbances(options.disturb) if options.disturb else ()
        check_apart(disturbances)
    except ValueError as error:
        raise SimulateRequestError(f"--disturb: {error}") from None
    seeds = tuple(range(options.seed, options.seed + options.seeds))
    return Conditions(physics, hazards, seeds, options.price, disturbances, _losses(options, traffic))


def _run(
    found: Sequence[Case], traffic: Traffic, conditions: Conditions, options: SimulateOptions
) -> list[Result]:
    """Return all cases, with a progress bar where a person watches."""
    watched = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    results = []
    with Progress(*columns, console=watched, transient=True, disable=not watched.is_terminal) as progress:
        task = progress.add_task("", total=len(found) * len(conditions.seeds) * traffic.seconds)

        def advance(what: str, seconds: float) -> None:
            progress.update(task, description=what, advance=seconds)

        for case in found:
            result = play(case, traffic, conditions, advance)
            if options.capacity:
                capacity = find_capacity(case, traffic, conditions, options.attainment, advance)
                result = replace(result, capacity=capacity)
            results.append(result)
    return results


def _premises(
    case: Case, traffic: Traffic, conditions: Conditions, options: SimulateOptions
) -> list[tuple[str, str]]:
    """Return the conditions of the simulation, for the page."""
    bursts = "" if options.trace else f"; gaps of coefficient of variation {options.cv:g}"
    here = {
        name: [each.model for each in case.site.residents if each.slice == name] for name in case.site.slices
    }
    slices = (f"{name}: {', '.join(dict.fromkeys(models))}" for name, models in here.items())
    premises = [
        ("requests", f"{traffic.source}; for {traffic.seconds:g} s{bursts}"),
        ("runs", f"{options.seeds}, with seeds from {options.seed}; the figures are of all together"),
        ("counted", f"what comes after the first {case.site.settle_us / 1e6:g} s: before, no rate is known"),
        ("settings", ", ".join(map(str, options.configs))),
        ("slices", "; ".join(slices)),
        ("device", words.device(conditions)),
    ]
    if case.governance is not None:
        premises.append(("start", words.START))
    if case.left_out:
        premises.append(("not simulated", "; ".join(case.left_out)))
    prices = {each.slice: each.price for each in case.site.residents}
    if any(prices.values()):
        told = ", ".join(f"{name} {price:g}" for name, price in prices.items())
        each = f"{options.price:g} for an hour of a slice" if options.price else f"for an hour: {told}"
        premises.append(("price", f"{each}, whether it computes or not"))
    return premises


def _write(
    results: Sequence[Result],
    required: Sequence[Requirement],
    options: SimulateOptions,
    conditions: Conditions,
    premises: Sequence[tuple[str, str]],
) -> None:
    if options.as_json:
        found = tables.as_json(results, required, conditions, premises)
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        console().print(tables.render(results, conditions, options.attainment))
    footnote = "; ".join(f"{term}: {text}" for term, text in premises)
    if options.svg is not None:
        _save(options.svg, lambda path: pictures.write_svg(results, path, footnote))
    if options.html is not None:
        text = page(results, conditions, premises, options.attainment)
        _save(options.html, lambda path: path.write_text(text, encoding="utf-8"))


def _save(path: Path, write: Callable[[Path], object]) -> None:
    if problem := save(path, write):
        raise SimulateRequestError(problem)
    sys.stderr.write(f"wrote {path}\n")
