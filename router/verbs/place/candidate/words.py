"""A prediction of a guarded rollout, in sentences."""

from collections.abc import Iterator
from typing import Final

from router.observing.rollout_status import RolloutPrediction, StepPrediction

WORTH_SAYING: Final = 0.001
"""Of the candidate, or of a neighbour, it is said where so many more break: a run cannot tell less apart."""
LEAST: Final = 0.01
"""Of a slice that is worth a figure."""


def sentences(found: RolloutPrediction, rows: float) -> Iterator[str]:
    """Yield a sentence on the load (`rows` a request), and one on each step."""
    model, candidate = found["model"], found["candidate"]
    now, *steps = found["steps"]
    load = f"{found['rate']:.3g} requests a second for {model}, {rows:.3g} row{'' if rows == 1 else 's'} each"
    yield f"{load}: {_percent(now['broken'])} of the promises would break without {candidate}"
    for step in steps:
        told = [_slices(step, model, candidate), _breaks(step, candidate), *_neighbours(now, step)]
        yield f"at {step['share'] * 100:g} %: {'; '.join(told)}"
        if step["slices"] is not None and step["slices"] > found["slices"]:
            has = _count(found["slices"])
            yield f"at {step['share'] * 100:g} %: {candidate} has {has}, which is too few"


def _slices(step: StepPrediction, model: str, candidate: str) -> str:
    if step["slices"] is None:
        return f"no number of slices carries {candidate} within its SLO"
    needs = f"{candidate} needs {_count(step['slices'])}"
    if step["freed"] is None:
        return needs
    return f"{needs}, {model} {_number(step['freed'])} fewer"


def _breaks(step: StepPrediction, candidate: str) -> str:
    broken = f"{_percent(step['broken'])} of the promises would break"
    own = step["candidate_broken"]
    if own is None or own - step["broken"] < WORTH_SAYING:
        return broken
    return f"{broken}, {_percent(own)} of {candidate}'s"


def _neighbours(now: StepPrediction, step: StepPrediction) -> Iterator[str]:
    for name, broken in step["others"].items():
        if broken - now["others"][name] >= WORTH_SAYING:
            yield f"{_percent(broken)} of {name}'s, before {_percent(now['others'][name])}"


def _count(slices: float) -> str:
    return f"{_number(slices)} slice{'' if slices == 1 else 's'}"


def _number(slices: float) -> str:
    return f"{slices:.2g}" if slices >= LEAST or slices == 0 else f"under {LEAST:g}"


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %"
