"""Values without the names of their classes and fields, so that a rename keeps their digest."""

import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum


class Plain:
    """Turn values into text; a class is known by the order in which classes appeared."""

    def __init__(self) -> None:
        self._classes: dict[type, int] = {}
        self._digest = hashlib.sha256()

    def add(self, value: object) -> None:
        """Take one more value into the digest."""
        self._digest.update(self.text(value).encode() + b"\n")

    def hexdigest(self) -> str:
        """Return the digest of all values so far."""
        return self._digest.hexdigest()[:24]

    def text(self, value: object) -> str:
        """Return the value as text."""
        if isinstance(value, Enum):
            return self.text(value.value)
        if is_dataclass(value) and not isinstance(value, type):
            number = self._classes.setdefault(type(value), len(self._classes))
            return f"{number}({self._all(getattr(value, each.name) for each in fields(value))})"
        if isinstance(value, Mapping):
            return "{" + self._all(sorted(f"{self.text(k)}:{self.text(v)}" for k, v in value.items())) + "}"
        if isinstance(value, Set):
            return "{" + self._all(sorted(map(self.text, value))) + "}"
        if isinstance(value, list | tuple):
            return f"[{self._all(value)}]"
        if value is None or isinstance(value, str | int | float | bytes):
            return repr(value)
        number = self._classes.setdefault(type(value), len(self._classes))
        return f"{number}"

    def _all(self, values: Iterable[object]) -> str:
        return ",".join(map(self.text, values))
