"""How far forecasts of the largest rate within a horizon are off, by history and member; no clock decides.

python -m loadtests.scaling.forecasts [--data DIR] [--seeds N] [--without | --speed]

`DIR/traces`: the recorded days ($PENSTOCK_DATA by default); without them the drawn ones only. A loss is the
mean pinball loss of median and 95th percentile, over that of the naive forecast (what came one period ago;
without a period what came last); `in`: how much of what came was at most the 95th percentile. The errors of
all members are corrected alike, by `serving.policy.forecasting.backtest`. With `--without`: the loss of the
ensemble without each of its members, over its loss with all of them; above 1 the member gains.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import numpy.typing as npt

from serving.policy.forecasting.ensemble import MEMBERS, foretell
from serving.policy.forecasting.quantiles import LEVELS, Quantiles, pinball

Counts = npt.NDArray[np.float64]
Rates = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator], Counts]

BINS = 600
BIN_S = 10.0
HORIZON_S = 60.0
EVERY = 5
"""Bins from one forecast to the next."""
START = 60
"""Bins that are known at the first."""
ENSEMBLE = "ensemble"
SPEED_BINS = (60, 360, 1440)
REPEATS = 50


def _rates(rate: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> Draw:
    """Return a draw of Poisson counts by bins; `rate`: the rows to expect in each bin."""
    return lambda rng: rng.poisson(rate(np.arange(BINS, dtype=np.float64))).astype(np.float64)


def _diurnal(at: npt.NDArray[np.float64]) -> Rates:
    return np.asarray(200.0 + 150.0 * np.sin(2.0 * np.pi * at / 120.0))


def _ramps(at: npt.NDArray[np.float64]) -> Rates:
    """Return a rate that doubles over 40 minutes, twice, and goes back at once."""
    return np.asarray(200.0 * (1.0 + (at % 240.0) / 240.0) ** 2)


def _on_off(rng: np.random.Generator) -> Counts:
    """Draw counts that are on for two minutes or so and off for four: exponential times."""
    found: list[float] = []
    on = False
    while len(found) < BINS:
        on = not on
        length = 1 + int(rng.exponential(12.0 if on else 24.0))
        found += rng.poisson(300.0 if on else 10.0, length).tolist()
    return np.array(found[:BINS])


def _gamma(cv: float) -> Draw:
    """Return a draw of 20 requests a second with gaps of this coefficient of variation."""

    def draw(rng: np.random.Generator) -> Counts:
        shape = 1.0 / cv**2
        gaps = rng.gamma(shape, 1.0 / (20.0 * shape), int(2 * 20 * BINS * BIN_S))
        counts: Counts = np.histogram(np.cumsum(gaps), BINS, (0.0, BINS * BIN_S))[0].astype(np.float64)
        return counts

    return draw


HISTORIES: Mapping[str, Draw] = {
    "constant, 2/s": _rates(lambda at: np.full(at.shape, 20.0)),
    "constant, 100/s": _rates(lambda at: np.full(at.shape, 1000.0)),
    "diurnal, day of 20 min": _rates(_diurnal),
    "ramps": _rates(_ramps),
    "step x3": _rates(lambda at: np.where(at < BINS / 2, 100.0, 300.0)),
    "flash x10": _rates(lambda at: np.where((at >= 300) & (at < 312), 1000.0, 100.0)),
    "gamma CV 4": _gamma(4.0),
    "gamma CV 8": _gamma(8.0),
    "on/off": _on_off,
}
"""Rows in each of BINS bins of BIN_S."""


def twin_day(rng: np.random.Generator) -> Counts:
    """Draw a day like the recorded day of Twitter in form and noise. Minutes of some 2,000 fall to a half and
    rise again, with noise of 3 %. Now and then a minute has half as much more."""
    at = np.arange(1476.0)
    base = 1900.0 + 700.0 * np.cos(2.0 * np.pi * at / 1440.0) + 150.0 * np.cos(2.0 * np.pi * at / 700.0)
    crowds = np.where(rng.random(at.shape) < 0.003, 1.5, 1.0)
    return np.asarray(rng.poisson(base * crowds * rng.normal(1.0, 0.03, at.shape)), np.float64)


def recorded(data: Path) -> Iterator[tuple[str, Counts, float]]:
    """Yield the name, counts and bin of each recording that is there."""
    twitter = data / "traces" / "twitter_per_minute.txt"
    if twitter.is_file():
        yield "Twitter, a day of minutes", np.loadtxt(twitter), 60.0
    azure = data / "traces" / "azure_llm_conv_2023.csv"
    if azure.is_file():
        times = np.loadtxt(azure, delimiter=",", skiprows=1, usecols=0, dtype="datetime64[us]")
        seconds = (times - times[0]) / np.timedelta64(1, "s")
        bins = int(seconds[-1] // BIN_S)
        counts = np.histogram(seconds, bins, (0.0, bins * BIN_S))[0]
        yield "Azure LLM, an hour", counts.astype(np.float64), BIN_S


@dataclass(frozen=True, slots=True)
class Score:
    """Of one forecaster: the pinball loss in rows a second, the share of what came that was at most the high
    quantile, and the mean of that over what came."""

    loss: float
    covered: float
    over: float


def score(
    history: Sequence[float] | Counts, bin_s: float, horizon_s: float, every: int = EVERY
) -> Mapping[str, Score]:
    """Score the ensemble and its members, asked every `every` bins from START on."""

    def ask(rows: Counts) -> Mapping[str, Quantiles]:
        found = foretell(rows, bin_s, horizon_s)
        return {name: found.opinions.get(name, found.quantiles) for name in (ENSEMBLE, *MEMBERS)}

    return _scores(ask, history, bin_s, horizon_s, every)


def score_without(
    history: Sequence[float] | Counts, bin_s: float, horizon_s: float, every: int = EVERY
) -> Mapping[str, float]:
    """Return the loss of the ensemble without each member, over its loss with all."""
    kept = {ENSEMBLE: MEMBERS} | {
        left: {name: member for name, member in MEMBERS.items() if name != left} for left in MEMBERS
    }

    def ask(rows: Counts) -> Mapping[str, Quantiles]:
        return {left: foretell(rows, bin_s, horizon_s, own).quantiles for left, own in kept.items()}

    scores = _scores(ask, history, bin_s, horizon_s, every)
    return {left: scores[left].loss / max(scores[ENSEMBLE].loss, 1e-12) for left in MEMBERS}


def _scores(
    ask: Callable[[Counts], Mapping[str, Quantiles]],
    history: Sequence[float] | Counts,
    bin_s: float,
    horizon_s: float,
    every: int,
) -> Mapping[str, Score]:
    """Score each forecaster that `ask` has, given what came before."""
    rows = np.asarray(history, np.float64)
    bins = round(horizon_s / bin_s)
    came: list[float] = []
    said: dict[str, list[tuple[float, float]]] = {}
    for now in range(START, len(rows) - bins, every):
        came.append(float(rows[now : now + bins].max()) / bin_s)
        for name, quantiles in ask(rows[:now]).items():
            said.setdefault(name, []).append((quantiles.median, quantiles.high))
    return {name: _score(np.array(own), np.array(came)) for name, own in said.items()}


def _score(said: Rates, came: Rates) -> Score:
    losses = [pinball(came - said[:, place], level).mean() for place, level in enumerate(LEVELS)]
    high = said[:, -1]
    return Score(
        float(np.mean(losses)), float((came <= high).mean()), float((high - came).mean() / came.mean())
    )


def mean(scores: Sequence[Mapping[str, Score]]) -> Mapping[str, Score]:
    """Return the mean scores of several histories of a kind."""
    return {
        name: Score(*np.mean([[one[name].loss, one[name].covered, one[name].over] for one in scores], axis=0))
        for name in scores[0]
    }


def row(name: str, scores: Mapping[str, Score]) -> str:
    """Return a line of the table."""
    naive = max(next(iter(scores[member].loss for member in MEMBERS)), 1e-12)
    cells = [f"{one.loss / naive:.2f} {one.covered:.0%}" for one in scores.values()]
    return f"| {name} | " + " | ".join(cells) + f" | {scores[ENSEMBLE].over:+.0%} |"


def speed(bins: int) -> float:
    """Return the microseconds of processor time for a forecast: the quickest of REPEATS."""
    rows = np.random.default_rng(1).poisson(100.0, bins).astype(np.float64).tolist()
    took = []
    for _ in range(REPEATS):
        before = process_time()
        foretell(rows, BIN_S, HORIZON_S)
        took.append(process_time() - before)
    return min(took) * 1e6


def main() -> int:
    """Print the table, or the speed if asked for, and return 0."""
    asked = _arguments()
    if asked.speed:
        for bins in SPEED_BINS:
            print(f"{bins} bins, {HORIZON_S / BIN_S:.0f} ahead: {speed(bins):.0f} us")
        return 0
    if asked.without:
        _print_without(asked.seeds, asked.data)
        return 0
    names = (ENSEMBLE, *MEMBERS)
    print("| history | " + " | ".join(f"{name}: loss, in" for name in names) + " | 95th over what came |")
    print("|---|" + "---|" * (len(names) + 1))
    for name, drawn, bin_s, horizon_s in _histories(asked.seeds, asked.data):
        print(row(name, mean([score(one, bin_s, horizon_s) for one in drawn])), flush=True)
    if asked.data is None:
        print("no --data and no $PENSTOCK_DATA: no recorded days")
    return 0


def _histories(seeds: int, data: Path | None) -> Iterator[tuple[str, Sequence[Counts], float, float]]:
    """Yield each history's name, its draws, its bin and the horizon."""
    for name, draw in HISTORIES.items():
        yield name, [draw(np.random.default_rng(seed)) for seed in range(seeds)], BIN_S, HORIZON_S
    yield "a day of minutes, drawn", [twin_day(np.random.default_rng(0))], 60.0, 600.0
    for name, counts, bin_s in recorded(data) if data is not None else ():
        yield name, [counts], bin_s, 10.0 * bin_s


def _print_without(seeds: int, data: Path | None) -> None:
    print("| history | " + " | ".join(f"without {name}" for name in MEMBERS) + " |")
    print("|---|" + "---|" * len(MEMBERS))
    every: list[Mapping[str, float]] = []
    for name, drawn, bin_s, horizon_s in _histories(seeds, data):
        several = [score_without(one, bin_s, horizon_s) for one in drawn]
        every += several
        print(_row_without(name, several), flush=True)
    print(_row_without("all", every))


def _row_without(name: str, several: Sequence[Mapping[str, float]]) -> str:
    means = (float(np.mean([one[left] for one in several])) for left in MEMBERS)
    return f"| {name} | " + " | ".join(f"{one:.3f}" for one in means) + " |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.scaling.forecasts", description=(__doc__ or "").split("\n")[0]
    )
    default = os.environ.get("PENSTOCK_DATA")
    parser.add_argument("--data", type=Path, default=Path(default) if default else None, help="with traces/")
    parser.add_argument("--seeds", type=int, default=3, help="histories drawn of each kind")
    parser.add_argument("--without", action="store_true", help="what each member gains instead")
    parser.add_argument("--speed", action="store_true", help="how long a forecast takes instead")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
