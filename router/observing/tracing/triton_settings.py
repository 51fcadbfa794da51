"""The settings of Triton's trace extension: which requests go into the trace file."""

from pathlib import Path
from typing import Final

LEVEL, RATE, COUNT, FREQUENCY = "trace_level", "trace_rate", "trace_count", "log_frequency"
FILE, MODE = "trace_file", "trace_mode"
OFF, TIMESTAMPS = "OFF", "TIMESTAMPS"
DEFAULTS: Final = {LEVEL: OFF, RATE: "1000", COUNT: "-1", FREQUENCY: "0"}
"""Triton's own. A level is one word here: of several, Triton knows only two, and TENSORS is none of ours."""


class _Scope:
    """The settings of a model, or of all that have none of their own; its requests, and those taken."""

    def __init__(self) -> None:
        self.stated: dict[str, str] = {}
        self.seen = self.taken = 0


class TraceSettings:
    """Settings that clients change while the gateway runs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._global = _Scope()
        self._models: dict[str, _Scope] = {}

    def read(self, model: str = "") -> dict[str, str]:
        """Return the settings of a model, "" for those that all have that state none."""
        own = self._models[model].stated if model in self._models else {}
        return {**DEFAULTS, **self._global.stated, **own, FILE: str(self._file), MODE: "triton"}

    def change(self, model: str, stated: dict[str, str | None]) -> None:
        """State settings that were checked; None clears one. All counts begin anew."""
        scope = self._global if not model else self._models.setdefault(model, _Scope())
        for name, value in stated.items():
            if value is None:
                scope.stated.pop(name, None)
            else:
                scope.stated[name] = value
        scope.seen = scope.taken = 0
        if model and not scope.stated:
            del self._models[model]

    def take(self, model: str) -> str:
        """Count a request; return the name of the file that it goes to, "" for none."""
        scope = self._models.get(model, self._global)
        found = self._global.stated if scope is self._global else self._global.stated | scope.stated
        if found.get(LEVEL, OFF) == OFF:
            return ""
        scope.seen += 1
        most = int(found.get(COUNT, DEFAULTS[COUNT]))
        if (scope.seen - 1) % int(found.get(RATE, DEFAULTS[RATE])) or 0 <= most <= scope.taken:
            return ""
        scope.taken += 1
        every = int(found.get(FREQUENCY, DEFAULTS[FREQUENCY]))
        return f"{self._file}.{(scope.taken - 1) // every}" if every else str(self._file)
