"""What `GET /v2/rollouts` and the status say of guarded rollouts."""

from typing import TypedDict


class MeasureStatus(TypedDict):
    """A measure of the present step: the rates of both models (1 is best), and how far the evidence is, as a
    share (0..1) of what a rollback, and the next step, take."""

    measure: str
    present: float
    candidate: float
    requests: int
    worse: float
    fine: float


class RolloutStatus(TypedDict):
    """A rollout. `state`: "waiting", "shadow", "canary", "promoted", "rolled back" or "aborted". `share`: of
    the requests (0..1) that the candidate gets; `step` of `steps`, from 1, 0 for that of copies. `why`: in a
    sentence."""

    model: str
    candidate: str
    state: str
    share: float
    step: int
    steps: list[float]
    held_s: float
    hold_s: float
    why: str
    measures: list[MeasureStatus]


class RolloutsBody(TypedDict):
    """The body of `GET /v2/rollouts`."""

    rollouts: list[RolloutStatus]


def rollout_sentence(now: RolloutStatus) -> str:
    """Return where a rollout is, and why."""
    gets = f"{now['candidate']} gets {now['share'] * 100:g} % of the requests for {now['model']}"
    return f"{gets} ({now['state']}): {now['why']}"
