"""From one placement to another, step by step, with every promise kept in between."""

from serving.policy.transition.invariants import violations
from serving.policy.transition.planning import transition
from serving.policy.transition.state import State
from serving.policy.transition.steps import Step, Transition, TransitionRefused

__all__ = ["State", "Step", "Transition", "TransitionRefused", "transition", "violations"]
