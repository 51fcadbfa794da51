"""A slice in JSON, as `GET /v2/placement` tells it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from serving.specs import Share, SliceSpec

Json = dict[str, Any]
CPU = "cpu"


def told_slice(spec: SliceSpec) -> Json:
    """Return the slice with its cores; on a GPU also with its device, kind and share."""
    told: Json = {
        "name": spec.name,
        "cores": len(spec.cores),
        "threads": spec.threads,
        "on": list(spec.cores),
    }
    if spec.device != CPU:
        told |= {"device": spec.device, "kind": spec.kind, "share": str(spec.share)}
        told |= {"rehearsed": spec.rehearsed}
    return told


def read_slice(told: Mapping[str, Any]) -> SliceSpec:
    """Return the slice that `told_slice` wrote."""
    spec = SliceSpec(told["name"], tuple(told["on"]), told["threads"])
    if "device" not in told:
        return spec
    share, rehearsed = Share.parse(told["share"]), told["rehearsed"]
    return replace(spec, device=told["device"], part=share, kind=told["kind"], rehearsed=rehearsed)
