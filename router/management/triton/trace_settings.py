"""The trace extension as far as it is true: the gateway writes no traces, so each setting has one value."""

from collections.abc import Mapping
from typing import Final

from router.management.operations.repository.refusals import BAD_INPUT, UNSUPPORTED, RepositoryError
from router.tensors.parts.wording import listed, quoted, suggestion

Value = str | list[str]

LEVELS: Final = ("TIMESTAMPS", "TENSORS")
OFF: Final = "OFF"
LEVEL: Final = "trace_level"
FILE: Final = "trace_file"

_IN_FORCE: Final[Mapping[str, Value]] = {
    FILE: "",
    LEVEL: [OFF],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_mode": "triton",
}
"""Triton's own values where tracing is off."""

_INSTEAD: Final = "this gateway writes no traces; the header server-timing of an answer says its phases"


def trace_settings() -> dict[str, Value]:
    """Return the settings in force, of the gateway and of each model."""
    return dict(_IN_FORCE)


def check_trace_settings(stated: Mapping[str, object]) -> None:
    """Raise RepositoryError for a setting that would change something; None, to clear one, does not."""
    for name, value in stated.items():
        if name not in _IN_FORCE:
            hint = suggestion(name, _IN_FORCE) or f"; known are {listed(_IN_FORCE)}"
            raise _bad(f"there is no trace setting {quoted(name)}{hint}")
        if name == FILE:
            raise _unsupported("trace file location can not be updated through network protocol")
        if value is None or value == []:
            continue
        if name == LEVEL:
            _check_level(value)
        elif value not in (_IN_FORCE[name], [_IN_FORCE[name]]):
            raise _unsupported(f"{name} stays {_IN_FORCE[name]!r}: {_INSTEAD}")


def _check_level(value: object) -> None:
    levels = [value] if isinstance(value, str) else value
    if not isinstance(levels, list) or not all(isinstance(each, str) for each in levels):
        raise _bad(f"{LEVEL} must be a list of strings, got {quoted(value)}")
    for level in levels:
        if level in LEVELS:
            raise _unsupported(f"trace level {level!r} is not supported: {_INSTEAD}")
        if level != OFF:
            hint = suggestion(level, (OFF, *LEVELS))
            raise _bad(
                f"there is no trace level {quoted(level)}{hint or f'; the one that is set is {OFF!r}'}"
            )
    if len(levels) > 1:
        raise _bad("Expect only one trace level 'OFF' is specified")


def _bad(message: str) -> RepositoryError:
    return RepositoryError(BAD_INPUT, message)


def _unsupported(message: str) -> RepositoryError:
    return RepositoryError(UNSUPPORTED, message)
