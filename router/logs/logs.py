"""The one place that sets up logging: levels, text or JSON lines, and the access log.

Log lines go to standard error. Code says what happens through `logging.getLogger(__name__)`; what belongs to
a line beside its sentence is in its record's `fields`, a mapping that `extra={"fields": ...}` gives it.
No line waits for a reader (`router/logs/output.py`), floods are cut short (`router/logs/floods.py`), and no
text of a client can look like another line: what does not print is escaped.
"""

import faulthandler
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TextIO

import orjson

from router.logs.events import Events
from router.logs.floods import SAYS, Floods
from router.logs.levels import LogLevels, Switches, levels_from
from router.logs.output import Output
from router.settings.door.logs import LogSettings

ACCESS: Final = "penstock.access"
"""The logger of the access log (`router/logs/access.py`)."""
AUDIT: Final = "penstock.audit"
"""The logger of what changes something (`router/management/admin/audit.py`)."""
TEXT: Final = "%(asctime)s %(levelname)s %(message)s"

SELDOM_S: Final = 10.0
"""Between two lines of a kind that a client can cause."""
PRINTED: Final = "penstock.printed"
"""The logger of what C libraries and children of this process print."""
BELOW: Final = "  "
"""Before each line that belongs to the one above: a line that begins with a time is one of the gateway's."""
_EXEMPT: Final = frozenset((ACCESS, "router.startup.serve", "serving.runtime.workers.model_log"))
"""Loggers whose lines no client can make many, or that have a limit of their own."""

_json = False
_switches = Switches(LogLevels(), ())
_output: Output | None = None
_SINGLE: Final = frozenset((ACCESS, PRINTED, "serving.runtime.workers.model_log"))
"""Loggers whose lines are no events."""
events: Final = Events()
"""What this process has logged since it began to log to an Output."""


def escaped(text: str) -> str:
    """Return the text with its control characters, line ends and half characters written out: `\\n`,
    `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\t" else each.encode("unicode_escape").decode()
        for each in text
    )


class TextFormatter(logging.Formatter):
    """Time, level and sentence; a traceback in the lines below, which begin with BELOW."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        """Return the one line of the sentence."""
        return escaped(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or lines."""
        first, *below = super().format(record).splitlines()
        below += str(fields_of(record).get("traceback", "")).splitlines()
        return "\n".join((first, *(BELOW + escaped(each) for each in below)))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC, RFC 3339), `level`, `logger`, `message`, and what else belongs
    to the line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in fields_of(record).items() if value != ""}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(_sound(line), default=str).decode()


class Seldom:
    """Lines that clients may cause at any rate: one in ten seconds, which says how many were left out."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._due_s = 0.0
        self._left_out = 0

    def warning(self, text: str) -> None:
        """Write it, or count it."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            self._left_out += 1
            return
        more = f" ({self._left_out} more such lines were left out)" if self._left_out else ""
        self._logger.warning("%s%s", text, more)
        self._due_s, self._left_out = now_s + SELDOM_S, 0


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return what belongs to the line beside its sentence."""
    found = getattr(record, "fields", None)
    return found if isinstance(found, Mapping) else {}


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Log so from now on, and no other way; to `stream`, standard error where there is none."""
    global _json, _switches
    _switches = Switches(levels_from(settings.level), (ACCESS, AUDIT))
    _json = settings.format == "json"
    handler = logging.StreamHandler(stream or sys.stderr) if _output is None else _Queueing(_output)
    handler.setFormatter(JsonFormatter() if _json else TextFormatter())
    handler.addFilter(_switches)
    handler.addFilter(Floods(_EXEMPT))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for name in (ACCESS, AUDIT):  # where they are on, they are on at any level
        logging.getLogger(name).setLevel(logging.INFO)


def levels() -> LogLevels:
    """Return which lines are said now."""
    return _switches.levels


def set_levels(levels: LogLevels) -> None:
    """Say these lines from now on, until `set_up`."""
    _switches.levels = levels
    logging.getLogger().setLevel(levels.least)


def is_json() -> bool:
    """Return whether the lines are JSON objects."""
    return _json


@contextmanager
def logging_to_output(settings: LogSettings) -> Iterator[Output]:
    """Make this process log by `settings` and print through a queue, so that a slow reader cannot hold it
    up."""
    global _output
    _output = Output(_dropped_line, _log_printed)
    try:
        set_up(settings)
        faulthandler.enable(_output.last_words)
        yield _output.start()
    finally:
        faulthandler.disable()
        for handler in logging.getLogger().handlers:
            _end_floods(handler)
        _output.close()
        _output = None
        set_up(settings)


def say(line: str) -> None:
    """Print a line for onlookers at the start: unchanged on standard output, or as a log line if logs are
    JSON."""
    if _json:
        logging.getLogger(SAYS).info("%s", line.strip())
    elif _output is not None:
        _output.stdout.put(escaped(line))
    else:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def lines_dropped() -> int:
    """Return how many lines this process could not print since its start, because they were not read in
    time."""
    return sum(sink.dropped for sink in _output.sinks) if _output is not None else 0


class _Queueing(logging.Handler):
    """To the standard error of an Output."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._sink = output.stderr

    def emit(self, record: logging.LogRecord) -> None:
        """Put the line into the queue."""
        try:
            if record.name not in _SINGLE:
                events.add(record, escaped(record.getMessage()))
            self._sink.put(self.format(record))
        except Exception:  # as logging's own handlers: a line that cannot be made ends nothing
            self.handleError(record)


def _end_floods(handler: logging.Handler) -> None:
    for each in handler.filters:
        if isinstance(each, Floods):
            each.end_window()


def _log_printed(stream: str, line: str) -> None:
    if line.strip():
        fields = {"stream": stream}
        logging.getLogger(PRINTED).warning("[%s] %s", stream, line.rstrip(), extra={"fields": fields})


def _dropped_line(count: int) -> str:
    """Return the log line that reports dropped lines."""
    were = "1 line was" if count == 1 else f"{count} lines were"
    text = f"{were} dropped: nobody read what the gateway prints"
    record = logging.LogRecord(SAYS, logging.WARNING, "", 0, text, None, None)
    return (JsonFormatter() if _json else TextFormatter()).format(record)


def _sound(line: dict[str, object]) -> dict[str, object]:
    """Return the line without half characters, which JSON refuses."""
    return {
        name: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for name, value in line.items()
    }
