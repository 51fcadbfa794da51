"""`client_shm:` of `server:`: whether clients may register shared memory of their own, and how much."""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, PlainValidator

from router.settings.values.fields import Keys, Megabytes, refuse
from router.settings.values.findings import Findings
from router.settings.values.problems import fault

LOC: Final = ("server", "client_shm")
REGION_COUNT_MAX: Final = 1024
"""Of all callers together: each region keeps a file open."""


@dataclass(frozen=True, slots=True)
class ClientShm:
    """What one caller may register: so many regions, of so many bytes together."""

    regions: int = 64
    region_bytes: int = 1 << 30


_DEFAULT: Final = ClientShm()


class ClientShmSection(Keys):
    """`client_shm:` where it is a mapping; the defaults are those of ClientShm."""

    regions: Annotated[int, Field(ge=1, le=REGION_COUNT_MAX)] = _DEFAULT.regions
    mb: Megabytes = _DEFAULT.region_bytes / (1 << 20)


def _check(value: object) -> object:
    if isinstance(value, bool | dict):
        return value
    raise refuse(fault("not true or false", value, "true, or how much: {regions: 64, mb: 1024}"))


ClientShmKey = Annotated[bool | dict[str, object] | None, PlainValidator(_check)]


def read_client_shm(findings: Findings, stated: object) -> ClientShm | None:
    """Return what the key says; None where clients may register nothing."""
    if not isinstance(stated, dict):
        return ClientShm() if stated is True else None
    section = findings.parse(ClientShmSection, LOC)
    if section is None:
        return None
    return ClientShm(section.regions, round(section.mb * (1 << 20)))
