"""What a plan changes, in words: replicas that start and end, and the steps from here to there."""

from collections.abc import Iterator, Sequence

from router.verbs.place.view.figures import used
from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.steps import CREATE, DESTROY, DRAIN, LOAD, RESIZE, ROUTE, STOP, UNLOAD, ShownStep
from router.verbs.place.view.words import brief, counted, money, spans
from serving.policy.placement.terms.plan import cost

_DOES = {
    CREATE: "make {share}",
    LOAD: "load {model}",
    ROUTE: "send requests to {model}",
    RESIZE: "change the batches of {model}",
    STOP: "send no more to {model}",
    DRAIN: "wait for {model} to end",
    UNLOAD: "unload {model}",
    DESTROY: "remove {share}",
}


def changed(shown: PlaceReport) -> Iterator[str]:
    """Yield sentences on what changes, and why or why not."""
    moves, plan = shown.moves, shown.plan.placement
    if shown.refused:
        yield "Nothing is changed, as the plan breaks a promise."
    elif shown.before and not moves.started and not moves.ended:
        yield f"Nothing moves: {_replicas(len(moves.kept), 'stay')} in place, as the plan has them."
    elif shown.kept:
        price = f" for {money(cost(shown.problem, plan))} an hour" if shown.priced else ""
        found = f"A plan on {counted(used(plan), 'device')}{price}"
        yield f"{found} was found and is not taken: {shown.reason}."
    else:
        yield f"The plan is taken: {shown.reason}."
        started, ended = _replicas(len(moves.started), "start"), _verb(len(moves.ended), "end")
        devices = f"{counted(used(shown.before), 'device')} before, {used(plan):,} after"
        yield f"{started}, {ended}, {_verb(len(moves.kept), 'stay')}; {devices}."


def _replicas(count: int, verb: str) -> str:
    """Return the count of replicas, then the verb, for example `1 replica starts`."""
    return f"{counted(count, 'replica')} {verb}{'s' if count == 1 else ''}"


def _verb(count: int, verb: str) -> str:
    """Return the count with the verb, for example `2 end`."""
    return f"{count:,} {verb}{'s' if count == 1 else ''}"


def stages(shown: PlaceReport, most: int) -> tuple[list[str], str]:
    """Return the transition, a line for what is done at once, at most `most` of them; and what was left
    out."""
    left = len(shown.steps) - most
    return [_stage(each) for each in shown.steps[:most]], f"and {left:,} more" if left > 0 else ""


def _stage(stage: Sequence[ShownStep]) -> str:
    """Return equal steps together, with their devices: `load minilm (gpu-1, gpu-2); make 3g.71gb (gpu-3)`."""
    where: dict[str, list[str]] = {}
    for step in stage:
        said = _DOES[step.action].format(share=brief(step.share), model=step.model)
        where.setdefault(said, []).append(step.device)
    return "; ".join(_told(said, devices) for said, devices in where.items())


def _told(said: str, devices: Sequence[str]) -> str:
    """Return the step with its devices, for example `load minilm 7 times (gpu-1, gpu-2)`, if there are more
    steps than devices."""
    different = list(dict.fromkeys(devices))
    often = f" {len(devices):,} times" if len(devices) > len(different) else ""
    return f"{said}{often} ({spans(different)})"
