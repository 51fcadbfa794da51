"""A slice in JSON: in `GET /v2/placement`, and in the file of an applied placement.

    {"name": "cuda0-1", "cores": 0, "on": [], "threads": 1, "memory_bytes": 0, "price": 0.5, "spot": false,
     "device": "cuda:0", "kind": "gpu-nvidia-h200", "share": "mig:2g.35gb*2", "rehearsed": false,
     "instance": "cuda0-1"}

`cores` counts the cores, and `on` names them. A slice of cores has none of the keys of the last two lines.
One with another interpreter has `python` too, and one on a node has `node` and `kind`.
`PUT /v2/placement` takes the same keys of what a client may choose (`proposal.py`): `name`, `cores`,
`threads`, `device`, `share`, `instance`.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from serving.values.slice_specs import Share, SliceSpec

Json = dict[str, Any]
CPU = "cpu"


def told_slice(spec: SliceSpec) -> Json:
    """Return the slice in JSON."""
    told: Json = {
        "name": spec.name,
        "cores": len(spec.cores),
        "on": list(spec.cores),
        "threads": spec.threads,
        "memory_bytes": spec.memory_bytes,
        "price": spec.price,
        "spot": spec.spot,
    }
    if spec.device != CPU:
        told |= {"device": spec.device, "kind": spec.kind, "share": str(spec.share)}
        told |= {"rehearsed": spec.rehearsed, "instance": spec.instance}
    if spec.python:
        told["python"] = spec.python
    if spec.node:
        told |= {"node": spec.node, "kind": spec.kind}
    return told


def read_slice(told: Mapping[str, Any]) -> SliceSpec:
    """Return the slice that `told_slice` wrote. Raises ValueError, TypeError, KeyError or OverflowError if
    the JSON is something else."""
    # Files of earlier versions name the cores in `cores`. Gateways of earlier versions tell fewer keys.
    cores = tuple(_count(core) for core in (told["on"] if "on" in told else told["cores"]))
    threads, spot = _count(told["threads"]), told.get("spot", False)
    if threads < 1:
        raise ValueError("a slice of it has no threads")
    if type(spot) is not bool:
        raise ValueError(f"spot is {spot!r}, neither true nor false")
    memory_bytes, price = _count(told.get("memory_bytes", 0)), number(told.get("price", 0.0))
    spec = SliceSpec(text(told["name"]), cores, threads, memory_bytes=memory_bytes, price=price, spot=spot)
    node = str(told.get("node", ""))
    kind = str(told.get("kind", "")) if node else ""
    spec = replace(spec, python=str(told.get("python", "")), node=node, kind=kind)
    if told.get("device", CPU) == CPU:
        return spec
    return replace(
        spec,
        device=text(told["device"]),
        part=Share.parse(told["share"]),
        kind=text(told["kind"]),
        rehearsed=told["rehearsed"] is True,
        instance=str(told.get("instance", "")),
    )


def text(value: Any) -> str:
    """Return a name. Raises ValueError if it is none."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no name")
    return value


def number(value: Any) -> float:
    """Return a number of 0 or more. Raises ValueError if it is none."""
    found = float(value)
    if not 0 <= found < inf:
        raise ValueError(f"{found} is no number of 0 or more")
    return found


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number of 0 or more")
    return value
