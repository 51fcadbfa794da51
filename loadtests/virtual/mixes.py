"""Mixes of models with unlike SLOs, latencies and loads on one or several slices: what each policy carries.

Drawn from seeds, so that a number names a mix; and those by name that have shown a weakness once. All runs
of a mix have the same arrivals. `slo exact` is `slo` without admission.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from statistics import geometric_mean

import numpy as np

from loadtests.virtual.virtual_world import VirtualModel, World, good_share
from serving.values.specs import BatchingSpec

SLICES, MODELS = 16, 20
SLO_MS = (10.0, 1000.0)
LAUNCH_MS = (2.0, 8.0)  # of a model with an SLO of 25 ms; a ResNet's is 5.2
ROW_SHARE = (0.08, 0.4)  # of the launch, that a row adds; a ResNet's .21
FOLLOWS = (0.0, 0.5, 1.0)  # powers of the SLO that the latencies of a mix go with
UNEVEN = 0.7  # standard deviation of the logarithms of models' loads
SETTLE_US = 1_000_000
REQUESTS = 16_000  # counted in a run: at 1 % bad 160, by which capacity is known to some .5 %
SECONDS_MIN = 3.0
GRAIN = 0.005
OVERLOADS = (1.2, 1.5)
NEAR = 0.98  # of the best contender, what ours promises on any mix

Drawer = np.random.Generator


@dataclass(frozen=True, slots=True)
class Mix:
    """Models that all reside on each of `slices` slices."""

    name: str
    slices: int
    models: tuple[VirtualModel, ...]

    def world(self, policy: BatchingSpec) -> World:
        """Return the mix under a policy."""
        return World(policy, self.slices, unlike=self.models, settle_us=SETTLE_US)

    @property
    def rate_max(self) -> float:
        """Requests a second that no policy can pass: launches cost nothing."""
        shares = sum(model.share for model in self.models)
        row_us = sum(model.share * model.alpha_us for model in self.models) / shares
        return 1e6 * self.slices / row_us

    def __str__(self) -> str:
        slos = sorted(model.slo_us / 1000 for model in self.models)
        models = f"{len(slos)} model{'s' * (len(slos) > 1)}"
        return f"{self.slices} x {models}, {slos[0]:.0f} to {slos[-1]:.0f} ms"


def _resnets(*slos_ms: float) -> tuple[VirtualModel, ...]:
    return tuple(VirtualModel(int(slo_ms * 1000)) for slo_ms in slos_ms)


NAMED: Mapping[str, Mix] = {
    mix.name: mix
    for mix in (
        Mix("tiers", 4, _resnets(20, 60, 200)),
        Mix("ten", 4, _resnets(*np.geomspace(15, 500, 10))),
        Mix("three", 1, _resnets(25, 25, 200)),
        Mix("two", 1, _resnets(25, 300)),
        Mix("far", 1, _resnets(30, 1000)),
        Mix("alike", 8, _resnets(*[50] * 10)),
        Mix("unlike", 8, tuple(
            VirtualModel(50_000, 1080 * factor, 5200 * factor) for factor in np.geomspace(0.4, 1.6, 10)
        )),
    )
}  # fmt: skip

CONTENDERS: Mapping[str, BatchingSpec] = {
    "slo": BatchingSpec("slo", guard_us=0),
    "slo exact": BatchingSpec("slo", guard_us=0, admission=False),
    "window_drop": BatchingSpec("window_drop"),
    "static": BatchingSpec("static"),
    "symphony": BatchingSpec("symphony", guard_us=0, mode="beta_lambda"),
}


def draw_mix(seed: int) -> Mix:
    """Return the mix of that number."""
    rng = np.random.default_rng([seed, 12])
    slices, count = (round(_between(rng, 1, most)) for most in (SLICES, MODELS))
    follows = rng.choice(FOLLOWS)
    models = []
    for _ in range(count):
        slo_ms = _between(rng, *SLO_MS)
        # Alone and at once, a row takes at most a quarter of its SLO: others have to fit in, too.
        launch_ms = min(_between(rng, *LAUNCH_MS) * (slo_ms / 25) ** follows, slo_ms / 5)
        row_ms = launch_ms * _between(rng, *ROW_SHARE)
        share = exp(UNEVEN * rng.standard_normal()) / (row_ms + launch_ms / 8)
        models.append(VirtualModel(round(slo_ms * 1000), row_ms * 1000, launch_ms * 1000, share=share))
    return Mix(str(seed), slices, tuple(models))


def find_mix(name: str) -> Mix:
    """Return the mix of that name or number. ValueError where there is none."""
    if name in NAMED:
        return NAMED[name]
    if not name.isdecimal():
        raise ValueError(f"there is no mix {name!r}: it should be a number or one of {', '.join(NAMED)}")
    return draw_mix(int(name))


def _between(rng: Drawer, low: float, high: float) -> float:
    """Draw a number that is log-uniform."""
    return exp(rng.uniform(log(low), log(high)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What each contender carries of a mix. `capacity`: the most requests a second with 99 % in time.
    `goodput`: those in time at OVERLOADS times the best contender's most."""

    mix: Mix
    capacity: Mapping[str, float]
    goodput: Mapping[float, Mapping[str, float]]

    def ratios(self, name: str) -> tuple[float, ...]:
        """Return a contender's figures over the best of the others: capacity, then goodputs."""
        figures = [self.capacity, *self.goodput.values()]
        return tuple(each[name] / best if (best := max(each.values())) else 1.0 for each in figures)


