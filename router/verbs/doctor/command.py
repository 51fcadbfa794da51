"""`penstock doctor`: say whether this machine can do what the settings file asks."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from router.settings import Settings, SettingsError, load_settings
from router.verbs.doctor.examine import examine, start
from router.verbs.doctor.finding import Finding, Level
from router.verbs.doctor.machine import Machine, asks_for_gpus
from router.verbs.doctor.options import DoctorOptions

SCHEMA: Final = 1
"""Of the JSON document; another number where a key gets another meaning."""
FAULTY, UNUSABLE = 1, 2
_DEFAULT: Final = Path("penstock.yaml")
_WIDTH: Final = 14


def doctor(asked: DoctorOptions) -> int:
    """Print the findings; return 1 where one is a fault, 2 where the file cannot be used."""
    machine = Machine()
    begun = start(machine)
    path = asked.config or (_DEFAULT if _DEFAULT.exists() else None)
    settings: Settings | None = None
    problems: tuple[str, ...] = ()
    if path is not None:
        try:
            settings = load_settings(path)
        except SettingsError as error:
            problems = tuple(str(problem) for problem in error.problems)
    unusable = path if problems else None
    findings = examine(settings, machine, begun, unusable is not None and asks_for_gpus(unusable))
    if asked.as_json:
        sys.stdout.write(json.dumps(document(path, findings, problems), indent=2) + "\n")
    else:
        sys.stdout.write(shown(path, findings, problems))
    if problems:
        return UNUSABLE
    return FAULTY if any(each.level is Level.FAULT for each in findings) else 0


def document(path: Path | None, findings: Sequence[Finding], problems: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON document. `problems`: what is wrong with the file, which was then not looked at."""
    return {
        "schema": SCHEMA,
        "config": None if path is None else str(path),
        "problems": list(problems),
        "faults": _count(findings, Level.FAULT),
        "warnings": _count(findings, Level.WARNING),
        "findings": [
            {"name": each.name, "level": str(each.level), "sentence": each.sentence, "cure": each.cure}
            for each in findings
        ],
    }


def shown(path: Path | None, findings: Sequence[Finding], problems: Sequence[str] = ()) -> str:
    """Return the lines for a terminal: each finding, its cure below it, and how many there are."""
    lines = [f"error: {problem}" for problem in problems]
    for each in findings:
        lines.append(f"{each.level:<8} {each.name:<{_WIDTH}} {each.sentence}")
        if each.cure:
            lines.append(f"{'':<8} {'':<{_WIDTH}} cure: {each.cure}")
    return "\n".join([*lines, _summary(path, findings, problems)]) + "\n"


def _summary(path: Path | None, findings: Sequence[Finding], problems: Sequence[str]) -> str:
    faults, warnings = _count(findings, Level.FAULT), _count(findings, Level.WARNING)
    counted = f"{faults} fault{'s' * (faults != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    if problems:
        return f"{counted}; {path} cannot be used, so only the machine was looked at"
    what = "run a gateway" if path is None else f"do what {path} asks"
    return f"{counted}: this machine {'cannot' if faults else 'can'} {what}"


def _count(findings: Sequence[Finding], level: Level) -> int:
    return sum(each.level is level for each in findings)
