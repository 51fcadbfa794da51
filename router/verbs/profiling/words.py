"""Profiles in sentences that need no explanation."""

from collections.abc import Sequence

from router.verbs.profiling.figures import ShareFigures, ShareScaling
from router.verbs.report import capacity, numbers
from serving.values.slice_specs import Share

_UNITS = {"cores": ("core", "cores"), "sm": ("SM chunk", "SM chunks")}
AXIS = {
    "cores": "CPU cores",
    "mps": "% of the GPU's multiprocessors (MPS)",
    "sm": "chunks of multiprocessors (static MPS partition)",
    "mig": "compute slices (MIG)",
    "whole": "devices",
    "time": "devices, in turns",
}

_SOME = 1.05  # times as much: less is not told from the same


def share(of: Share) -> str:
    """Return the share, for example `2 cores`, `50 % of the GPU`."""
    if of.kind in _UNITS:
        return f"{of.amount:g} {_UNITS[of.kind][of.amount != 1]}"
    if of.kind == "mps":
        return f"{of.amount:g} % of the GPU"
    if of.kind == "mig":
        return f"MIG {of.label}"
    return "the whole GPU" if of.kind == "whole" else "the GPU in turns"


def _plural(of: Share) -> bool:
    return of.kind in _UNITS and of.amount != 1


def within(slo_us: int) -> str:
    """Return the limit, for example `within 25 ms`."""
    return f"within {slo_us / 1000:,g} ms"


def batches(measured: ShareFigures) -> str:
    """Return the batches, for example `in batches of 24`; "" if none is within the latency."""
    if measured.within is None:
        return ""
    rows, largest = measured.within.rows, measured.points[-1].rows
    beyond = ", the largest measured" if rows == largest > 1 else ""
    return "row by row" if rows == 1 else f"in batches of {rows:,}{beyond}"


def predicted(measured: ShareFigures) -> str:
    """Return the error of a prediction, for example `predicted, ±12 %`; "" for what was measured."""
    if imported := measured.profile.origin.imported:
        return f"imported from {imported}"
    error = measured.profile.origin.error
    return f"predicted, ±{error * 100:.2g} %" if error else ""


def name(scaling: ShareScaling) -> str:
    """Return the variant, and what sets it apart from itself measured otherwise."""
    processes = scaling.shares[0].share.processes
    return f"{scaling.variant} (one of {processes} processes)" if processes > 1 else scaling.variant


def sentence(scaling: ShareScaling, slo_us: int) -> str:
    """Return what a larger share buys and how large a batch may be: `cnn: 2 cores carry 1.8 times what 1 core
    does; the knee is at 1 core: profiled capacity 4,100 rows/s within 25 ms in batches of 24.`"""
    first, last = scaling.shares[0], scaling.shares[-1]
    if last.within is None:
        took_ms, rows = numbers.milliseconds(last.smallest.p50_us / 1000), last.smallest.rows
        count = "1 row takes" if rows == 1 else f"{rows:,} rows take"
        said = f"{count} {took_ms} ms on {share(last.share)}, and {slo_us / 1000:,g} ms must hold two batches"
    elif len(scaling.shares) == 1:
        said = f"{_carried(last, slo_us)}; there is none to compare it with, so no knee"
    else:
        said = _bought(first, last, slo_us) + _knee(scaling, slo_us)
    return f"{name(scaling)}: {said}."


def _bought(first: ShareFigures, last: ShareFigures, slo_us: int) -> str:
    if first.within is None or last.within is None:
        return f"on {share(first.share)} {slo_us / 1000:,g} ms do not hold two batches"
    times = last.within.throughput / first.within.throughput
    if times < _SOME:
        return f"{share(last.share)} {_carry(last.share)} no more than {share(first.share)}"
    does = "do" if _plural(first.share) else "does"
    return f"{share(last.share)} {_carry(last.share)} {times:.2g} times what {share(first.share)} {does}"


def _knee(scaling: ShareScaling, slo_us: int) -> str:
    at_knee = scaling.at_knee
    if at_knee is None or at_knee.within is None:
        return ""
    rate = f"{capacity.TERM} {_rate(at_knee.within.throughput)} {within(slo_us)} {batches(at_knee)}"
    beyond = ", the largest share" if at_knee is scaling.shares[-1] else ""
    return f"; the knee is at {share(at_knee.share)}{beyond}: {rate}{_aside(at_knee)}"


def _carried(measured: ShareFigures, slo_us: int) -> str:
    best = measured.within
    if best is None:
        return ""
    rate = f"{_rate(best.throughput)} {within(slo_us)} {batches(measured)}"
    have = "have" if _plural(measured.share) else "has"
    return f"{share(measured.share)} {have} a {capacity.TERM} of {rate}{_aside(measured)}"


def _rate(throughput: float) -> str:
    return f"{capacity.rows_per_s(throughput)} rows/s"


def _carry(of: Share) -> str:
    return "carry" if _plural(of) else "carries"


def _aside(measured: ShareFigures) -> str:
    return f" ({predicted(measured)})" if measured.profile.predicted else ""


def doubt(scaling: ShareScaling) -> str:
    """Return what should be measured again: the point furthest off the fit; "" where all are sound."""
    worst = scaling.surface.worst
    if scaling.surface.sound:
        return ""
    measured = next(each for each in scaling.shares if each.share.amount == worst.amount)
    return (
        f"{name(scaling)} on {share(measured.share)}: {worst.rows:,} rows took "
        f"{numbers.milliseconds(worst.measured_us / 1000)} ms, which does not go with its neighbours: the "
        f"fit says {numbers.milliseconds(worst.fitted_us / 1000)} ms. Measure it again, on a quiet machine."
    )


def other_rules(scaling: ShareScaling) -> str:
    """Return where other rules see the knee; "" if they agree."""
    knee = scaling.knee
    if knee is None:
        return ""
    named = {each.share.amount: share(each.share) for each in scaling.shares}
    rules = (("the least share with 90 % of the throughput", knee.by_90), ("Kneedle", knee.by_kneedle))
    others = [f"at {named[amount]} ({rule})" for rule, amount in rules if amount != knee.amount]
    return f"{name(scaling)}: by other rules the knee is {' or '.join(others)}." if others else ""


def notes(found: Sequence[ShareScaling]) -> list[str]:
    """Return notes beside the figures: their size, what other rules say, what is doubtful."""
    sizes = sorted({each.size for each in found} - {0})
    told = [f"All figures are of rows of the largest size, up to {size:,}." for size in sizes]
    told += [said for each in found if (said := other_rules(each))]
    return told + [said for each in found if (said := doubt(each))]


def origins(found: Sequence[ShareScaling]) -> list[tuple[str, str]]:
    """Return where the figures of a kind of device come from, as terms and texts."""
    known = [share.profile.origin for each in found for share in each.shares]
    machine: dict[str, dict[str, None]] = {}
    for origin in known:
        for what, which in origin.machine:
            machine.setdefault(what, {})[which] = None
    days = sorted({each.measured[:10] for each in known if each.measured})
    taken_s, noise = sum(each.seconds for each in known), max(each.noise for each in known)
    facts = {
        **{what: ", ".join(found) for what, found in machine.items()},
        "measured": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
        "command": ", ".join(dict.fromkeys(each.command for each in known if each.command)),
        "measuring took": f"{numbers.amount(taken_s)} s for all shares" if taken_s else "",
        "noise": f"at most {numbers.percent(noise)}" if noise else "",
        "builds": ", ".join(sorted({each.build[:12] for each in known if each.build})),
    }
    return [(term, text) for term, text in facts.items() if text]
