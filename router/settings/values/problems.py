"""What is wrong with a file, in sentences that name the place, what was got and what was expected."""

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from router.commandline.spelling import nearest

Loc = tuple[str | int, ...]
"""The way from the top of a file to a value: keys and list indexes."""

_SHOWN_CHARS = 60
_LISTED_NAMES = 200
"""More than any section has keys: of names that operators give there may be thousands."""


@dataclass(frozen=True, slots=True, order=True)
class SettingsProblem:
    """One fault at one place; `line` and `column` count from 1, `where` is a dotted path or "".

    As text it is one printable line, whatever the file holds: a terminal may be told anything else.
    """

    file: str
    line: int
    column: int
    where: str
    message: str

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        text = f"{self.file}:{self.line}:{self.column}: {where}{self.message}"
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class SettingsError(Exception):
    """A file cannot be used; `problems` holds everything that is wrong with it, sorted by place.

    `warnings` are what else was noticed on the way.
    """

    def __init__(self, problems: Iterable[SettingsProblem], warnings: Iterable[SettingsProblem] = ()) -> None:
        self.problems = tuple(sorted(set(problems)))
        self.warnings = tuple(sorted(set(warnings)))
        super().__init__("\n".join(map(str, self.problems)))


def dotted(loc: Loc) -> str:
    """Return `("models", 0, "slo_ms")` as `models[0].slo_ms`; a key that is no plain word is quoted."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part):
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def shown(value: object) -> str:
    """Return a value as a person would recognise it in YAML, printable; short unless it is a path."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, Path):
        return repr(str(value))
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."


def fault(what: str, got: object, expected: str, near: str = "") -> str:
    """Return one sentence: what is wrong, the value, what was expected and, if `near` says so, a guess."""
    guess = f" (did you mean {near}?)" if near else ""
    return f"{what}; got {shown(got)}, expected {expected}{guess}"


def unknown_name(what: str, got: str, known: Collection[str]) -> str:
    """Return the sentence for a name that is not among `known`, with the nearest one as a guess."""
    return fault(what, got, one_of(known), nearest(got, known))


def one_of(names: Collection[str]) -> str:
    """Return `a, b or c`; a single name alone; of hundreds the first, and how many there are."""
    listed = [*islice(names, _LISTED_NAMES)]
    if len(names) > _LISTED_NAMES:
        return f"{', '.join(listed)}, ... ({len(names)} names)"
    if len(listed) < 2:
        return listed[0] if listed else "nothing"
    return f"{', '.join(listed[:-1])} or {listed[-1]}"


def nearest_path(path: Path) -> str:
    """Return a neighbour of the missing `path` with a similar name, as a path, or ""."""
    try:
        neighbours = sorted(os.listdir(path.parent))
    except (OSError, ValueError):  # the folder is missing too, or is no possible name
        return ""
    near = nearest(path.name, neighbours)
    return str(path.parent / near) if near else ""
