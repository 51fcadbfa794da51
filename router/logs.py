"""The one place that sets up logging: levels, text or JSON lines, and the access log.

Log lines go to standard error. Code says what happens through `logging.getLogger(__name__)`; what belongs to
a line beside its sentence is in its record's `fields`, a mapping that `extra={"fields": ...}` gives it.
"""

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

import orjson

from router.settings.logs import LogSettings

ACCESS: Final = "penstock.access"
"""The logger of the access log (`router/access.py`)."""
TEXT: Final = "%(asctime)s %(levelname)s %(message)s"

_json = False


class TextFormatter(logging.Formatter):
    """Time, level and sentence; a model's traceback in the lines below."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines."""
        text = super().format(record)
        traceback = fields_of(record).get("traceback")
        return f"{text}\n{traceback}" if traceback else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC, RFC 3339), `level`, `logger`, `message`, and what else belongs
    to the line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """What belongs to the line beside its sentence."""
    found = getattr(record, "fields", None)
    return found if isinstance(found, Mapping) else {}


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Log so from now on, and no other way; to `stream`, standard error where there is none."""
    global _json
    _json = settings.format == "json"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if _json else TextFormatter())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    logging.getLogger(ACCESS).setLevel(logging.INFO)  # where it is on, it is on at any level


def say(line: str) -> None:
    """A line for people who look on at the start: as it is on standard output, a log line where those are
    JSON."""
    if _json:
        logging.getLogger("penstock").info("%s", line.strip())
        return
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _sound(line: dict[str, object]) -> dict[str, object]:
    """Without half characters, which JSON refuses."""
    return {
        name: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for name, value in line.items()
    }
