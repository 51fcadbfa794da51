"""How much is asked of each model: by the command line, by a recording, or of a gateway that runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
import numpy.typing as npt

from router.commandline.key_env import KEY_ENV
from router.commandline.reading import UnreachableError
from router.observing.status import ModelStatus, Status, fetch
from router.settings import Settings
from router.settings.values.problems import unknown_name
from router.verbs.simulate.traffic import SimulateRequestError, read_mixes
from serving.planning.task import ONE_ROW, AskedRate
from serving.simulation.traffic.replay import recorded_files, replay
from serving.simulation.traffic.traffic import Mix, constant

WINDOW_S = 10.0
"""Of a recording, the time whose mean rate counts, of all such times that with the most rows."""

WATCHED_S = 5.0
"""A gateway is asked twice, so long apart."""

RATE_MAX = 1e9
_SHORTEST_S = 1.0  # of a recording that is not even so long: two requests within a millisecond are no rate
_WHAT = "give --rates MODEL=REQUESTS_A_SECOND, such as --rates digits=50,minilm=20, or --trace FILE"


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """One that runs. `url`: its REST port, None where the settings' would be. `key_env`: the environment
    variable with the API key for it."""

    url: str | None = None
    key_env: str = KEY_ENV


@dataclass(frozen=True, slots=True)
class AskedRates:
    """By model, in the settings' order; `notes`: sentences on where they come from and what is left out."""

    by_model: Mapping[str, AskedRate]
    notes: tuple[str, ...]


def given(settings: Settings, texts: Sequence[str], rows: str) -> AskedRates:
    """Return those of all --rates options, MODEL=REQUESTS_A_SECOND,...; requests have one row where --rows
    (MODEL=MIX,...) does not say otherwise. UsageError for anything else."""
    known = [model.name for model in settings.models]
    found: dict[str, float] = {}
    for text in (part.strip() for each in texts for part in each.split(",")):
        name, sign, number = (part.strip() for part in text.partition("="))
        if not (sign and name and number):
            raise SimulateRequestError(
                f"--rates: expected MODEL=REQUESTS_A_SECOND, such as digits=50; got {text!r}"
            )
        if name not in known:
            raise SimulateRequestError(f"--rates: {unknown_name('unknown model', name, known)}")
        if name in found:
            raise SimulateRequestError(f"--rates: {name} is given more than once")
        found[name] = _number(text, number)
    mixes = read_mixes("--rows", rows)
    for name in mixes:
        if name not in found:
            raise SimulateRequestError(f"--rows: {unknown_name('a model without a rate', name, list(found))}")
    rates = {name: AskedRate(found[name], mixes.get(name, ONE_ROW)) for name in known if name in found}
    return AskedRates(rates, _silent(known, rates, "no rate was given"))


def _number(text: str, number: str) -> float:
    try:
        rate = float(number)
    except ValueError:
        rate = -1.0
    if not (isfinite(rate) and 0 <= rate <= RATE_MAX):
        raise SimulateRequestError(f"--rates: expected requests a second, 0 to {RATE_MAX:g}; got {text!r}")
    return rate


def _silent(known: Sequence[str], rates: Mapping[str, AskedRate], why: str) -> tuple[str, ...]:
    """Return a sentence on all the models that have no rate."""
    left = [name for name in known if name not in rates]
    return (f"not placed, as {why}: {', '.join(left)}",) if left else ()


