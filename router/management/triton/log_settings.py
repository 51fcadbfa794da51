"""The logging extension: which lines the gateway logs, read and changed while it runs.

A change holds until the gateway is started again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from router.logs.levels import LogLevels
from router.logs.logs import is_json, levels, set_levels
from router.management.operations.repository.refusals import BAD_INPUT, UNSUPPORTED, RepositoryError
from router.tensors.parts.wording import listed, quoted, suggestion

Value = bool | int | str

_SWITCHES: Final[Mapping[str, str]] = {"log_info": "info", "log_warning": "warning", "log_error": "error"}
VERBOSE: Final = "log_verbose_level"
FORMAT: Final = "log_format"
FILE: Final = "log_file"
KNOWN: Final = (FILE, *_SWITCHES, VERBOSE, FORMAT)
VERBOSE_MAX: Final = (1 << 32) - 1


def log_settings() -> dict[str, Value]:
    """Return the settings in force. The lines go to standard error, so `log_file` is empty."""
    now = levels()
    return {
        FILE: "",
        "log_info": now.info,
        "log_warning": now.warning,
        "log_error": now.error,
        VERBOSE: now.verbose,
        FORMAT: _format(),
    }


def change_log_settings(stated: Mapping[str, object]) -> None:
    """Set what is stated, or nothing: RepositoryError for what cannot be set."""
    asked = levels()
    for name, value in stated.items():
        asked = _changed(asked, name, value)
    set_levels(asked)


def _changed(now: LogLevels, name: str, value: object) -> LogLevels:
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise _bad(f"{quoted(name)} must be true or false, got {quoted(value)}")
        return replace(now, **{_SWITCHES[name]: value})
    if name == VERBOSE:
        if type(value) is not int or not 0 <= value <= VERBOSE_MAX:
            raise _bad(f"{quoted(name)} must be a whole number, 0 or more, got {quoted(value)}")
        return replace(now, verbose=value)
    if name == FILE:
        why = "the lines go to standard error"
        raise _unsupported(f"log file location can not be updated through network protocol: {why}")
    if name == FORMAT:
        if value != _format():
            why = f"it is {_format()!r}, by `logging: {{format: ...}}` in penstock.yaml"
            raise _unsupported(f"log format can not be updated through network protocol: {why}")
        return now
    hint = suggestion(name, KNOWN) or f"; known are {listed(KNOWN)}"
    raise _bad(f"there is no log setting {quoted(name)}{hint}")


def _format() -> str:
    return "json" if is_json() else "default"


def _bad(message: str) -> RepositoryError:
    return RepositoryError(BAD_INPUT, message)


def _unsupported(message: str) -> RepositoryError:
    return RepositoryError(UNSUPPORTED, message)
