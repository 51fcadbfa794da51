"""What a gateway knows of its own cell from its settings."""

from dataclasses import dataclass, field
from typing import Final

from serving.cache.spec import RedisSpec

TOKEN_ENV: Final = "PENSTOCK_CELL_TOKEN"  # noqa: S105  the variable's name
"""Where all cells look for the token, unless their settings name another variable."""


@dataclass(frozen=True, slots=True)
class CellsSpec:
    """This gateway's cell, and where it meets the others. `address`: where the others reach its door, "" for
    where it listens. `ca`: a file with the certificates that the others' doors are signed by, "" for those
    that the machine trusts."""

    name: str
    redis: RedisSpec
    token: str = field(default="", repr=False)
    host: str = "127.0.0.1"
    port: int = 8006
    address: str = ""
    tls: bool = False
    ca: str = ""