def recorded(settings: Settings, path: Path) -> AskedRates:
    """Return, for each model, the rate of the WINDOW_S with the most rows in a recording (or a folder of
    them). Raises SimulateRequestError if it cannot be read."""
    try:
        found = replay(recorded_files(path), settings.models)
    except (OSError, ValueError) as error:
        raise SimulateRequestError(f"--trace: {error}") from None
    window_s = min(WINDOW_S, max(found.span_us / 1e6, _SHORTEST_S))
    owners = np.array([flow[0] for flow in found.flows])[found.columns[1]]
    rates: dict[str, AskedRate] = {}
    for number, model in enumerate(settings.models):
        ours = owners == number
        if ours.any():
            rows = found.columns[2][ours]
            values, counts = np.unique(rows, return_counts=True)
            mix = Mix(tuple(values.tolist()), tuple(map(float, counts.tolist())))
            rows_per_s = _most(found.columns[0][ours], rows, window_s) / window_s
            rates[model.name] = AskedRate(rows_per_s / mix.mean, mix)
    of_each = f"of each model that of the {window_s:g} s with the most rows"
    silent = _silent([model.name for model in settings.models], rates, f"{path} has no request for it")
    return AskedRates(rates, (f"rates are those recorded in {path}, {of_each}", *found.notes, *silent))


def _most(at_us: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], window_s: float) -> float:
    """Return the most rows within any window; `at_us` ascends. One that begins with a request has the
    most."""
    sums = np.concatenate(([0], np.cumsum(rows)))
    ends = np.searchsorted(at_us, at_us + round(window_s * 1e6), side="left")
    return float((sums[ends] - sums[:-1]).max())


def watched(settings: Settings, gateway: RunningGateway, pause: Callable[[float], None]) -> AskedRates:
    """Return, for each model, the higher of two rates of the gateway: the mean since its start, and the rate
    of the next WATCHED_S. `pause` waits meanwhile.

    What was computed counts, and what was promised but not answered; answers from the cache cost nothing.
    Raises SimulateRequestError if no gateway answers, or none of these models was asked for.
    """
    address = gateway.url or settings.server.address
    if not address:
        raise SimulateRequestError(
            f"what is asked? The settings' REST port is any free one: give --url, or {_WHAT}"
        )
    try:
        before = fetch(address, gateway.key_env)
        pause(WATCHED_S)
        after = fetch(address, gateway.key_env)
    except UnreachableError as error:
        raise SimulateRequestError(f"what is asked? {error} Or {_WHAT}") from None
    rates = rates_of(after, before)
    known = [model.name for model in settings.models]
    notes = [f"rates are those of the gateway at {address}: since its start, or now where that is more"]
    if strangers := [name for name in rates if name not in known]:
        notes.append(f"left out, as {settings.path.name} does not serve it: {', '.join(strangers)}")
    ours = {name: rates[name] for name in known if name in rates}
    if not ours:
        raise SimulateRequestError(
            f"what is asked? The gateway at {address} was asked for nothing yet; {_WHAT}"
        )
    return AskedRates(ours, (*notes, *_silent(known, ours, f"{address} was not asked for it")))


def rates_of(after: Status, before: Status | None = None) -> dict[str, AskedRate]:
    """Return the rates of all models that were asked for: the mean since the gateway's start, or the rate
    since the status `before` where that is higher."""
    elapsed_s = after["uptime_s"] - before["uptime_s"] if before else 0.0
    earlier = {each["name"]: each for each in before["models"]} if before else {}
    rates: dict[str, AskedRate] = {}
    for now in after["models"]:
        was = earlier.get(now["name"])
        rows = _asked_rows(now) / max(after["uptime_s"], _SHORTEST_S)
        if was is not None and elapsed_s > 0:
            rows = max(rows, (_asked_rows(now) - _asked_rows(was)) / elapsed_s)
        counters = now["counters"]
        if rows > 0:
            mix = _about(counters["rows"] / counters["completed"] if counters["completed"] else 1.0)
            rates[now["name"]] = AskedRate(rows / mix.mean, mix)
    return rates


def _asked_rows(model: ModelStatus) -> float:
    counters = model["counters"]
    missed = sum(counters["missed"].values()) - counters["missed"].get("late", 0)  # late ones were computed
    each = counters["rows"] / counters["completed"] if counters["completed"] else 1.0
    return counters["batch_rows"] + missed * each


def _about(mean: float) -> Mix:
    """Return the two whole numbers around a mean, so often that it comes out."""
    low = max(int(mean), 1)
    part = max(mean - low, 0.0)
    return Mix((low, low + 1), (1 - part, part)) if part else constant(low)
