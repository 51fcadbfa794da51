"""What a check of the machine says: one typed line each."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is. Only a fault keeps the gateway from doing what its file asks."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """What the check `name` saw, in a sentence, and what would cure it; "" where there is nothing to cure."""

    name: str
    level: Level
    sentence: str
    cure: str = ""


def ok(name: str, sentence: str) -> Finding:
    """Return a finding without a cure."""
    return Finding(name, Level.OK, sentence)


def warning(name: str, sentence: str, cure: str) -> Finding:
    """Return a finding that makes answers slower or less steady."""
    return Finding(name, Level.WARNING, sentence, cure)


def fault(name: str, sentence: str, cure: str) -> Finding:
    """Return a finding that keeps the gateway from doing what its file asks."""
    return Finding(name, Level.FAULT, sentence, cure)


def listed(names: list[str], most: int = 4) -> str:
    """Return the names in a row, the first ones of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
