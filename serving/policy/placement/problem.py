"""What a placement is decided from: what is asked of each model, what its replicas cost and carry on which
share of which kind of device, and the devices that there are.

Rates and throughputs are rows a second, latencies microseconds, prices of a device for an hour.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from serving.policy.placement.geometry import Geometry, MigProfile
from serving.profile.carrying import ProfiledCapacity
from serving.specs import Share

SLACK = 0.45
"""Of an SLO, what one batch may take: a request that just missed one waits for it and then for its own, so
two have to fit (Nexus, SOSP 2019), with a tenth to spare (ParvaGPU, SC 2024)."""


@dataclass(frozen=True, slots=True)
class Option:
    """A way to run a model's replica: a variant on a share of a kind of device, `streams` batches at once.

    `curve`: (rows, latency in us) of what was measured, rows ascending, latencies not falling.
    `memory_bytes`: what a replica holds while it runs. `pressure` and `sensitivity`: beside others on a
    device whose shares do not isolate, a batch takes 1 + sensitivity * sum of the others' pressures times as
    long (Bubble-Up, MICRO 2011; `serving/profile/interference.py`). `profiled`: its profiled capacity, for
    people: nothing is decided by it.
    """

    kind: str
    share: Share
    variant: str
    curve: tuple[tuple[int, float], ...]
    memory_bytes: int = 0
    load_us: int = 0
    streams: int = 1
    pressure: float = 0.0
    sensitivity: float = 0.0
    profiled: ProfiledCapacity | None = None

    def latency_us(self, rows: int) -> float:
        """Of a batch of that many rows, between measured ones on the line through both; ValueError beyond
        the largest measured."""
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
        """The measured batch with the most throughput of those within `budget_us`; None where none is."""
        fitting = [(rows, us * slowdown) for rows, us in self.curve if us * slowdown <= budget_us]
        if not fitting:
            return None
        rows, us = max(fitting, key=lambda each: (each[0] / each[1], -each[0]))
        return Offer(self, rows, us, self.streams * rows * 1e6 / us)


@dataclass(frozen=True, slots=True)
class Offer:
    """What an option carries at the batch that suits an SLO: `throughput` of a replica that is never idle."""

    option: Option
    rows: int
    latency_us: float
    throughput: float


@dataclass(frozen=True)
class Demand:
    """What is asked of a model: `rate` to be carried (what is kept in reserve included), each row within
    `slo_us`.

    `domains_min`: its replicas lie in at least so many failure domains. `slack`: of the SLO, what one batch
    may take.
    """

    model: str
    rate: float
    slo_us: float
    options: tuple[Option, ...]
    domains_min: int = 1
    slack: float = SLACK

    @cached_property
    def offers(self) -> "tuple[Offer, ...]":
        """The best offer of each (kind, share) within the slack, in the order of the options; of equal ones
        that with less memory."""
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
    """A device divided by amounts: slices of `kind` ("cores", "mps", "sm", "whole") whose amounts come to at
    most `total`, at most `slices_max` of them (0: no limit). They share the device's memory, and slow each
    other down."""

    kind: str
    total: float
    slices_max: int = 0


@dataclass(frozen=True, slots=True)
class Instances:
    """A device divided into MIG instances, each with memory of its own. They do not slow each other down."""

    geometry: Geometry

    @property
    def kind(self) -> str:
        """The kind of share, as `Parts` has one."""
        return "mig"

    def profile(self, share: Share) -> MigProfile | None:
        """The size of instance that a share names; None where this device has none such."""
        return next((each for each in self.geometry if each.name == share.label), None)


@dataclass(frozen=True, slots=True)
class PlacementDevice:
    """One device; those of one `domain` fail together (a host, a rack)."""

    name: str
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices that are alike: of one kind, memory and price, divided in one way. `memory_bytes` 0: not
    limited."""

    name: str
    kind: str
    division: Parts | Instances
    devices: tuple[PlacementDevice, ...]
    price: float = 1.0
    memory_bytes: int = 0

    def fits(self, option: Option) -> bool:
        """Whether a replica so run could be on a device of this pool that has nothing else."""
        if option.kind != self.kind or option.share.kind != self.division.kind:
            return False
        if isinstance(self.division, Parts):
            held = not self.memory_bytes or option.memory_bytes <= self.memory_bytes
            return held and option.share.amount <= self.division.total
        profile = self.division.profile(option.share)
        return profile is not None and option.memory_bytes <= profile.memory_gib * (1 << 30)


@dataclass(frozen=True)
class PlacementProblem:
    """All that a placement is decided from. Names of pools, of devices and of models are each used once;
    ValueError otherwise."""

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
        """By the name of a device."""
        return {device.name: pool for pool in self.pools for device in pool.devices}

    @cached_property
    def domain_of(self) -> dict[str, str]:
        """By the name of a device."""
        return {device.name: device.domain for pool in self.pools for device in pool.devices}

    @cached_property
    def demand_of(self) -> dict[str, Demand]:
        """By the name of a model."""
        return {each.model: each for each in self.demands}
