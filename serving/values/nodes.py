"""Nodes: other machines that have slices of a gateway."""

from dataclasses import dataclass, field
from typing import Final

TOKEN_ENV: Final = "PENSTOCK_NODE_TOKEN"  # noqa: S105  the variable's name
"""Where both sides look for the token, unless they are told another variable."""


@dataclass(frozen=True, slots=True)
class NodesSpec:
    """The gateway's door for nodes; port 0 picks a free one. `token`: what both sides have to know. `ship`:
    the gateway brings model files to nodes; else nodes have them at the same paths. `names`: the nodes that
    slices name, in order.
    """

    host: str = "127.0.0.1"
    port: int = 8005
    token: str = field(default="", repr=False)
    ship: bool = True
    names: tuple[str, ...] = ()
