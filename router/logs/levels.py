"""Which lines of the log are said, by level: each level has a switch, as in Triton's log settings."""

import logging
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLevels:
    """Whether lines of each level are said; `verbose`: above 0, those for developers too."""

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose: int = 0

    @property
    def least(self) -> int:
        """The lowest level that is said."""
        if self.verbose:
            return logging.DEBUG
        said = ((logging.INFO, self.info), (logging.WARNING, self.warning), (logging.ERROR, self.error))
        return next((level for level, on in said if on), logging.CRITICAL)

    def says(self, level: int) -> bool:
        """Return whether a line of that level is said. A critical one always is."""
        if level >= logging.CRITICAL:
            return True
        if level >= logging.ERROR:
            return self.error
        if level >= logging.WARNING:
            return self.warning
        return self.info if level >= logging.INFO else self.verbose > 0


def levels_from(name: str) -> LogLevels:
    """Return the switches of `logging: {level: ...}`: lines below the level are left out."""
    least = getattr(logging, name.upper())
    return LogLevels(
        info=least <= logging.INFO,
        warning=least <= logging.WARNING,
        error=least <= logging.ERROR,
        verbose=int(least <= logging.DEBUG),
    )


class Switches(logging.Filter):
    """Lets through what the levels say. `exempt`: loggers that are on at any level."""

    def __init__(self, levels: LogLevels, exempt: Collection[str]) -> None:
        super().__init__()
        self.levels = levels
        self._exempt = frozenset(exempt)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is said."""
        return record.name in self._exempt or self.levels.says(record.levelno)
