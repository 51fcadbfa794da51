"""The nodes of a status as a table."""

from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from router.observing.status.document import NodeBody

_COLOURS: Final = {"joined": "green", "lost": "red", "absent": "dim"}


def nodes_table(nodes: Sequence[NodeBody]) -> Table:
    """Return a row of each node: where it called from, what it has, and whether it is there."""
    table = Table("node", "address", "devices", "slices", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    table.add_column("trip ms", justify="right", no_wrap=True)
    table.add_column("state")
    for node in nodes:
        use = "" if node["needed"] else "not needed"
        told = ", ".join(filter(None, (node["state"], node["reason"], use)))
        devices = ", ".join([f"{node['cores']} cores of {node['kind']}", *node["gpus"]])
        table.add_row(
            escape(node["name"]),
            escape(node["address"] or "-"),
            escape(devices if node["cores"] else "-"),
            escape(", ".join(node["slices"]) or "-"),
            f"{node['trip_us'] / 1000:.2f}" if node["trip_us"] else "-",
            f"[{_COLOURS[node['state']]}]{escape(told)}[/]",
        )
    return table
