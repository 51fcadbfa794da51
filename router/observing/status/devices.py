"""The GPUs of a status as a table."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from router.observing.status.document import GpuStatus
from router.observing.status.instances import MigStatus

_GIB: Final = 1 << 30
_COLOURS: Final = {"ok": "green", "throttled": "yellow", "lost": "red"}


def gpus_table(gpus: Sequence[GpuStatus]) -> Table:
    """Return a row of each GPU: what it is, how it is divided, how much of it is in use."""
    table = Table("GPU", "shares", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for title in ("memory GiB", "used %", "°C", "W"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("state")
    for gpu in gpus:
        rehearsed = "rehearsed" if gpu.get("rehearsed") else ""
        told = ", ".join(filter(None, (gpu["state"], rehearsed, gpu["reason"])))
        table.add_row(
            escape(f"{gpu['name']} {gpu['uuid'][:12]}"),
            escape(_shares(gpu)),
            f"{_gib(gpu['memory_used_bytes'])}/{_gib(gpu['memory_bytes'])}",
            _number(gpu["used_percent"]),
            _number(gpu["temperature_c"]),
            _number(gpu["power_w"]),
            f"[{_COLOURS[gpu['state']]}]{escape(told)}[/]",
        )
    return table


def _shares(gpu: GpuStatus) -> str:
    """Return how the GPU is divided: "3x mps:30", say."""
    if "mig" in gpu:
        return _instances(gpu["mig"])
    counts = Counter(gpu["slices"].values())
    return ", ".join(_times(count, share) for share, count in counts.items()) or "-"


def _instances(mig: MigStatus) -> str:
    """Return the instances with their places, and what could be created: "2x mig:2g.35gb at 0 2, room for
    3g.71gb", say."""
    starts: dict[tuple[str, bool], list[int]] = {}
    for each in mig["instances"]:
        starts.setdefault((each["profile"], bool(each["slices"])), []).append(each["start"])
    told = [
        f"{_times(len(places), f'mig:{profile}')} at {' '.join(map(str, places))}{'' if used else ', unused'}"
        for (profile, used), places in starts.items()
    ]
    if largest := next(iter(mig["room"]), ""):
        told.append(f"room for {largest}")
    return ", ".join(told)


def _times(count: int, what: str) -> str:
    return f"{count}x {what}" if count > 1 else what


def _gib(value: int | None) -> str:
    return "-" if value is None else f"{value / _GIB:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
