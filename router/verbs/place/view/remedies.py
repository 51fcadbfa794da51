"""What does not hold of a placement, by how much, and what would help."""

from collections.abc import Iterator, Sequence
from math import ceil

from router.verbs.place.view.figures import ModelFigures
from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.words import counted
from router.verbs.report import numbers
from serving.policy.placement.terms.problem import Instances, Pool
from serving.values.slice_specs import Share


def failures(shown: PlaceReport) -> Iterator[str]:
    """Yield how much each model is short, or is predicted to miss its SLO, and what would help."""
    for each in shown.models:
        if each.short:
            yield _short(shown, each)
        elif each.attainment < shown.attainment:
            yield _misses(each, shown.attainment)
        if 0 < each.domains < each.demand.domains_min and each.demand.rate > 0:
            yield (
                f"{each.model}: its replicas lie in {counted(each.domains, 'failure domain')}, not in "
                f"{each.demand.domains_min}; devices of another domain would help"
            )


def _short(shown: PlaceReport, each: ModelFigures) -> str:
    kept = "" if not shown.reserve else f" (reserve included: {numbers.rate(each.asked)} are asked)"
    missed = each.attainment < shown.attainment
    late = f"; {numbers.percent(each.attainment)} are predicted to be in time" if missed else ""
    fits = numbers.rate(each.capacity / (1 + shown.reserve))
    helpful = (
        _more_devices(shown, each),
        f"a rate of at most {fits} rows/s" if each.capacity else "a smaller rate of other models",
        f"an slo_ms above {each.slo_ms:,g}",
    )
    return (
        f"{each.model}: {numbers.rate(each.capacity)} of {numbers.rate(each.demand.rate)} rows/s are "
        f"carried{kept}, {numbers.rate(each.short)} are missing{late}. What would help: {_or(helpful)}"
    )


def _more_devices(shown: PlaceReport, each: ModelFigures) -> str:
    """Return how many more devices would carry what is missing, by what one with nothing else carries."""
    found = [
        (ceil(each.short / most), pool.price, pool.name)
        for pool in shown.problem.pools
        if (most := _most(pool, each)) > 0
    ]
    if not found:
        return ""
    count, _, name = min(found, key=lambda one: (one[0] * one[1], one))
    return f"about {counted(count, 'more device')} like those of {name}"


def _most(pool: Pool, each: ModelFigures) -> float:
    """Return the rows a second that a device of the pool carries of the model alone."""
    return max(
        (_copies(pool, offer.option.share, offer.option.memory_bytes) * offer.throughput
         for offer in each.demand.offers if pool.fits(offer.option)),
        default=0.0,
    )  # fmt: skip


def _copies(pool: Pool, of: Share, memory_bytes: int) -> int:
    if isinstance(pool.division, Instances):
        profile = pool.division.profile(of)
        return profile.instances_max if profile else 0
    count = int(pool.division.total / of.amount + 1e-9)
    if pool.division.slices_max:
        count = min(count, pool.division.slices_max)
    return min(count, pool.memory_bytes // memory_bytes) if pool.memory_bytes and memory_bytes else count


def _misses(each: ModelFigures, aim: float) -> str:
    return (
        f"{each.model}: {numbers.percent(each.attainment)} are predicted to be answered within "
        f"{each.slo_ms:,g} ms, not {aim * 100:.4g} % (p99 {numbers.milliseconds(each.p99_ms)} ms). What "
        "would help: more devices, a larger slo_ms or a smaller rate"
    )


def _or(options: Sequence[str]) -> str:
    """Return those that are not empty."""
    *first, last = filter(None, options)
    return f"{', '.join(first)} or {last}" if first else last
