"""MIG geometry: which GPU instances a GPU can be divided into, and where they may lie. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A size of GPU instance: `name` ("3g.71gb") and NVML's `id`; `starts`: the memory slices that it may
    begin at, `size` of them; at most `instances_max` at a time; `memory_gib` usable, `sms` to compute on."""

    id: int
    name: str
    starts: tuple[int, ...]
    size: int
    instances_max: int
    memory_gib: float
    sms: int


Geometry = tuple[MigProfile, ...]