def measure_mix(mix: Mix, names: Sequence[str], scale: float = 1.0) -> Outcome:
    """Play a mix under each of these contenders; `scale`: of the length of runs."""
    worlds = {name: mix.world(CONTENDERS[name]) for name in names}
    capacity = {name: _capacity(mix, world, scale) for name, world in worlds.items()}
    best = max(capacity.values())
    goodput = {
        times: {name: times * best * _good(world, times * best, scale) for name, world in worlds.items()}
        for times in OVERLOADS
    }
    return Outcome(mix, capacity, goodput)


def _good(world: World, rate: float, scale: float) -> float:
    seconds = scale * max(REQUESTS / rate, SECONDS_MIN) if rate else 1.0
    return good_share(world, rate, SETTLE_US / 1e6 + seconds, 1)


def _capacity(mix: Mix, world: World, scale: float) -> float:
    low, high = 0.0, mix.rate_max
    while high - low > GRAIN * high and high > 0.01 * mix.rate_max:
        rate = (low + high) / 2
        low, high = (rate, high) if _good(world, rate, scale) >= 0.99 else (low, rate)
    return low


def table(found: Sequence[Outcome], names: Sequence[str]) -> Iterator[str]:
    """Yield Markdown: by mix, the best capacity, and each contender's shares of the best."""
    loads = ("99 %", *(f"{times:g} x" for times in OVERLOADS))
    yield "| mix | models | best /s | " + " | ".join(f"{name}: {', '.join(loads)}" for name in names) + " |"
    yield "|---" * (len(names) + 3) + "|"
    for each in found:
        cells = (", ".join(f"{ratio:.3f}" for ratio in each.ratios(name)) for name in names)
        best = max(each.capacity.values())
        yield f"| {each.mix.name} | {each.mix} | {best:.0f} | " + " | ".join(cells) + " |"
    for label, pick in (("mean", geometric_mean), ("worst", min)):
        cells = (
            ", ".join(
                f"{pick(ratios):.3f}" for ratios in zip(*map(partial(_floor, name), found), strict=True)
            )
            for name in names
        )
        yield f"| {label} | | | " + " | ".join(cells) + " |"


def _floor(name: str, each: Outcome) -> tuple[float, ...]:
    return tuple(max(ratio, 1e-3) for ratio in each.ratios(name))


def missed(found: Sequence[Outcome]) -> Iterator[str]:
    """Yield the mixes in which our policy is further from the best than it promises."""
    for each in found:
        for name in ("slo", "slo exact"):
            if name not in each.capacity:
                continue
            for what, ratio in zip(("99 %", *OVERLOADS), each.ratios(name), strict=True):
                if ratio < NEAR:
                    yield f"mix {each.mix.name} ({each.mix}) {name}: {ratio:.3f} of the best at {what}"
