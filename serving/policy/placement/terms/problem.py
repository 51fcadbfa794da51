"""The problem that a placement solves: the demands of models, and the pools of devices that can carry them.

A demand's options say what a replica of its model costs and carries on each share of each kind of device.
Rates and throughputs are rows a second. Latencies are microseconds. A price is for one device for an hour.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from serving.policy.placement.terms.geometry import Geometry, MigProfile
from serving.profile.derived.carrying import ProfiledCapacity
from serving.values.slice_specs import Share

SLACK = 0.45
"""The part of an SLO that one batch may take. A request that just missed a batch waits for that batch and
then for its own, so two batches have to fit (Nexus, SOSP 2019). A tenth of the SLO is spare (ParvaGPU, SC
2024)."""


@dataclass(frozen=True, slots=True)
class Option:
    """A way to run a model's replica: a variant on a share of a kind of device.

    - `processes`: the workers in the share, each with one batch at a time. Only a MIG instance has several.
    - `curve`: (rows, latency in us) of each measured batch. Rows ascend and latencies do not fall.
    - `memory_bytes`: what a replica holds while it runs.
    - `pressure`, `sensitivity`: the interference on a device with shares that do not isolate. A batch then
      takes 1 + sensitivity * sum of the others' pressures times as long (Bubble-Up, MICRO 2011;
      `serving/profile/derived/interference.py`).
    - `profiled`: the profiled capacity, for people to read. No decision uses it.
    """

    kind: str
    share: Share
    variant: str
    curve: tuple[tuple[int, float], ...]
    memory_bytes: int = 0
    load_us: int = 0
    processes: int = 1
    pressure: float = 0.0
    sensitivity: float = 0.0
    profiled: ProfiledCapacity | None = None

    @property
    def worker_share(self) -> Share:
        """The share of each of its workers, as slices and profiles have it."""
        return self.share.with_processes(self.processes)

    def latency_us(self, rows: int) -> float:
        """Return the latency in us of a batch of `rows` rows, on the line between its measured neighbours.

        Raise ValueError if `rows` is above the largest measured batch.
        """
        place = bisect_right(self.curve, (rows, float("inf")))
        if place == 0:
            return self.curve[0][1]
        low, low_us = self.curve[place - 1]
        if low == rows:
            return low_us
        if place == len(self.curve):
            raise ValueError(f"{rows} rows are more than the {low} that were measured")
        high, high_us = self.curve[place]
        return low_us + (high_us - low_us) * (rows - low) / (high - low)

    def offer(self, budget_us: float, slowdown: float = 1.0) -> "Offer | None":
        """Return the measured batch with the most throughput within `budget_us`, or None if none fits."""
        fitting = [(rows, us * slowdown) for rows, us in self.curve if us * slowdown <= budget_us]
        if not fitting:
            return None
        rows, us = max(fitting, key=lambda each: (each[0] / each[1], -each[0]))
        return Offer(self, rows, us, self.processes * rows * 1e6 / us)


@dataclass(frozen=True, slots=True)
class Offer:
    """What an option carries at the batch that suits an SLO: `throughput` of a replica that is never idle."""

    option: Option
    rows: int
    latency_us: float
    throughput: float


@dataclass(frozen=True)
class Demand:
    """What a model is asked: `rate` rows a second, the reserve included, each row within `slo_us`.

    The replicas lie in at least `domains_min` failure domains. One batch may take `slack` of the SLO.
    """

    model: str
    rate: float
    slo_us: float
    options: tuple[Option, ...]
    domains_min: int = 1
    slack: float = SLACK

    @cached_property
    def offers(self) -> "tuple[Offer, ...]":
        """The best offer of each (kind, share) within the slack, in the order of the options.

        Of equal offers it is the one with less memory.
        """
        best: dict[tuple[str, Share], Offer] = {}
        for option in self.options:
            offer = option.offer(self.slack * self.slo_us)
            if offer is None:
                continue
            key = (option.kind, option.share)
            if key not in best or _better(offer, best[key]):
                best[key] = offer
        return tuple(best.values())


def _better(one: Offer, other: Offer) -> bool:
    worth = (one.throughput, -one.option.memory_bytes)
    return worth > (other.throughput, -other.option.memory_bytes)


@dataclass(frozen=True, slots=True)
class Parts:
    """A device divided by amounts into slices of `kind` ("cores", "mps", "sm", "whole").

    The amounts come to at most `total`, in at most `slices_max` slices (0: no limit). The slices share the
    device's memory and slow each other down.
    """

    kind: str
    total: float
    slices_max: int = 0


@dataclass(frozen=True, slots=True)
class Instances:
    """A device divided into MIG instances, each with its own memory. They do not slow each other down."""

    geometry: Geometry

    @property
    def kind(self) -> str:
        """The kind of share, as in `Parts`."""
        return "mig"

    def profile(self, share: Share) -> MigProfile | None:
        """Return the size of instance that a share names, or None if this device has no such size."""
        return next((each for each in self.geometry if each.name == share.label), None)


@dataclass(frozen=True, slots=True)
class PlacementDevice:
    """One device. The devices of one `domain` (a host, a rack) fail together."""

    name: str
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal devices: of one kind, memory, price and division. `memory_bytes` 0 means no limit."""

    name: str
    kind: str
    division: Parts | Instances
    devices: tuple[PlacementDevice, ...]
    price: float = 1.0
    memory_bytes: int = 0

    def fits(self, option: Option) -> bool:
        """Return whether a replica with this option fits on an empty device of this pool."""
        if option.kind != self.kind or option.share.kind != self.division.kind:
            return False
        if isinstance(self.division, Parts):
            held = not self.memory_bytes or option.memory_bytes <= self.memory_bytes
            return held and option.share.amount <= self.division.total
        profile = self.division.profile(option.share)
        return profile is not None and option.memory_bytes <= profile.memory_gib * (1 << 30)


@dataclass(frozen=True)
class PlacementProblem:
    """All that a placement is decided from.

    Each name of a pool, a device or a model is used once; otherwise ValueError.
    """

    demands: tuple[Demand, ...]
    pools: tuple[Pool, ...]

    def __post_init__(self) -> None:
        for what, names in (
            ("model", [each.model for each in self.demands]),
            ("pool", [each.name for each in self.pools]),
            ("device", [device.name for pool in self.pools for device in pool.devices]),
        ):
            if len(set(names)) < len(names):
                twice = next(name for place, name in enumerate(names) if name in names[:place])
                raise ValueError(f"the {what} {twice} is there twice")

    @cached_property
    def pool_of(self) -> dict[str, Pool]:
        """The pool of each device, by the device's name."""
        return {device.name: pool for pool in self.pools for device in pool.devices}

    @cached_property
    def domain_of(self) -> dict[str, str]:
        """The failure domain of each device, by the device's name."""
        return {device.name: device.domain for pool in self.pools for device in pool.devices}

    @cached_property
    def demand_of(self) -> dict[str, Demand]:
        """The demand of each model, by the model's name."""
        return {each.model: each for each in self.demands}
