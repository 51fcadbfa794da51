"""`logging:` as LogSettings: how much the gateway says of itself, and in which form."""

from dataclasses import dataclass

from router.settings.values.findings import Findings
from router.settings.values.schema import LoggingSection

_LOC = ("logging",)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`level`: lines below it are left out. `format`: text for people, or json for one object a line.
    `access`: one line for each request that is answered, whatever the level."""

    level: str = "info"
    format: str = "text"
    access: bool = False


def read_logging(findings: Findings) -> LogSettings:
    """Return the section, with the defaults for what it leaves out."""
    if not isinstance(findings.document.at(_LOC), dict):
        return LogSettings()
    section = findings.parse(LoggingSection, _LOC)
    return LogSettings(**section.model_dump()) if section else LogSettings()
