"""`tracing:` as TracingSettings: which requests are traced, and where traces go."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from router.settings.values.findings import Findings
from router.settings.values.problems import fault
from router.settings.values.schema import TracingSection
from serving.values.extras import TRACES, cure

_LOC = ("tracing",)
PACKAGES: Final = (f"{TRACES}.sdk", f"{TRACES}.exporter.otlp.proto.http")
"""Other packages bring parts of OpenTelemetry, without these."""
OTLP_PATH: Final = "/v1/traces"
"""Of OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/)."""


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """`otlp`: the whole URL of a collector, "" for none. `sample`: the share (0..1) of requests whose client
    does not say whether to trace them. `missed`: those that were late, refused or failed as well. `file`:
    of traces as Triton writes them."""

    otlp: str = ""
    sample: float = 0.01
    missed: bool = True
    service: str = "penstock"
    file: Path | None = None


def read_tracing(findings: Findings) -> TracingSettings | None:
    """Return the section if it is there."""
    if not isinstance(findings.document.at(_LOC), dict):
        return None
    section = findings.parse(TracingSection, _LOC)
    if section is None:
        return None
    defaults = TracingSettings()
    if section.otlp is None and section.file is None:
        expected = "otlp: a collector's URL, or file: a file, or both"
        findings.add(_LOC, fault("no place for traces", "neither otlp nor file", expected))
    if section.otlp is not None and not all(map(_is_there, PACKAGES)):
        findings.add((*_LOC, "otlp"), f"the packages of OpenTelemetry are not installed; {cure(TRACES)}")
    return TracingSettings(
        _whole(section.otlp) if section.otlp else "",
        defaults.sample if section.sample is None else section.sample,
        defaults.missed if section.missed is None else section.missed,
        section.service or defaults.service,
        _file(findings, section.file),
    )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # nor is what it is in
        return False


def _whole(url: str) -> str:
    """Return the URL with the path of OTLP, if it has none."""
    return url.rstrip("/") + OTLP_PATH if urlsplit(url).path in ("", "/") else url


def _file(findings: Findings, stated: str | None) -> Path | None:
    if stated is None:
        return None
    file = Path(os.path.abspath(findings.document.file.parent / stated))
    if not os.access(file.parent, os.W_OK | os.X_OK) or file.is_dir():
        findings.add((*_LOC, "file"), fault("not a file that can be written", file, "a file in a folder"))
    return file
