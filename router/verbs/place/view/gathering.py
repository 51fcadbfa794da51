"""From a decision to what is shown of it."""

from collections.abc import Iterator
from dataclasses import replace

from router.verbs.place.question.asked import PlacementTask
from router.verbs.place.view.figures import ModelFigures, models
from router.verbs.place.view.remedies import failures
from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.steps import ShownStep, steps
from router.verbs.report import numbers
from serving.planning.deciding import Decision, DecisionTerms
from serving.planning.predicting import Prediction
from serving.policy.placement.terms.plan import Placement
from serving.policy.transition.steps import Transition, TransitionRefused

_RATES = 12  # models with their rates in the note; the table has all


def gather(asked: PlacementTask, decision: Decision, terms: DecisionTerms, reserve: float) -> PlaceReport:
    """Return all that is shown: of the plan where it is taken or does not hold, else of what stays in
    place."""
    no_way = tuple(_no_way(decision))
    broken = decision.refused or no_way
    kept = not decision.verdict.taken and not broken
    after = asked.current if kept else decision.plan.placement
    prediction = decision.before if kept and decision.before is not None else decision.prediction
    shown = PlaceReport(
        problem=asked.problem,
        before=asked.current,
        after=after,
        plan=decision.plan,
        taken=decision.taken and not no_way,
        reason=decision.verdict.reason,
        models=tuple(_models(asked, after, prediction)),
        attainment=terms.attainment,
        reserve=reserve,
        priced=any(each.price for each in asked.settings.devices),
        moves=decision.moves,
        steps=_steps(asked, decision),
        busy=prediction.busy,
        notes=(*asked.notes, *decision.tightened, *_notes(prediction)),
        premises=tuple(_premises(asked, decision, terms, reserve)),
    )
    if not broken:
        return shown
    return replace(shown, refused=(*(tuple(failures(shown)) or decision.refused), *no_way))


def _no_way(decision: Decision) -> Iterator[str]:
    if isinstance(decision.transition, TransitionRefused) and decision.taken:
        yield f"there is no way from what is in place to the plan: {decision.transition.reason}"


def _steps(asked: PlacementTask, decision: Decision) -> tuple[tuple[ShownStep, ...], ...]:
    if decision.taken and isinstance(decision.transition, Transition):
        return steps(asked.current, decision.transition)
    return ()


def _models(asked: PlacementTask, placement: Placement, prediction: Prediction) -> Iterator[ModelFigures]:
    rates = {name: rate.rows_per_s for name, rate in asked.rates.items()}
    for each in models(asked.problem, placement, rates):
        foretold = prediction.models.get(each.model)
        if foretold is None:
            yield each
        else:
            yield replace(each, attainment=foretold.attainment, p99_ms=foretold.p99_ms)


def _notes(prediction: Prediction) -> Iterator[str]:
    yield from prediction.scaled
    if prediction.left_out:
        yield f"nothing is predicted of {', '.join(prediction.left_out)}"


def _premises(
    asked: PlacementTask, decision: Decision, terms: DecisionTerms, reserve: float
) -> Iterator[tuple[str, str]]:
    """Yield what the decision rests on, as terms and texts."""
    told = [
        f"{name} {numbers.rate(rate.requests)} requests/s" + (_rows(rate.rows.mean) if rate.requests else "")
        for name, rate in asked.rates.items()
    ]
    more = f", and {len(told) - _RATES} more" if len(told) > _RATES else ""
    yield "settings", str(asked.settings.path)
    yield "asked", ", ".join(told[:_RATES]) + more
    yield "reserve", f"{reserve * 100:.3g} % beyond that"
    yield "in time", f"at least {terms.attainment * 100:.5g} % of each model's requests"
    limited = "" if decision.plan.optimal else f", within {terms.limit_s:g} s"
    yield "found by", f"{decision.plan.method}{limited}"
    yield "horizon", f"a saving counts for {terms.horizon_s / 3600:g} h"
    yield "simulated", f"up to {terms.seconds:g} s, with seed {terms.seed}"


def _rows(mean: float) -> str:
    return "" if mean == 1 else f" of {mean:.3g} rows"
