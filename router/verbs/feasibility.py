"""What measured latencies say of what is promised: whether the variants that may answer are quick enough, on
which slices, and cheap enough."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from router.settings.model_file.folders import MODEL_FILE
from router.settings.served.floors import accuracy_text, answering, objectives
from router.settings.served.promises import CHOOSING, FLOORS, stated_at
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc
from serving.profile.derived.latency import Latency
from serving.values.objectives import Objective
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel

Measured = Callable[[ServedModel, SliceSpec, str], Latency | None]
"""What was measured of a variant on a slice, or None."""

_HOUR_S = 3600


class Measurements:
    """What one row (of the largest size) of a model takes on its slices, beside what is promised of it.

    `latency_us`: of each variant on each slice, None where it was not measured.
    """

    def __init__(self, model: ServedModel, slices: Sequence[SliceSpec], measured: Measured) -> None:
        self.model = model
        self.slices = slices
        self._known = {
            variant.name: {each.name: measured(model, each, variant.name) for each in slices}
            for variant in model.spec.variants
        }
        size = model.spec.sizes[-1]
        self.latency_us = {
            variant: {name: latency.predict_us(1, size) if latency else None for name, latency in on.items()}
            for variant, on in self._known.items()
        }

    def of(self, variant: str, slice_name: str) -> Latency | None:
        """Return the measured latency of a variant on a slice."""
        return self._known[variant][slice_name]

    def late_everywhere(self, variant: str, slo_us: int) -> bool:
        """Return whether it was measured on every slice and is too slow on each."""
        return all(us is not None and us > slo_us for us in self.latency_us[variant].values())

    def late_on(self, variant: str, slo_us: int) -> list[str]:
        """Return the slices on which it is too slow."""
        return [name for name, us in self.latency_us[variant].items() if us is not None and us > slo_us]

    def slowest(self, variant: str) -> tuple[float, str]:
        """Return (the longest that a row takes, the slice); (0.0, "") if nothing is known."""
        return max(self._all_us(variant), default=(0.0, ""))

    def quickest(self, variant: str) -> tuple[float, str]:
        """Return (the least that a row takes, the slice); (inf, "") if nothing is known."""
        return min(self._all_us(variant), default=(inf, ""))

    def _all_us(self, variant: str) -> list[tuple[float, str]]:
        return [(us, name) for name, us in self.latency_us[variant].items() if us is not None]

    def cheapest(self, variant: str, slo_us: int) -> tuple[float, str] | None:
        """Return (the least that a million rows may cost, the slice). Rows have the smallest size, in the
        best batch that is within the SLO. None if a slice has no price, or nothing was measured on it."""
        size = self.model.spec.sizes[0]
        costs = []
        for each in self.slices:
            latency = self._known[variant][each.name]
            if latency is None or not each.price:
                return None
            most = min(latency.rows_within(slo_us, size), self.model.spec.batch_max)
            row_us = min(latency.predict_us(rows, size) / rows for rows in range(1, most + 1))
            costs.append((row_us * each.price / _HOUR_S, each.name))
        return min(costs)

    def unmeasured_sentence(self) -> str:
        """Return which served variants have no profile on which slices; "" where all have one."""
        model = self.model
        missing = [
            f"{variant} on {each.name}"
            for variant in model.variants
            for each in self.slices
            if self.latency_us[variant][each.name] is None
        ]
        if not missing:
            return ""
        what = ", ".join(missing) if len(missing) < len(model.variants) * len(self.slices) else "all variants"
        return f"{model.name}: not yet measured ({what}): will be swept at the first start"

    def rows_in_time(self, objective: Objective) -> tuple[int, int]:
        """Return two counts of rows of the largest size; (0, 0) if they are not known for every slice.

        The first: the rows of the largest request that all slices, otherwise idle, could answer together
        within the SLO. The second: the rows that any slice computes in half the SLO, so that they may wait
        for a batch before them.
        """
        size, most = self.model.spec.sizes[-1], self.model.spec.batch_max
        alone, behind = 0, most
        for each in self.slices:
            known = [self._known[name][each.name] for name in objective.variants]
            measured = [latency for latency in known if latency is not None]
            if not measured or len(measured) < len(known):
                return 0, 0
            alone += max(_rows_alone(latency, objective.slo_us, size, most) for latency in measured)
            behind = min(behind, max(_piece(latency, objective.slo_us, size, most) for latency in measured))
        return alone, behind

    @property
    def largest(self) -> str:
        """The largest size of rows, in words; "" where rows have no sizes."""
        hint = self.model.spec.size_hint
        unit = "tokens" if hint is not None and hint.unit == "text" else "bytes"
        return "" if hint is None else f" of {hint.buckets[-1]:,} {unit}"


def _rows_alone(latency: Latency, slo_us: int, size: int, batch_max: int) -> int:
    """Return the rows that a slice computes within the SLO: in one batch or in piece-sized batches of a
    request, whichever is more."""
    piece = _piece(latency, slo_us, size, batch_max)
    count, left_us = divmod(slo_us, latency.predict_us(piece, size))
    in_pieces = int(count) * piece + min(latency.rows_in(left_us, size), piece)
    return max(min(latency.rows_in(slo_us, size), batch_max), in_pieces)


def _piece(latency: Latency, slo_us: int, size: int, batch_max: int) -> int:
    """Return the rows of a request that travel together, as the scheduler cuts it."""
    return min(latency.rows_within(slo_us // 2, size), batch_max)


def check_promises(findings: Findings, index: int, measured: Measurements) -> Iterator[str]:
    """Hold what is promised of `models[index]` against what was measured; notes, a sentence each."""
    model = measured.model
    floored = stated_at(findings, index, "", FLOORS) is not None
    for objective in objectives(model):
        each = replace(objective, variants=answering(model, objective))
        chosen = stated_at(findings, index, each.tier, CHOOSING)
        slo = stated_at(findings, index, each.tier, ("slo_ms", "slo_rows"))
        if each.tier and not chosen and not slo:
            continue  # it is promised what the model is
        loc = slo or chosen if each.tier else None
        _check_slo(findings, loc or ("models", index, "slo_ms"), measured, each)
        cost = stated_at(findings, index, each.tier, ("cost_max",))
        if cost is not None and each.cost_max < inf:
            _check_cost(findings, cost, measured, each)
        if model.selection is None:
            yield from _check_rows(findings, index, measured, each)
        unfloored = not floored and stated_at(findings, index, each.tier, FLOORS) is None
        if chosen and unfloored and len(each.variants) > 1 and model.selection is None:
            yield _unfloored_sentence(model, each)


def _check_slo(findings: Findings, loc: Loc, measured: Measurements, objective: Objective) -> None:
    slo_us, allowed = objective.slo_us, objective.variants
    if all(measured.late_everywhere(name, slo_us) for name in allowed):
        sentence = _none_in_time(measured, objective) if len(allowed) > 1 else _late(measured, objective)
        findings.add(loc, tier_text(objective) + sentence)
        return
    late = {name: measured.late_on(name, slo_us) for name in allowed}
    sentences = []
    if len(allowed) > 1:
        sentences = [*_late_slices(measured, objective, late)]
    elif late[allowed[0]]:
        sentences = [_late(measured, objective)]
    if not objective.tier:
        sentences += [
            f"{_below(measured, name, slo_us)}; a request that pins this variant will be late"
            for name in measured.model.variants
            if name not in allowed and measured.late_on(name, slo_us)
        ]
    for sentence in sentences:
        findings.warn(loc, tier_text(objective) + sentence)


def _check_rows(
    findings: Findings, index: int, measured: Measurements, objective: Objective
) -> Iterator[str]:
    """Yield a note on how many rows make a request late however idle the slices are. Warn if `slo_rows`
    allows more; yield the note if it is not stated and one batch holds more."""
    model = measured.model
    possible, stated = measured.rows_in_time(objective)
    if not possible:
        return
    which, slo = measured.largest, slo_text(objective.slo_us)
    places = ", ".join(each.name for each in measured.slices)
    if objective.slo_rows > possible:
        loc = stated_at(findings, index, objective.tier, ("slo_rows", "slo_ms"))
        loc = loc or ("models", index, "slo_rows")
        here = any(stated_at(findings, index, tier, ("slo_rows",)) for tier in (objective.tier, ""))
        what = f"{model.name} answers at most {possible:,} rows{which} of a request within {slo}"
        cure = f"lower slo_rows{'' if here else f' of its {MODEL_FILE}'} to {stated:,}, or raise slo_ms"
        findings.warn(loc, f"{tier_text(objective)}{what}, by what was measured on {places}; {cure}")
    elif not objective.slo_rows and possible < model.spec.batch_max:
        tier = f", tier {objective.tier}" if objective.tier else ""
        what = f"a request of {possible + 1:,} or more rows{which} cannot be answered within {slo}"
        late = f"by what was measured on {places}: it is answered late and counted as late"
        cure = f"`slo_rows: {stated}` would state slo_ms for each {_rows_text(stated)} of a request"
        yield f"{model.name}{tier}: {what}, {late}; {cure}"


def _late_slices(
    measured: Measurements, objective: Objective, late: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield the slices on which no variant can answer in time, and the variants that cannot on other
    slices."""
    model, slo = measured.model, slo_text(objective.slo_us)
    hopeless = [each.name for each in measured.slices if all(each.name in on for on in late.values())]
    for place in hopeless:
        figures = ", ".join(f"{name} {ms_text(measured.latency_us[name][place] or 0.0)}" for name in late)
        what = f"no variant of {model.name} that may answer is within {slo} for one row"
        yield f"{what} on slice {place}: {figures}"
    for name, places in late.items():
        if kept := [place for place in places if place not in hopeless]:
            yield f"{_below(measured, name, objective.slo_us)}; it never answers on {' or '.join(kept)}"


