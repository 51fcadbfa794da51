"""Replica policies by name (`scaling: {policy: ...}` in `penstock.yaml`). Nothing else lists them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from serving.policy.scaling.baselines.aiad import Aiad
from serving.policy.scaling.baselines.hpa import Hpa
from serving.policy.scaling.baselines.infaas import Infaas
from serving.policy.scaling.baselines.inferline import InferLine
from serving.policy.scaling.baselines.keda import Keda
from serving.policy.scaling.baselines.mark import MarkReplicas
from serving.policy.scaling.baselines.ray_serve import RayServe
from serving.policy.scaling.fixed import Fixed
from serving.policy.scaling.interface import ReplicaPolicy
from serving.policy.scaling.slo import SloReplicas
from serving.values.objectives import ScalingSpec


def _slo(target: float | None) -> ReplicaPolicy:  # noqa: ARG001  it aims at the SLO, whatever that takes
    return SloReplicas()


def _fixed(target: float | None) -> ReplicaPolicy:  # noqa: ARG001  it knows nothing to aim at
    return Fixed()


POLICIES: Mapping[str, Callable[[float | None], ReplicaPolicy]] = MappingProxyType(
    {
        "slo": _slo,
        "hpa": Hpa,
        "keda": Keda,
        "ray_serve": RayServe,
        "aiad": Aiad,
        "mark": MarkReplicas,
        "inferline": InferLine,
        "infaas": Infaas,
        "fixed": _fixed,
    }
)
"""A fresh policy from its target, None for the default."""


def create_policy(spec: ScalingSpec) -> ReplicaPolicy:
    """Return a fresh policy with its own state, for one model. KeyError for a name not in POLICIES."""
    return POLICIES[spec.policy](spec.target)
