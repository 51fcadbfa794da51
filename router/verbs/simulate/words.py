"""Results in words and figures that need no explanation."""

from collections.abc import Iterator, Sequence
from math import isnan

from router.observing.reasons import downgrade
from router.verbs.report import capacity
from router.verbs.report.numbers import NONE, percent, rate
from router.verbs.simulate.runs import Conditions, Result
from serving.simulation.devices.losses import Loss, LossFigures
from serving.simulation.results.series import IN_TIME, LATE, REFUSED, SHED, RunFigures
from serving.values.disturbance import Disturbance


def rows(value: float) -> str:
    """Return the mean rows of a batch as text."""
    return NONE if isnan(value) else f"{value:.1f}"


def accuracy(value: float) -> str:
    """Return the accuracy in the model's own metric, 0..1, as text."""
    return NONE if isnan(value) else f"{value:.4g}"


def choices(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Yield which variants answered which shares of the rows, for each model if the gateway chooses. Also
    yield why others answered than would have without pressure."""
    for result in results:
        for model in result.chosen:
            found = result.choices[model]
            if not found.shares:
                continue
            who = f"{result.case.name}, {model}" if len(result.figures) > 1 else result.case.name
            told = ", ".join(f"{name} {percent(share)}" for name, share in found.shares.items())
            why = [f"{percent(share)} {downgrade(reason)}" for reason, share in found.downgrades.items()]
            yield who, told + (f"; not by the best: {', '.join(why)}" if why else "")


START = (
    "workers have started and hold what is held without any load: each scaled model its smallest number of "
    "replicas; from then on requests come"
)
"""Where a run begins that has control in it."""


def replicas(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Yield how many replicas each model had, if control decides how many."""
    for result in results:
        for model in result.case.site.served:
            found = result.replicas.get(model.name)
            if found is None:
                continue
            who = f"{result.case.name}, {model.name}" if len(result.figures) > 1 else result.case.name
            number = f"{found.least}" if found.least == found.most else f"{found.least} to {found.most}"
            runs = len(result.total.by_run)
            changes = f"{found.changes / runs:.3g} changes" + (" a run" if runs > 1 else "")
            yield who, f"{number}, {found.mean:.3g} in the mean, {changes}"


def losses(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Yield each lost slice, and what became of its loss over the runs."""
    for result in results:
        for loss in sorted({each.loss for each in result.losses}, key=lambda each: (each.at_s, each.slice)):
            found = [each for each in result.losses if each.loss == loss]
            what = f"node {loss.slice}" if loss.node else loss.slice
            who = f"{result.case.name}, {what}" if len(results) > 1 else what
            yield who, _became(loss, found)


def _became(loss: Loss, found: Sequence[LossFigures]) -> str:
    """Return it in words; `found`: of each run."""
    others = [name for name in found[0].slices if name != loss.slice]
    told = f"gone at {loss.gone_s:g} s" + (f" with {', '.join(others)}" if others else "")
    if not loss.told:
        told += f", {_after('found', [each.found_s for each in found], loss.at_s)}"
    elif loss.notice_s is not None:
        told = f"notice at {loss.at_s:g} s, {told}"
    if loss.back_s is not None:
        told += f", back at {loss.back_s:g} s"
    models = list(dict.fromkeys(name for each in found for name in each.models))
    if not models:
        return f"{told}; no model was there"
    hit = [each for each in found if each.models]
    told += f"; {', '.join(models)} {_after('replaced', [each.replaced_s for each in hit], loss.at_s)}"
    offered = sum(each.offered for each in hit)
    if not offered:
        return f"{told}; nothing was asked meanwhile"
    good, seconds = sum(each.in_time for each in hit), sum(each.seconds for each in hit)
    share = f"{percent(good / offered)} of {offered:,} requests"
    return f"{told}; meanwhile {share} answered in time, {rate(good / seconds)}/s"


def _after(what: str, instants: Sequence[float | None], start_s: float) -> str:
    """Return after how long it was so, over the runs."""
    waits_s = sorted(each - start_s for each in instants if each is not None)
    if not waits_s:
        return f"not {what}"
    low, high = (f"{each:.1f}" for each in (waits_s[0], waits_s[-1]))
    told = f"{what} after {low if low == high else f'{low} to {high}'} s"
    missing = len(instants) - len(waits_s)
    return told + (f" (not in {missing} of {len(instants)} runs)" if missing else "")


def profiled(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Yield the profiled capacity of a slice for each model; slices that carry the same are not told
    apart."""
    cases = list({each.case.config: each.case for each in results}.values())
    for case in cases:
        for model in case.site.served:
            name = f"{case.config.stem}, {model.name}" if len(cases) > 1 else model.name
            slices: dict[str, list[str]] = {}
            for place, found in case.profiled(model).items():
                slices.setdefault(capacity.capacity(found.rate, found.rows), []).append(place)
            for told, places in slices.items():
                where = "a slice" if len(slices) == 1 else ", ".join(places)
                yield name, f"{told} on {where}"


def guessed(result: Result) -> str:
    """Return the sentence on capacities that were not known; "" where all were."""
    if not result.guessed:
        return ""
    return (
        f"what replicas of {', '.join(result.guessed)} carry was guessed from profiles, as in a gateway's "
        "first minute: it simulates that, and keeps it beside its profiles (capacities.json)"
    )


def device(conditions: Conditions) -> str:
    """Return how batches and slices fare in the runs."""
    physics, hazards = conditions.physics, conditions.hazards
    departs = []
    if physics.noise:
        departs.append(f"with noise of {_share(physics.noise)}")
    if physics.drift:
        departs.append(f"up and down by {_share(physics.drift)} over {physics.drift_period_s:g} s")
    if physics.interference:
        departs.append(f"{_share(physics.interference)} longer for each other slice that computes")
    if physics.outlier_share:
        departs.append(
            f"{physics.outlier_factor:g} times as long for {_share(physics.outlier_share)} of them"
        )
    told = ["batches take what was measured of them" + "".join(f", {each}" for each in departs)]
    told.append(f"{physics.overhead_us} us from the scheduler to the worker and back")
    if hazards.crash_mtbf_s:
        told.append(
            f"each worker dies every {hazards.crash_mtbf_s:g} s on average, and loads its models anew"
        )
    if hazards.stall_mtbf_s:
        stall_s = hazards.stall_us / 1e6
        told.append(f"each worker stalls for {stall_s:g} s every {hazards.stall_mtbf_s:g} s on average")
    told += [_disturbed(each) for each in conditions.disturbances]
    told += [_lost(each) for each in conditions.losses]
    return "; ".join(told)


def _disturbed(each: Disturbance) -> str:
    when = f"from {each.at_s:g} to {each.at_s + each.for_s:g} s"
    low, high = each.stop_ms
    if not high:
        return f"{when} batches take {1 / (1 - each.taken):.3g} times as long"
    stops = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{when} each slice stands still {_share(each.taken)} of the time, for {stops} ms at a time"


def _lost(each: Loss) -> str:
    if each.notice_s is not None:
        return f"{each.slice} is taken away at {each.gone_s:g} s, {each.notice_s:g} s after a notice"
    span = "" if each.for_s is None else f" for {each.for_s:g} s"
    if each.node:
        return f"node {each.slice} is lost at {each.at_s:g} s{span}"
    return f"the device of {each.slice} fails at {each.at_s:g} s{span}"


def _share(share: float) -> str:
    return f"{share * 100:.3g} %"


def breakdowns(results: Sequence[Result], conditions: Conditions) -> list[str]:
    """Return how often workers broke down, in a sentence for all results that are alike; none where none
    could."""
    if not (conditions.hazards.crash_mtbf_s or conditions.hazards.stall_mtbf_s):
        return []
    runs = "1 run" if len(conditions.seeds) == 1 else f"{len(conditions.seeds)} runs"
    counts = {each.case.name: (each.crashes, each.stalls) for each in results}
    told = []
    for deaths, stalls in dict.fromkeys(counts.values()):
        names = [name for name, pair in counts.items() if pair == (deaths, stalls)]
        whose = f"{', '.join(names)}: within" if len(names) < len(results) else "Within"
        each = " each" if len(names) > 1 else ""
        told.append(f"{whose} {runs}{each}, workers died {_times(deaths)} and stalled {_times(stalls)}.")
    return told


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def bad_endings(figures: RunFigures) -> list[tuple[str, int]]:
    """Return how requests ended that were not answered in time, the most frequent first."""
    found = [(name, count) for name, count in figures.endings.items() if name != IN_TIME]
    return sorted(found, key=lambda each: -each[1])


def sentence(results: Sequence[Result]) -> str:
    """Return what to see: `slo answers 99.2 % of the requests in time, static 44 %: of static's, ...`. Where
    a model fares worse than all together, it is named."""
    best, *others = sorted(results, key=lambda each: -each.least[1].attainment)
    text = f"{best.case.name} answers {percent(best.total.attainment)} of the requests in time{_least(best)}"
    for each in others:
        text += f", {each.case.name} {percent(each.total.attainment)}{_least(each)}"
    worst = others[-1] if others else best
    model, figures = worst.least
    reason = what_became(figures)
    if not reason:
        return f"{text}."
    whose = f"{worst.case.name}'s" if others else "the"
    requests = f"{model} requests" if len(worst.figures) > 1 else "requests"
    return f"{text}: of {whose} {requests}, {reason}."


def _least(result: Result) -> str:
    model, figures = result.least
    here, all_together = percent(figures.attainment), percent(result.total.attainment)
    return f" ({model}: {here})" if len(result.figures) > 1 and here != all_together else ""


def what_became(figures: RunFigures) -> str:
    """Return what became of those not answered in time, in shares of all requests; "" where there are
    none."""
    kinds = (
        (figures.share(LATE), "were answered too late"),
        (figures.share(*REFUSED), "were refused at once"),
        (figures.share(*SHED), "were given up while they waited"),
    )
    told = sorted((each for each in kinds if each[0] > 0), reverse=True)
    return ", ".join(f"{percent(share)} {what}" for share, what in told)


def capacity_sentence(result: Result, aim: float) -> str:
    """Return the highest rate at which each model attains the aim, and how sure that is; "" if none was
    sought."""
    found = result.capacity
    if found is None:
        return ""
    sure = f"surely less than {rate(found.high)}"
    if found.low > 0:
        sure = f"surely more than {rate(found.low)}, {sure}"
    times = found.rate / result.total.offered_rate
    each = "of each model " if len(result.figures) > 1 else ""
    return (
        f"{result.case.name} can be asked up to {rate(found.rate)} requests/s ({times:.2g} times these) with "
        f"{aim * 100:.4g} % {each}answered in time ({sure})."
    )
