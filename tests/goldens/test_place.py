"""What `penstock place` says of a placement: tables, sentences, steps and remedies."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from math import inf, nan

from rich.console import Console

from router.verbs.place.view import changes, remedies, words
from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.tables import render
from serving.policy.placement.terms.moves import moves
from serving.policy.placement.terms.plan import PlacementPlan
from serving.policy.placement.terms.problem import PlacementProblem
from tests.goldens.conftest import Golden
from tests.router.verbs.place import samples
from tests.router.verbs.place.samples import BEFORE, CHANGED, FIRST, FLEET, KEPT, NOTHING, foretold, lacking


def printed(shown: PlaceReport) -> str:
    """As a terminal of 100 columns has it."""
    text = StringIO()
    Console(width=100, file=text).print(render(shown))
    return text.getvalue()


def bounded(bound: float, priced: bool = False) -> PlaceReport:
    return replace(CHANGED, priced=priced, plan=replace(CHANGED.plan, bound=bound))


def one() -> PlaceReport:
    """A device and a model."""
    problem = PlacementProblem((samples.demand("digits", 10, 25, 240),), samples.pools(1, 0))
    placement = {"gpu-0": (samples.slot(problem, samples.mig("1g.10gb"), "digits", start=0),)}
    plan = PlacementPlan(placement, 1.45, 0.3, "greedy")
    figures = samples.told(problem, placement, (1.0,))
    return replace(FIRST, problem=problem, after=placement, plan=plan, reserve=0.0, models=figures)


def sentences() -> Iterator[str]:
    """The first sentence of many plans."""
    proved = replace(CHANGED.plan, optimal=True)
    plans = (
        replace(CHANGED, plan=proved), bounded(CHANGED.cost, priced=True), replace(KEPT, plan=proved),
        bounded(2.2), bounded(1.0000000001), bounded(2.9999999999), bounded(0.0), bounded(inf),
        foretold(0.5, 0.9712, 0.995, 1.0), foretold(0.5, 0.9712, 0.4, 1.0),
        foretold(0.995, 0.9712, 0.995, 1.0), foretold(nan, nan, nan, nan), lacking(), one(),
    )  # fmt: skip
    return map(words.sentence, plans)


def changed() -> Iterator[str]:
    """What becomes of a plan."""
    yield from changes.changed(FIRST)
    yield from changes.changed(replace(KEPT, priced=False))
    yield from changes.changed(replace(KEPT, moves=moves(BEFORE, BEFORE)))
    yield from changes.changed(replace(CHANGED, taken=False, refused=("digits: too late",)))
    step = CHANGED.steps[1][0]
    several = (step, step, step, replace(step, device="node-0"))
    many = tuple(replace(step, device=f"gpu-{number}") for number in range(300))
    for steps in ((several,), (many,) * 5):
        told, left = changes.stages(replace(CHANGED, steps=steps), 2)
        yield from (*told, left)


def missing() -> Iterator[str]:
    """What does not hold, and what would help."""
    late = tuple(replace(each, attainment=0.876, p99_ms=260.0) for each in lacking().models)
    yield from remedies.failures(lacking())
    yield from remedies.failures(replace(lacking(), models=late))
    yield from remedies.failures(foretold(0.9985, 0.9931, 0.97129, 1.0))
    demands = (replace(FLEET.demands[0], domains_min=3), *FLEET.demands[1:])
    spread = PlacementProblem(demands, FLEET.pools)
    models = samples.told(spread, samples.AFTER, samples.GOOD)
    yield from remedies.failures(replace(CHANGED, problem=spread, models=models))


def test_place(golden: Golden) -> None:
    golden(
        "place",
        {
            "a plan that is taken": printed(CHANGED),
            "a plan that is not taken": printed(KEPT),
            "nothing is asked": printed(NOTHING),
            "first sentences": "\n".join(sentences()),
            "what becomes of plans": "\n".join(changed()),
            "what does not hold": "\n".join(missing()),
        },
    )
