"""GPUs as metrics: what Triton says of them, by its names and labels, and what its names leave out.

Names, labels and units: Triton's user guide, "Metrics", "GPU Metrics". `nv_gpu_utilization` is a part of 1.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from router.observing.telemetry.counting.heading import head
from serving.policy.device_health import GpuReading

_Value = float | int | None

_TRITON: Final[tuple[tuple[str, str, str, Callable[[GpuReading], _Value]], ...]] = (
    (
        "nv_gpu_utilization",
        "gauge",
        "Part of the last second in which some kernel ran, 0 to 1.",
        lambda gpu: None if gpu.used_percent is None else gpu.used_percent / 100,
    ),
    ("nv_gpu_memory_total_bytes", "gauge", "Memory of the GPU.", lambda gpu: gpu.memory_bytes),
    (
        "nv_gpu_memory_used_bytes",
        "gauge",
        "Memory in use, by all processes.",
        lambda gpu: gpu.memory_used_bytes,
    ),
    ("nv_gpu_power_usage", "gauge", "Power in watts.", lambda gpu: gpu.power_w),
    ("nv_gpu_power_limit", "gauge", "Most power in watts.", lambda gpu: gpu.power_limit_w),
    (
        "nv_energy_consumption",
        "counter",
        "Energy in joules since the driver was loaded.",
        lambda gpu: gpu.energy_j,
    ),
)


def triton_blocks(gpus: Sequence[GpuReading]) -> Iterator[str]:
    """Yield what Triton says of GPUs; nothing without GPUs."""
    for name, kind, text, value in _TRITON if gpus else ():
        yield head(name, kind, text)
        for gpu in gpus:
            yield _line(name, gpu, value(gpu))


def blocks(gpus: Sequence[GpuReading], cordoned: Collection[str]) -> Iterator[str]:
    """Yield what else is known of GPUs; nothing without GPUs. `cordoned`: UUIDs that no slice may use."""
    if not gpus:
        return
    yield head("penstock_gpu_usable", "gauge", "1 if slices may use the GPU, 0 after a fault of it.")
    for gpu in gpus:
        yield _line("penstock_gpu_usable", gpu, int(gpu.uuid not in cordoned))
    yield head("penstock_gpu_throttled", "gauge", "1 while heat or power lowers the clocks of the GPU.")
    for gpu in gpus:
        yield _line("penstock_gpu_throttled", gpu, int(bool(gpu.throttled)))
    yield head("penstock_gpu_temperature_celsius", "gauge", "Temperature of the GPU.")
    for gpu in gpus:
        yield _line("penstock_gpu_temperature_celsius", gpu, gpu.temperature_c)


def _line(name: str, gpu: GpuReading, value: _Value) -> str:
    """Return a sample, "" if its driver does not tell."""
    return "" if value is None else f'{name}{{gpu_uuid="{gpu.uuid}"}} {value}\n'