def _below(measured: Measurements, variant: str, slo_us: int) -> str:
    latency_us, place = measured.slowest(variant)
    return (
        f"{slo_text(slo_us)} is below {measured.model.name} {variant}'s measured {ms_text(latency_us)} "
        f"for one row on slice {place}"
    )


def _late(measured: Measurements, objective: Objective) -> str:
    """Return the SLO, the latency and a remedy for the only variant that may answer."""
    (variant,) = objective.variants
    needed_us = measured.slowest(variant)[0]
    remedy = f"raise it above {ms_text(needed_us)}{_faster(measured, objective)}"
    return f"{_below(measured, variant, objective.slo_us)}; {remedy}"


def _none_in_time(measured: Measurements, objective: Objective) -> str:
    quickest = {name: measured.quickest(name) for name in objective.variants}
    figures = ", ".join(f"{name} {ms_text(us)} on {place}" for name, (us, place) in quickest.items())
    floor = f" at least {accuracy_text(objective.accuracy_min)} accurate" if objective.accuracy_min else ""
    what = f"what one row takes with any variant of {measured.model.name}{floor}: {figures}"
    remedy = f"raise it above {ms_text(min(quickest.values())[0])}{_faster(measured, objective)}"
    return f"{slo_text(objective.slo_us)} is below {what}; {remedy}"


