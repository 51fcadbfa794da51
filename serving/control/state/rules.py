"""The rules for what the controller may do beyond reaching the desired state."""

from collections.abc import Callable
from dataclasses import dataclass, field

from serving.policy.scaling.catalogue import create_policy
from serving.policy.scaling.interface import ReplicaPolicy
from serving.values.objectives import ScalingSpec


@dataclass(frozen=True, slots=True)
class Rules:
    """Optional actions of the controller.

    `remeasure`: whether it may measure a stale profile again. `scaling`: how models with `replicas` follow
    their load; `create` makes the policy of one model. `refine`: whether idle slices may measure at all.
    """

    remeasure: bool = True
    scaling: ScalingSpec = field(default_factory=ScalingSpec)
    create: Callable[[ScalingSpec], ReplicaPolicy] = create_policy
    refine: bool = True


DEFAULT_RULES = Rules()
