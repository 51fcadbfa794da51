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


class StepPrediction(TypedDict):
    """What is predicted of one share (0..1) of the candidate; 0: as it is without it.

    `slices`: how many slices the load of the candidate fills, `freed`: how many fewer the present model's
    load fills than without it; None where no slice of it keeps the promise. `broken`: the share (0..1) of all
    requests for the model that would not be in time; `candidate_broken` and `present_broken`: of the requests
    that each answers, None where it has none. `others`: the same of models that share slices with them.
    """

    share: float
    slices: float | None
    freed: float | None
    broken: float
    candidate_broken: float | None
    present_broken: float | None
    others: dict[str, float]


class RolloutPrediction(TypedDict):
    """The body of `GET /v2/rollouts/{model}/prediction`. `rate`: requests a second for the model; `slices`:
    those that the candidate has. `said`: all of it in sentences."""

    model: str
    candidate: str
    rate: float
    slices: int
    steps: list[StepPrediction]
    said: list[str]


def no_candidate(model: str) -> str:
    """Return that nothing is to take the model's place."""
    return f"{model} has no candidate, a model with `rollout: {{of: {model}}}` or a higher version of it"


def rollout_sentence(now: RolloutStatus) -> str:
    """Return where a rollout is, and why."""
    gets = f"{now['candidate']} gets {now['share'] * 100:g} % of the requests for {now['model']}"
    return f"{gets} ({now['state']}): {now['why']}"
