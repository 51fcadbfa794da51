"""Batching policies by the name that `penstock.yaml` uses (`batching: {policy: ...}`)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from serving.policy.batching.aimd import Aimd
from serving.policy.batching.seam import BatchingPolicy
from serving.policy.batching.slo import Slo
from serving.policy.batching.static import Static
from serving.specs import BatchingSpec

POLICIES: Mapping[str, Callable[[BatchingSpec, int], BatchingPolicy]] = MappingProxyType(
    {
        "static": lambda spec, _slo_us: Static(spec.size, spec.delay_us),
        "slo": lambda spec, slo_us: Slo(slo_us, spec.guard_us, spec.mode == "consolidate", spec.admission),
        "aimd": lambda spec, slo_us: Aimd(slo_us, spec.size, spec.delay_us),
    }
)


def create_policy(spec: BatchingSpec, slo_us: int) -> BatchingPolicy:
    """A fresh policy with its own state; KeyError for a name not in POLICIES."""
    return POLICIES[spec.policy](spec, slo_us)
