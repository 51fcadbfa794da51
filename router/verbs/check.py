"""`penstock check`: everything that is wrong with a settings file, and what it would serve."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from router.management.operations.applied import standing
from router.settings import Settings, SettingsError, SettingsProblem, read_settings
from router.settings.keys import check_keys
from router.settings.tls_check import check_tls
from router.settings.values.findings import Findings
from router.verbs.feasibility import Measured, Measurements, check_promises
from router.verbs.feeding import feed_lines, feed_of, slowness
from router.verbs.fitting import check_memory
from router.verbs.plan import key_lines, plan_lines
from serving.values.extras import SOLVER, cure


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` found. `notes`, `plan` and `feed` are sentences for the operator.

    `feed`: how much the gateway's own core carries, which depends on this machine's speed.
    """

    errors: tuple[SettingsProblem, ...]
    warnings: tuple[SettingsProblem, ...] = ()
    notes: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    feed: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether the gateway would start with this file and can keep its promises."""
        return not self.errors

    def __str__(self) -> str:
        lines = [f"error: {problem}" for problem in self.errors]
        lines += [f"warning: {problem}" for problem in self.warnings]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *self.plan, *self.feed])


def check(path: Path, measured_in: Callable[[Path], Measured], rehearse: bool = False) -> Report:
    """Read the file as `penstock serve` would and hold its SLOs against what was measured.

    `measured_in` opens the settings' folder of profiles. `rehearse`: every GPU is rehearsed.
    """
    try:
        settings, findings = read_settings(path, rehearse)
        keys, warnings = check_keys(settings)
        warnings += check_tls(settings)
    except SettingsError as error:
        return Report(error.problems, error.warnings)
    applied = standing(settings)[1]
    notes = [applied] if applied else []
    measured = measured_in(settings.profiles)
    slices = {each.name: each for each in settings.slices}
    feeds, slow = [], slowness()
    for index, model in enumerate(settings.models):
        latencies = Measurements(model, [slices[name] for name in model.slices], measured)
        notes.extend(check_promises(findings, index, latencies))
        check_memory(findings, index, latencies)
        if unmeasured := latencies.unmeasured_sentence():
            notes.append(unmeasured)
        feeds.append(feed_of(latencies, slow))
    _check_solver(findings, settings)
    return Report(
        errors=tuple(sorted(findings.problems)),
        warnings=tuple(sorted((*findings.warnings, *warnings))),
        notes=tuple(notes),
        plan=(*plan_lines(settings), *key_lines(settings, keys)),
        feed=tuple(feed_lines(feeds)),
    )


def _check_solver(findings: Findings, settings: Settings) -> None:
    """Warn of replicas that follow the load without a plan, because no solver is installed."""
    if find_spec(SOLVER) is not None:
        return
    for index, model in enumerate(settings.models):
        if model.replicas is not None:
            message = f"{SOLVER} is not installed, so no plan for the next minutes is made; {cure(SOLVER)}"
            findings.warn(("models", index, "replicas"), message)
