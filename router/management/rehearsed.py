"""What the status says of rehearsed GPUs: their shares, where their MIG instances would lie, their memory."""

from collections.abc import Iterable
from typing import Final

from router.observing.status import GpuStatus, mig_status
from serving.control.state.replicas import LOADED, SliceRecord
from serving.policy.placement.terms.geometry import known_geometry
from serving.runtime.slicing.mig.layout import layout_on_paper

_GIB: Final = 1 << 30


def rehearsed_gpus(records: Iterable[SliceRecord]) -> list[GpuStatus]:
    """Return the rehearsed GPUs of these slices, in the order of their slices.

    Their memory in use is what the profiles of their replicas say. A GPU of a kind without a table of MIG
    profiles has no memory, and one that could not have all its instances, as within a move, has no layout.
    """
    there: dict[str, list[SliceRecord]] = {}
    for record in records:
        spec = record.spec
        if spec.rehearsed and spec.kind.startswith("gpu-") and not spec.node:
            there.setdefault(spec.device, []).append(record)
    return [_gpu(device, found) for device, found in there.items()]


def _gpu(device: str, records: list[SliceRecord]) -> GpuStatus:
    specs = [record.spec for record in records]
    kind = specs[0].kind
    geometry = known_geometry(kind) or ()
    held = {record.spec.name: _held_bytes(record) for record in records}
    found: GpuStatus = {
        "uuid": device,
        "name": kind,
        "slices": {spec.name: str(spec.share) for spec in specs},
        "memory_bytes": round(max(each.memory_gib for each in geometry) * _GIB) if geometry else None,
        "memory_used_bytes": sum(held.values()),
        "used_percent": None,
        "temperature_c": None,
        "power_w": None,
        "state": "ok",
        "reason": "",
        "rehearsed": True,
    }
    wanted = {spec.held_as: spec.share.profile for spec in specs if spec.share.kind == "mig"}
    if wanted and (layout := layout_on_paper(geometry, wanted)) is not None:
        found["mig"] = mig_status(layout, {spec.name: spec.held_as for spec in specs}, held)
    return found


def _held_bytes(record: SliceRecord) -> int:
    replicas = record.replicas.values()
    return sum(each.memory_bytes for each in replicas if each.status in LOADED)
