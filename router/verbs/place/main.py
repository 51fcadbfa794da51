"""`penstock place`: which devices carry what is asked, how that differs from what is in place, and whether it
keeps every promise."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from router.management.operations.applied import settings_in_force
from router.settings import SettingsError, load_settings
from router.verbs.place.live.applying import Running, as_running, body, with_sharing
from router.verbs.place.live.following import PlacementClient, carry_out, reach
from router.verbs.place.live.outages import Outages, left, read_outages
from router.verbs.place.options import PlaceOptions
from router.verbs.place.question.asked import PlacementTask, ask, terms_of
from router.verbs.place.question.rates import RunningGateway
from router.verbs.place.question.standing import as_settings
from router.verbs.place.view import document, pictures, tables
from router.verbs.place.view.gathering import gather
from router.verbs.place.view.page import page
from router.verbs.place.view.shown import PlaceReport
from router.verbs.report.output import console, save, unwritable
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.deciding import Decision, DecisionTerms, decide
from serving.policy.placement.solve import Task, plans
from serving.policy.placement.terms.plan import PlacementPlan
from serving.runtime.job import JobError, run_blocking

BROKEN, UNUSABLE, INTERRUPTED = 1, 2, 130
"""Exit codes: a promise is not kept; nothing can be placed, or written, as asked."""
QUICK_S = 10.0
"""For a job to start and find its quick plan, 3,000 models on 10,000 devices included (3 s on one core)."""
STDOUT = Path("-")

_Reached = tuple[PlacementClient, Running]
"""The gateway that a plan is for, and what it has."""


def place(options: PlaceOptions) -> int:
    """Run `penstock place`; return the exit code."""
    try:
        return _place(options)
    except SimulateRequestError as error:
        sys.stderr.write(f"{error}\n")
        return UNUSABLE
    except JobError as error:
        sys.stderr.write(f"no plan was found: {error}\n")
        return BROKEN
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED


def _place(options: PlaceOptions) -> int:
    _check_files(options)
    found = _reached(options)
    elsewhere = options.rates or options.trace  # then --url is only where it is applied
    url = None if options.apply and elsewhere else options.url
    gateway = RunningGateway(url, options.key_env)
    asked = ask(options.config, options.rates, options.reserve, gateway, options.trace, options.rows)
    asked, found = _left(asked, found, options)
    terms = terms_of(options)
    decision = _decided(asked, terms)
    if found is not None:
        asked, decision = with_sharing(asked, decision)
    shown = gather(asked, decision, terms, options.reserve)
    _show(shown, options)
    for reason in shown.refused:
        sys.stderr.write(f"{reason}\n")
    if shown.refused and options.apply:
        sys.stderr.write("nothing is applied, as the plan breaks a promise\n")
    if options.settings is not None:
        _write_settings(asked, shown, options.settings)
    if found is not None and not shown.refused:
        return _apply(asked, decision, *found)
    return BROKEN if shown.refused else 0


def _left(
    asked: PlacementTask, found: _Reached | None, options: PlaceOptions
) -> tuple[PlacementTask, _Reached | None]:
    """Return the question from what runs on the gateway, if it is for one, without what is lost or fails."""
    outages = read_outages(options.without, options.failing)
    if found is None and outages == Outages():
        return asked, None
    if found is None:
        return left(asked, Running.of(settings_in_force(asked.settings)[0]), outages)[0], None
    door, running = found
    if outages == Outages():
        return as_running(asked, running), found
    asked, running = left(asked, running, outages)
    return asked, (door, running)


def _reached(options: PlaceOptions) -> _Reached | None:
    """Return the gateway that the plan is for, None where it is for none. Asked first, as a plan takes a
    while."""
    if not options.apply:
        return None
    try:
        door, told = reach(load_settings(options.config), options.url, options.key_env)
    except SettingsError as error:
        raise SimulateRequestError(str(error)) from None
    return door, Running(told)


def _apply(asked: PlacementTask, decision: Decision, door: PlacementClient, running: Running) -> int:
    """Return where the plan is taken; what is in place stays otherwise."""
    if not decision.taken:
        sys.stderr.write("nothing is applied: what is in place stays\n")
        return 0
    told, notes = body(asked, decision, running)
    sys.stderr.writelines(f"{note}\n" for note in notes)
    return carry_out(door, told)


def _check_files(options: PlaceOptions) -> None:
    for path in (options.svg, options.html, options.settings):
        if path is not None and path != STDOUT and (problem := unwritable(path)):
            raise SimulateRequestError(problem)
    if options.settings == STDOUT and options.as_json:
        raise SimulateRequestError("--json and --settings - both want stdout; give --settings a file")
    if options.settings is not None and options.settings.resolve() == options.config.resolve():
        raise SimulateRequestError(f"--settings would overwrite {options.config}; give it another file")


def _decided(asked: PlacementTask, terms: DecisionTerms) -> Decision:
    """Return the decision; if a person watches, show a line that says what goes on."""
    errors = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("deciding", total=None)

        def advance(what: str, _share: float) -> None:
            progress.update(task, description=what)

        return decide(asked.planning, terms, _solve, advance)


def _solve(task: Task) -> PlacementPlan:
    """Return the best plan, from a child process. JobError where it ends without any.

    The child has the time of three solvers, as the exact one is asked again with other slack. The quick plan
    always has the time to come.
    """
    return run_blocking(plans, task, QUICK_S + 3 * task.limit_s)


def _show(shown: PlaceReport, options: PlaceOptions) -> None:
    if options.as_json:
        sys.stdout.write(json.dumps(document.document(shown), indent=1) + "\n")
    else:
        console().print(tables.render(shown))
    footnote = "; ".join(f"{term}: {text}" for term, text in shown.premises)
    if options.svg is not None:
        _write(options.svg, lambda path: pictures.write_svg(shown, path, footnote))
    if options.html is not None:
        text = page(shown)
        _write(options.html, lambda path: _write_text(path, text))


def _write_settings(asked: PlacementTask, shown: PlaceReport, path: Path) -> None:
    if shown.refused:
        sys.stderr.write("no settings are written, as the plan does not hold\n")
        return
    text = as_settings(asked, shown.after)
    if text is None:
        raise SimulateRequestError(
            "no settings are written: penstock.yaml has slices of whole cores of this machine's CPU, and the "
            "placement has others, or none"
        )
    if path == STDOUT:
        sys.stdout.write(text)
    else:
        _write(path, lambda file: _write_text(file, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _write(path: Path, write: Callable[[Path], None]) -> None:
    if problem := save(path, write):
        raise SimulateRequestError(problem)
    sys.stderr.write(f"wrote {path}\n")
