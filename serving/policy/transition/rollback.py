"""The way back, from any step of a transition. Pure.

Each step's inverse, in reverse order, leads through the very states that led there, so all that held on the
way holds on the way back. What is drained needs no inverse, but what was routed has to be drained.
"""

from bisect import bisect_right
from collections.abc import Collection
from itertools import accumulate

from serving.policy.transition.steps import (
    Create,
    Destroy,
    Drain,
    Group,
    LoadStep,
    RouteStep,
    Sizing,
    Step,
    Transition,
    UnloadStep,
)


def rollback(transition: Transition, failed_at: int, done: Collection[int] | None = None) -> Transition:
    """The groups of steps that lead back to the old placement after a step has failed, whatever it was.

    `failed_at`: its place in `transition.steps`; it has left nothing. `done`: the places of the steps of its
    group that were carried out, None for those before it. IndexError where there is no such step.
    """
    ends = [*accumulate(map(len, transition.groups))]
    place = bisect_right(ends, failed_at)
    if failed_at < 0 or place == len(ends):
        raise IndexError(f"there is no step {failed_at}")
    failed, first = transition.groups[place], ends[place] - len(transition.groups[place])
    carried_out = range(first, failed_at) if done is None else done
    partly = tuple(step for number, step in enumerate(failed, first) if number in carried_out)
    back = [part for each in (partly, *reversed(transition.groups[:place])) for part in _undone(each)]
    return Transition(tuple(group for group in back if group))


def _undone(group: Group) -> list[Group]:
    """The groups that make nothing of it."""
    routes = [step for step in group if isinstance(step, RouteStep)]
    first = tuple(inverse for step in reversed(group) if (inverse := _inverse(step)) is not None)
    return [first, tuple(Drain(address) for step in routes for address in step.up)]


def _inverse(step: Step) -> Step | None:
    if isinstance(step, Create):
        return Destroy(step.device, step.slice, step.share, step.start)
    if isinstance(step, Destroy):
        return Create(step.device, step.slice, step.share, step.start)
    if isinstance(step, LoadStep):
        return UnloadStep(step.address, step.resident)
    if isinstance(step, UnloadStep):
        return LoadStep(step.address, step.resident)
    if isinstance(step, RouteStep):
        sized = tuple(Sizing(each.address, each.after, each.before) for each in step.sized)
        return RouteStep(step.down, step.up, sized)
    return None
