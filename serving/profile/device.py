"""The name of a device kind: profiles measured on one hold for every slice of that kind."""

import platform
import re
from pathlib import Path

from serving.specs import SliceSpec

_CPU_INFO = Path("/proc/cpuinfo")


def device_kind(slice_spec: SliceSpec) -> str:
    """For example `cpu-amd-epyc-1t`: the processor's model and the slice's compute threads."""
    return f"cpu-{_processor()}-{slice_spec.threads}t"


def _processor() -> str:
    name = platform.processor() or platform.machine()
    if _CPU_INFO.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text(), re.MULTILINE)
        name = match.group(1) if match else name
    words = re.sub(r"\(r\)|\(tm\)|@.*|\b\d+-core\b|\bprocessor\b|\bcpu\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown"