def _faster(measured: Measurements, objective: Objective) -> str:
    """Return which variant would be in time on all slices, the most accurate of them."""
    fast = [
        (each.accuracy or 0.0, each.name)
        for each in measured.model.spec.variants
        if 0 < measured.slowest(each.name)[0] <= objective.slo_us
    ]
    if not fast:
        return ""
    accuracy, name = max(fast)
    figure = f"({name}: {ms_text(measured.slowest(name)[0])})"
    if not objective.accuracy_min:
        return f" or answer with a faster variant {figure}"
    return f" or lower the floor to {accuracy_text(accuracy)} {figure}"


def _check_cost(findings: Findings, loc: Loc, measured: Measurements, objective: Objective) -> None:
    """Add an error if a million rows cost more than they may, however they are computed."""
    costs = {name: measured.cheapest(name, objective.slo_us) for name in objective.variants}
    known = {name: found for name, found in costs.items() if found is not None}
    dear = [name for name, (cost, _) in known.items() if cost > objective.cost_max]
    if not dear:
        return
    figures = ", ".join(f"{name} {known[name][0]:.3g} on {known[name][1]}" for name in dear)
    if len(dear) == len(costs):
        what = f"a million rows of {measured.model.name} cost more with each variant that may answer"
        lowest = min(known.values())[0]
        message = f"{what} ({figures}); raise it above {lowest:.3g}, or lower the floor"
        findings.add(loc, tier_text(objective) + message)
    else:
        what = f"a million rows of {measured.model.name} cost more with {figures}"
        findings.warn(loc, f"{tier_text(objective)}{what}: these never answer")


def _unfloored_sentence(model: ServedModel, objective: Objective) -> str:
    last = objective.variants[-1]
    share = model.accuracy(last)
    how = "whose accuracy nobody has measured" if share is None else f"accurate {accuracy_text(share)}"
    tier = f", tier {objective.tier}" if objective.tier else ""
    which = f"answers may be those of {last}, {how}, as no floor is stated"
    return f"{model.name}{tier}: {which}; accuracy_min or tolerance sets one"


def tier_text(objective: Objective) -> str:
    """Return the beginning of a sentence on a tier."""
    return f"tier {objective.tier}: " if objective.tier else ""


def promised_text(objective: Objective) -> str:
    """Return an SLO as it was stated, with the rows that it was stated for."""
    rows = f" for each {_rows_text(objective.slo_rows)}" if objective.slo_rows else ""
    return f"{slo_text(objective.slo_us)}{rows}"


def _rows_text(count: int) -> str:
    return f"{count:,} rows" if count > 1 else "row"


def slo_text(slo_us: int) -> str:
    """Return an SLO as it was stated."""
    return f"{slo_us / 1000:.10g} ms"


def ms_text(latency_us: float) -> str:
    """Return milliseconds to three digits, which is more than a measurement repeats to."""
    return f"{float(f'{latency_us / 1000:.3g}'):.10g} ms"
