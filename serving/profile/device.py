"""The name of a device kind: profiles measured on one hold for every device of that kind."""

import platform
import re
from pathlib import Path

from serving.values.slice_specs import SliceSpec

_CPU_INFO = Path("/proc/cpuinfo")


def device_kind(slice_spec: SliceSpec) -> str:
    """Return the kind of a device: the name, family and model of a processor (for example
    `cpu-amd-epyc-f25m17`), or the kind of a GPU.

    Raises ValueError if the slice names no kind for its GPU: only the driver knows it.
    """
    if slice_spec.device != "cpu" and not slice_spec.kind:
        raise ValueError(f"{slice_spec.device} is no CPU")
    return slice_spec.kind or _processor()


def gpu_kind(name: str) -> str:
    """Return `gpu-nvidia-h200` for NVML's "NVIDIA H200"; older drivers leave the vendor out ("Tesla T4")."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"
    return f"gpu-{words}" if words.startswith("nvidia") else f"gpu-nvidia-{words}"


def processor_name() -> str:
    """Return the processor's name as the kernel or the platform gives it, for people."""
    return _field("model name", _cpu_info()) or platform.processor() or platform.machine()


def _processor() -> str:
    """Return the processor's kind. Virtual machines often call all generations of a processor the same;
    family and model differ."""
    text = _cpu_info()
    words = re.sub(r"\(r\)|\(tm\)|@.*|\b\d+-core\b|\bprocessor\b|\bcpu\b", " ", processor_name().lower())
    family, number = _field("cpu family", text), _field("model", text)
    generation = f"-f{family}m{number}" if family.isdecimal() and number.isdecimal() else ""
    return "cpu-" + (re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown") + generation


def _cpu_info() -> str:
    return _CPU_INFO.read_text() if _CPU_INFO.exists() else ""


def _field(name: str, text: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else ""
