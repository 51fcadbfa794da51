"""Batching policies by the name that `penstock.yaml` uses (`batching: {policy: ...}`)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from serving.policy.batching.seam import BatchingPolicy
from serving.policy.batching.static import Static
from serving.specs import BatchingSpec

POLICIES: Mapping[str, Callable[[BatchingSpec], BatchingPolicy]] = MappingProxyType(
    {
        "static": lambda spec: Static(spec.size, spec.delay_us),
    }
)


def create_policy(spec: BatchingSpec) -> BatchingPolicy:
    """A fresh policy with its own state; KeyError for a name not in POLICIES."""
    return POLICIES[spec.policy](spec)
