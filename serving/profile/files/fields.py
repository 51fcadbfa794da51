"""The fields of a JSON object, checked: TypeError for another kind, ValueError for an impossible value,
KeyError for none at all; each names the field."""

from collections.abc import Mapping
from math import isfinite
from typing import cast

LARGEST = 1_000_000
"""Rows or runs of a point. More is damage, and whoever walks through them would never end."""
LONGEST_US = 1e12  # eleven days
TEXT_MAX = 4096

Fields = Mapping[str, object]


def object_of(entry: object, what: str) -> Fields:
    """Return the object that `entry` is; `what` names it."""
    if not isinstance(entry, dict):
        raise TypeError(f"{what} must be an object")
    return cast("Fields", entry)


def list_in(fields: Fields, name: str) -> list[object]:
    """Return the list of that name."""
    found = fields[name]
    if not isinstance(found, list):
        raise TypeError(f"{name} must be a list")
    return found


def text_in(fields: Fields, name: str) -> str:
    """Return the text of that name."""
    found = fields[name]
    if not isinstance(found, str) or len(found) > TEXT_MAX:
        raise TypeError(f"{name} must be a text of at most {TEXT_MAX} characters")
    return found


def whole_in(fields: Fields, name: str, largest: float = float("inf")) -> int:
    """Return the whole number of that name, 0 to `largest`."""
    value = fields[name]
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r:.40}")
    if not 0 <= value <= largest:
        raise ValueError(f"impossible {name}")
    return value


def number_in(fields: Fields, name: str) -> float:
    """Return the number of that name, 0 to `LONGEST_US`."""
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r:.40}")
    if not (isfinite(value) and 0 <= value <= LONGEST_US):
        raise ValueError(f"impossible {name}")
    return float(value)
