"""What `loadtests.gpu.gpu_day` has found, as Markdown and as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

Figure = float | str | bool


class Status(StrEnum):
    """How a step ended. Skipped: it could show nothing here, and says why."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a step: how it ended, a sentence, and figures by name, with their unit last."""

    status: Status
    sentence: str
    figures: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shown:
    """An outcome of a named step. `row`: of the last table of docs/slices.md; `seconds` of `bound_s`."""

    name: str
    row: str
    outcome: Outcome
    seconds: float
    bound_s: float


def write(folder: Path, about: Mapping[str, Figure], steps: Sequence[Shown]) -> None:
    """Write gpu_day.md and gpu_day.json, of what is known so far."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"machine": dict(about), "steps": [asdict(each) for each in steps]}
    (folder / "gpu_day.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "gpu_day.md").write_text(markdown(about, steps))


def markdown(about: Mapping[str, Figure], steps: Sequence[Shown]) -> str:
    """Return the report as a page."""
    counts = {status: sum(each.outcome.status is status for each in steps) for status in Status}
    lines = ["# A day on a GPU", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    lines += ["", ", ".join(f"{count} {status}" for status, count in counts.items()) + ".", ""]
    lines += ["| step | row of docs/slices.md | result | seconds | what was seen |", "|---|---|---|---|---|"]
    for each in steps:
        sentence = each.outcome.sentence.replace("|", "\\|").replace("\n", " ")
        took = f"{each.seconds:.1f} of {each.bound_s:g}"
        lines.append(f"| {each.name} | {each.row} | {each.outcome.status} | {took} | {sentence} |")
    for each in steps:
        if each.outcome.figures:
            lines += ["", f"## {each.name}", ""]
            lines += [f"- {name}: {_shown(value)}" for name, value in each.outcome.figures.items()]
    return "\n".join(lines) + "\n"


def _shown(value: Figure) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
