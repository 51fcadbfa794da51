"""Placements in sentences that need no explanation."""

import re
from collections.abc import Sequence
from math import ceil, isnan

from router.verbs.place.view.figures import Layout, ModelFigures, used
from router.verbs.place.view.shown import PlaceReport
from router.verbs.profiling.words import share
from router.verbs.report import numbers
from serving.values.slice_specs import Share

_NAMED = 3  # devices, of those that are alike
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)
_TOLD = 12  # models in a sentence
_EXACT = 1e-6  # solvers meet a bound only to about so much
_MANY = 10  # times: more is no matter of per cents


def brief(of: Share) -> str:
    """Return the share in short, for example `2 cores`, `50 %`, `3g.71gb`."""
    return {"mps": f"{of.amount:g} %", "mig": of.label, "whole": "whole"}.get(of.kind) or share(of)


def devices(layout: Layout) -> str:
    """Return the layout's devices, for example `gpu-1`, `12 like gpu-1`."""
    first = layout.devices[0]
    return first if layout.count == 1 else f"{layout.count:,} like {first}"


def spans(names: Sequence[str]) -> str:
    """Return the names as spans, for example `gpu-1 to gpu-4, gpu-7`; count the rest if it would be long."""
    told = [_span(run) for run in _runs(names)]
    if len(told) <= _NAMED:
        return ", ".join(told)
    first = _runs(names)[: _NAMED - 1]
    rest = len(names) - sum(map(len, first))
    return f"{', '.join(map(_span, first))} and {rest:,} more"


def _runs(names: Sequence[str]) -> list[list[str]]:
    """Return the names in runs that are numbered one after the other."""
    found: list[list[str]] = []
    for name in names:
        if found and _next(found[-1][-1]) == name:
            found[-1].append(name)
        else:
            found.append([name])
    return found


def _next(name: str) -> str:
    numbered = _NUMBERED.fullmatch(name)
    return f"{numbered[1]}{int(numbered[2]) + 1}" if numbered else ""


def _span(run: Sequence[str]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run)


def counted(count: int, what: str) -> str:
    """Return a count, for example `1 device`, `3 devices`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def listed(names: Sequence[str]) -> str:
    """Return the names as a list, for example `a`, `a and b`, `a, b and c`; many are counted."""
    if len(names) > _TOLD:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def sentence(shown: PlaceReport) -> str:
    """Return what to see: `2 of 4 devices carry 3 models with 20 % in reserve, for 3.20 an hour (no plan can
    cost less than 2.91; gap 9.9 %); all models are predicted to keep their SLO.`"""
    asked = [each for each in shown.models if each.demand.rate > 0]
    if not asked:
        return "Nothing is asked of any model, and no device is needed."
    total = sum(len(pool.devices) for pool in shown.problem.pools)
    stays = "Nothing changes: " if shown.kept else ""
    if shown.refused:
        stays = "The best plan that was found breaks a promise: "
    lacking = [each.model for each in asked if each.short]
    count = used(shown.after)
    verb = "carries" if count == 1 else "carry"
    carried = counted(len(asked), "model") + _reserve(shown)
    said = f"{stays}{count:,} of {counted(total, 'device')} {verb} {carried}"
    if lacking:
        said += f", but for {listed(lacking)}"
    return f"{said}{_cost(shown)}; {_predicted(asked, shown.attainment)}."


def _reserve(shown: PlaceReport) -> str:
    return f" with {shown.reserve * 100:.3g} % in reserve" if shown.reserve > 0 else ""


def _cost(shown: PlaceReport) -> str:
    """Return what it costs and how little it could; "" where neither is known."""
    paid = f", for {money(shown.cost)} an hour" if shown.priced else ""
    if not shown.bound or any(each.short for each in shown.models):
        return paid
    if shown.priced:
        if shown.gap < _EXACT:
            return f"{paid} (no plan can cost less)"
        return f"{paid} (no plan can cost less than {money(shown.bound)}; gap {numbers.percent(shown.gap)})"
    fewest = ceil(shown.bound - _EXACT)
    if used(shown.after) <= fewest:
        return " (no plan can do with fewer)"
    return f" (no plan can do with fewer than {fewest:,})"


def ratio(value: float) -> str:
    """Return a share of something, which may be less than none or many times as much: `-12 %`, `48.1 %`, `37
    x`."""
    if value < 0:
        return f"-{numbers.percent(-value)}"
    return f"{value:,.0f} x" if value >= _MANY else numbers.percent(value)


def money(amount: float) -> str:
    """Return the amount with two digits after the point, as prices have them."""
    return f"{amount:,.2f}"


def _predicted(asked: Sequence[ModelFigures], aim: float) -> str:
    known = [each for each in asked if not isnan(each.attainment)]
    if not known:
        return "nothing is predicted of it"
    missing = [each for each in known if each.attainment < aim]
    if not missing:
        return f"{'all models are' if len(known) > 1 else 'it is'} predicted to keep {_their(len(known))} SLO"
    worst = min(missing, key=lambda each: each.attainment)
    one = f"{worst.model} is predicted to answer {numbers.percent(worst.attainment)} in time"
    others = len(missing) - 1
    miss = "misses its SLO" if others == 1 else "miss theirs"
    too = f", and {counted(others, 'other model')} {miss} too" if others else ""
    return f"{one}, not {aim * 100:.4g} %{too}"


def _their(count: int) -> str:
    return "their" if count > 1 else "its"
