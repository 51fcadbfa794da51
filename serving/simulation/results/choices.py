"""Which variants answered, and how accurately: the figures, and their course over the seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.simulation.results.answered import REASONS, Answered
from serving.simulation.results.series import RunSeries, Span
from serving.simulation.tally import mean_accuracy
from serving.values.objectives import ranked
from serving.values.specs import ServedModel


@dataclass(frozen=True, slots=True)
class VariantShares:
    """How a model was answered. `accuracy`: the mean over its rows, for variants with known accuracy; nan if
    there are none. `shares`: the shares of its rows by variant, the most accurate first. `downgrades`: the
    rows in batches of another variant than would have run without pressure, by reason, as shares of the rows
    answered."""

    accuracy: float
    shares: dict[str, float]
    downgrades: dict[str, float]


def choice(runs: Sequence[Answered], number: int, model: ServedModel, span: Span) -> VariantShares:
    """Return the variant shares of the model with this number, over runs with different seeds, for requests
    that came in the span."""
    names = _ranked(model)
    if len(names) == 1:
        accuracy = model.accuracy(names[0])
        return VariantShares(np.nan if accuracy is None else accuracy, {names[0]: 1.0}, {})
    rows, reasons = np.zeros(len(model.variants)), np.zeros(len(REASONS))
    for run in runs:
        ours = (run.model == number) & (run.at_us >= span.start_us) & (run.at_us < span.end_us)
        rows += np.bincount(run.variant[ours], run.rows[ours], len(rows))
        ours = (run.down_model == number) & (run.down_at_us >= span.start_us) & (run.down_at_us < span.end_us)
        reasons += np.bincount(run.down_reason[ours], run.down_rows[ours], len(reasons))
    total = float(rows.sum())
    if not total:
        return VariantShares(np.nan, {}, {})
    shares = dict(zip(model.variants, (rows / total).tolist(), strict=True))
    downgrades = dict(zip(map(str, REASONS), (reasons / total).tolist(), strict=True))
    return VariantShares(
        _accuracy(model, shares),
        {name: shares[name] for name in names if shares[name]},
        {name: share for name, share in downgrades.items() if share},
    )


@dataclass(frozen=True, slots=True)
class VariantSeries:
    """A model's choice over time, in the bins of its `RunSeries`: `rates`, rows answered a second, by
    variant, the most accurate first; `accuracy` is nan where a bin has no row."""

    rates: dict[str, tuple[float, ...]]
    accuracy: tuple[float, ...]


def course(run: Answered, number: int, model: ServedModel, series: RunSeries) -> VariantSeries:
    """Return the variant series of one run. Rates are unknown for a model with one variant."""
    bins, variants = len(series.start_s), model.variants
    if len(variants) == 1:
        return VariantSeries({}, (_accuracy(model, {variants[0]: 1.0}),) * bins)
    which = np.floor_divide(run.at_us, series.bin_s * 1e6).astype(np.int64)
    ours = (run.model == number) & (which < bins)
    places = which[ours] * len(variants) + run.variant[ours]
    rows = np.bincount(places, run.rows[ours], bins * len(variants)).reshape(bins, len(variants))
    rates = dict(zip(variants, (rows / series.bin_s).T.tolist(), strict=True))
    accuracy = [_accuracy(model, dict(zip(variants, each, strict=True))) for each in rows.tolist()]
    return VariantSeries({name: tuple(rates[name]) for name in _ranked(model)}, tuple(accuracy))


def _ranked(model: ServedModel) -> tuple[str, ...]:
    return ranked({name: model.accuracy(name) for name in model.variants}, 0.0)


def _accuracy(model: ServedModel, rows: dict[str, float]) -> float:
    return mean_accuracy(
        {(model.name, name): count for name, count in rows.items()},
        {(model.name, name): share for name in rows if (share := model.accuracy(name)) is not None},
    )
