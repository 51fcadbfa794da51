"""Small parts to make placement problems of."""

from collections.abc import Sequence

from serving.policy.placement.terms.geometry import A100_80, Geometry
from serving.policy.placement.terms.problem import Demand, Instances, Option, Parts, PlacementDevice, Pool
from serving.values.slice_specs import Share

SLO_US = 1e6
GPU = "gpu"


def option(share: str, rate: float, kind: str = GPU, memory_bytes: int = 0, processes: int = 1) -> Option:
    """A replica of it carries so many rows a second, one by one."""
    curve = ((1, processes * 1e6 / rate),)
    return Option(kind, Share.parse(share), "fp32", curve, memory_bytes, processes=processes)


def demand(model: str, rate: float, *options: Option, domains_min: int = 1) -> Demand:
    """All batches are in time."""
    return Demand(model, rate, SLO_US, options, domains_min)


def devices(name: str, count: int, domains: Sequence[str] = ("",)) -> tuple[PlacementDevice, ...]:
    """In the domains in turn."""
    return tuple(PlacementDevice(f"{name}{place}", domains[place % len(domains)]) for place in range(count))


def mig_pool(
    count: int,
    name: str = GPU,
    price: float = 1.0,
    domains: Sequence[str] = ("",),
    geometry: Geometry = A100_80,
) -> Pool:
    """GPUs divided into MIG instances; their kind is the pool's name."""
    return Pool(name, name, Instances(geometry), devices(name, count, domains), price)


def mps_pool(
    count: int, name: str = GPU, price: float = 1.0, slices_max: int = 0, memory_bytes: int = 0
) -> Pool:
    """GPUs divided by per cents; their kind is the pool's name."""
    return Pool(name, name, Parts("mps", 100, slices_max), devices(name, count), price, memory_bytes)
