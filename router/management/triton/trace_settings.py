"""The trace extension: settings of the trace file, or why there is none.

TENSORS is not served, as no tensor is ever written. Nor is OpenTelemetry by this way: `tracing:` says which
requests a collector gets."""

from collections.abc import Mapping
from typing import Final

from router.management.operations.repository.refusals import BAD_INPUT, UNSUPPORTED, RepositoryError
from router.observing.tracing.triton_settings import (
    COUNT,
    DEFAULTS,
    FILE,
    FREQUENCY,
    LEVEL,
    MODE,
    OFF,
    RATE,
    TIMESTAMPS,
    TraceSettings,
)
from router.tensors.parts.wording import listed, quoted, suggestion

Value = str | list[str]

TENSORS: Final = "TENSORS"
LEVELS: Final = (TIMESTAMPS, TENSORS)
TRITON: Final = "triton"
_LEAST: Final[Mapping[str, int]] = {RATE: 1, COUNT: -1, FREQUENCY: 0}
_MOST: Final = 2**31 - 1
_NAMES: Final = (FILE, *DEFAULTS, MODE)
_INSTEAD: Final = "this gateway writes no trace file; `tracing: {file: ...}` in its settings names one"


class TraceExtension:
    """Reads and changes the settings. `traces`: None where there is no trace file."""

    def __init__(self, traces: TraceSettings | None = None) -> None:
        self._traces = traces

    def read(self, model: str = "") -> dict[str, Value]:
        """Return the settings in force, of the gateway or of a model."""
        none = {FILE: "", **DEFAULTS, MODE: TRITON}
        found = none if self._traces is None else self._traces.read(model)
        return {name: [found[name]] if name == LEVEL else found[name] for name in _NAMES}

    def change(self, stated: Mapping[str, object], model: str = "") -> None:
        """State settings; None clears one. Raises RepositoryError for one that cannot be, and changes
        nothing then."""
        checked = {name: self._checked(name, value) for name, value in stated.items()}
        if self._traces is not None and checked:
            self._traces.change(model, checked)

    def _checked(self, name: str, value: object) -> str | None:
        if name not in _NAMES:
            hint = suggestion(name, _NAMES) or f"; known are {listed(_NAMES)}"
            raise _bad(f"there is no trace setting {quoted(name)}{hint}")
        if name == FILE:
            raise _unsupported("trace file location can not be updated through network protocol")
        if value is None or value == []:
            return None
        if name == LEVEL:
            return self._level(value)
        text = value[0] if isinstance(value, list) and len(value) == 1 else value
        if name == MODE:
            if text != TRITON:
                raise _unsupported(
                    f"{MODE} stays {TRITON!r}: `tracing: {{otlp: ...}}` sends OpenTelemetry's traces"
                )
            return text
        if self._traces is None and text != DEFAULTS[name]:
            raise _unsupported(f"{name} stays {DEFAULTS[name]!r}: {_INSTEAD}")
        return _number(name, text)

    def _level(self, value: object) -> str:
        levels = [value] if isinstance(value, str) else value
        if not isinstance(levels, list) or not all(isinstance(each, str) for each in levels):
            raise _bad(f"{LEVEL} must be a list of strings, got {quoted(value)}")
        for level in levels:
            if level not in (OFF, *LEVELS):
                hint = suggestion(level, (OFF, *LEVELS))
                known = hint or f"; known are {listed((OFF, TIMESTAMPS))}"
                raise _bad(f"there is no trace level {quoted(level)}{known}")
            if level == TENSORS:
                raise _unsupported(f"trace level {level!r} is not supported: no tensor is ever written")
            if level == TIMESTAMPS and self._traces is None:
                raise _unsupported(f"trace level {level!r} is not supported: {_INSTEAD}")
        if len(levels) > 1:
            raise _bad(f"Expect only one trace level {levels[0]!r} is specified")
        return str(levels[0])


def _number(name: str, value: object) -> str:
    text = str(value)
    digits = text.removeprefix("-")
    whole = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(_MOST))
    if not whole or not _LEAST[name] <= int(text) <= _MOST:
        raise _bad(f"{name} must be a whole number from {_LEAST[name]} to {_MOST}, got {quoted(value)}")
    return text


def _bad(message: str) -> RepositoryError:
    return RepositoryError(BAD_INPUT, message)


def _unsupported(message: str) -> RepositoryError:
    return RepositoryError(UNSUPPORTED, message)
