"""The GPUs of a status as a table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from router.observing.status.document import GpuStatus

if TYPE_CHECKING:  # a reader of JSON needs no geometry
    from router.observing.status.layouts import LayoutStatus

_GIB: Final = 1 << 30
_COLOURS: Final = {"ok": "green", "throttled": "yellow", "lost": "red"}


def gpus_table(gpus: Sequence[GpuStatus]) -> Table:
    """Return a row of each GPU: what it is, how it is divided, how much of it is in use."""
    table = Table("GPU", "shares", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for title in ("memory GiB", "used %", "°C", "W"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("state")
    for gpu in gpus:
        told = ", ".join(filter(None, (gpu["state"], gpu["reason"])))
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


def layout_lines(layouts: Sequence["LayoutStatus"]) -> Iterator[str]:
    """Yield how each GPU is divided: its parts from the first on, with their slices, and what is free."""
    for each in layouts:
        unit = " %" if each["how"] == "mps" else ""
        parts = [
            f"{part['share'].partition(':')[2]}{unit} ({', '.join(part['slices'])})" for part in each["parts"]
        ]
        free = each["width"] - sum(part["size"] for part in each["parts"])
        of = "%" if each["how"] == "mps" else f"of {each['width']:.0f} memory slices"
        left = f"{free:.0f} {of} free"
        yield f" {each['device']}: {' | '.join(parts)}{f' | {left}' if free > 0 else ''}"


def _shares(gpu: GpuStatus) -> str:
    """Return how the GPU is divided: "3x mps:30", say."""
    counts = Counter(gpu["slices"].values())
    return ", ".join(f"{count}x {share}" if count > 1 else share for share, count in counts.items()) or "-"


def _gib(value: int | None) -> str:
    return "-" if value is None else f"{value / _GIB:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
