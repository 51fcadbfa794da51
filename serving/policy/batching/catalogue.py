"""Batching policies by name (`batching: {policy: ...}` in `penstock.yaml`). `docs/extend/policy.md` says
which other lists are kept by hand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from serving.policy.batching.interface import BatchingPolicy
from serving.policy.batching.published.aimd import Aimd
from serving.policy.batching.published.clockwork import GUARD_US, Clockwork
from serving.policy.batching.published.dybatch import DyBatch
from serving.policy.batching.published.mark import Mark
from serving.policy.batching.published.nanily import Nanily
from serving.policy.batching.published.nexus import Nexus
from serving.policy.batching.published.shepherd import Shepherd
from serving.policy.batching.published.slab import Slab
from serving.policy.batching.published.symphony import BETA_LAMBDA, FRONTRUN, LATEST, Symphony
from serving.policy.batching.published.window_drop import WindowDrop
from serving.policy.batching.slo import Slo
from serving.policy.batching.static import Static
from serving.values.specs import BatchingSpec


@dataclass(frozen=True)
class PolicyEntry:
    """A policy's creation from (its settings with `mode` filled in, the SLO in microseconds), the `keys` of
    `batching:` that mean something to it beside `policy`, and its `modes`, the first by default."""

    create: Callable[[BatchingSpec, int], BatchingPolicy]
    keys: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.modes) != ("mode" in self.keys):
            raise ValueError(f"modes {self.modes} go with a key `mode`, and only with it; got {self.keys}")


LATENESS_US = 1000
"""The guard of a policy that waits: asyncio's timers come as late."""


def _guard_us(spec: BatchingSpec, otherwise_us: int) -> int:
    return otherwise_us if spec.guard_us is None else spec.guard_us


def _slo(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:
    return Slo(slo_us, _guard_us(spec, LATENESS_US), spec.mode == "consolidate", spec.admission)


def _static(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:  # noqa: ARG001  it knows no SLO
    return Static(spec.size, spec.delay_us)


def _aimd(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:
    return Aimd(slo_us, spec.size, spec.delay_us)


def _nanily(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:  # noqa: ARG001  it goes by deadlines
    return Nanily(spec.mode == "shed")


def _nexus(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:
    return Nexus(slo_us, spec.mode == "sliding")


def _window(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:  # noqa: ARG001  it has no knobs
    return WindowDrop(slo_us)


def _clockwork(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:  # noqa: ARG001  it goes by deadlines
    return Clockwork(_guard_us(spec, GUARD_US), spec.mode == "pass_heads")


def _symphony(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:
    return Symphony(slo_us, _guard_us(spec, LATENESS_US), spec.mode)


def _mark(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:  # noqa: ARG001  it tunes its own knobs
    return Mark(slo_us)


def _slab(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:  # noqa: ARG001  it learns its batch
    return Slab(slo_us)


def _shepherd(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:  # noqa: ARG001  deadlines say it all
    return Shepherd()


def _dybatch(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:  # noqa: ARG001  it knows no SLO
    return DyBatch(spec.weight)


POLICIES: Mapping[str, PolicyEntry] = MappingProxyType(
    {
        "slo": PolicyEntry(_slo, ("mode", "admission"), ("latency", "consolidate")),
        "static": PolicyEntry(_static, ("size", "delay_ms")),
        "aimd": PolicyEntry(_aimd, ("size", "delay_ms")),
        "nanily": PolicyEntry(_nanily, ("mode",), ("literal", "shed")),
        "nexus": PolicyEntry(_nexus, ("mode",), ("sliding", "earliest_first")),
        "window_drop": PolicyEntry(_window),
        "clockwork": PolicyEntry(_clockwork, ("mode",), ("pass_heads", "keep_heads")),
        "symphony": PolicyEntry(_symphony, ("mode",), (FRONTRUN, LATEST, BETA_LAMBDA)),
        "mark": PolicyEntry(_mark),
        "slab": PolicyEntry(_slab),
        "shepherd": PolicyEntry(_shepherd),
        "dybatch": PolicyEntry(_dybatch, ("weight",)),
    }
)


def create_policy(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:
    """Return a fresh policy with its own state. KeyError for a name not in POLICIES, ValueError for a mode
    that the policy does not have."""
    entry = POLICIES[spec.policy]
    if not spec.mode and entry.modes:
        spec = replace(spec, mode=entry.modes[0])
    elif spec.mode and spec.mode not in entry.modes:
        known = " or ".join(entry.modes) or "none: it has no modes"
        raise ValueError(f"policy {spec.policy} has no mode {spec.mode!r}; expected {known}")
    return entry.create(spec, slo_us)
