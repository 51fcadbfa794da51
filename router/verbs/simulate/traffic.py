"""What is asked in a simulation: rates from the command line, or a recording of a gateway."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from router.settings import Settings
from router.settings.values.problems import unknown_name
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import POISSON_CV, due_times, length_s
from serving.simulation.traffic.replay import recorded_files, replay
from serving.simulation.traffic.traffic import (
    Mix,
    Sizes,
    Stream,
    constant,
    merge,
    popularity,
    read_mix,
    stream,
)
from serving.values.specs import DEFAULT_TENANT, ServedModel, SizeHint

ALL = "all"
_ROUNDING = 1e-9  # shares of 0.1 and such add up to 1
_COMMAS = re.compile(r",(?![^(]*\))")  # those that are not within parentheses


class SimulateRequestError(Exception):
    """Nothing can be simulated as asked; the text is one sentence for the operator."""


class Traffic(Protocol):
    """Requests to simulate. `seconds`: how long they come."""

    @property
    def seconds(self) -> float: ...

    @property
    def source(self) -> str:
        """Where the requests come from, in a few words."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences on what is left out, for the operator."""
        ...

    def models(self, settings: Settings) -> list[ServedModel]:
        """Return the models that are asked for, in the settings' order; UsageError for one that is not
        there."""
        ...

    def arrivals(self, models: Sequence[ServedModel], seed: int, scale: float) -> Iterable[Arrival]:
        """Return the requests for `models`, by their places, `scale` times as many a second."""
        ...


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """`pattern` as `patterns.due_times` reads it, for a model (or ALL) from a tenant."""

    model: str
    pattern: str
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Shape:
    """How requests come, how large they are and what they ask for. `cv`: of the gaps; `rows` and `sizes`: by
    model; `zipf`: exponent of the models' popularity in loads for ALL; `tiers`: names and shares, "" for
    those that ask for none."""

    seconds: float = 30.0
    cv: float = POISSON_CV
    rows: Mapping[str, Mix] = field(default_factory=dict)
    sizes: Mapping[str, Mix] = field(default_factory=dict)
    zipf: float = 0.0
    tiers: tuple[tuple[str, float], ...] = (("", 1.0),)


class DrawnTraffic:
    """Requests drawn at rates. Loads must not be empty."""

    def __init__(self, loads: Sequence[OfferedLoad], shape: Shape) -> None:
        self._loads = loads
        self._shape = shape
        self.seconds = max(length_s(load.pattern, shape.seconds) for load in loads)
        self.source = ", ".join(f"{load.model}={load.pattern}" for load in loads)
        self.notes: Sequence[str] = ()

    def models(self, settings: Settings) -> list[ServedModel]:
        """See `Traffic`."""
        known = [model.name for model in settings.models]
        tenants = [tenant.name for tenant in settings.tenants] + [DEFAULT_TENANT]
        for load in self._loads:
            if load.model not in (*known, ALL):
                raise SimulateRequestError(f"--rate: {unknown_name('unknown model', load.model, known)}")
            if load.tenant not in tenants:
                raise SimulateRequestError(f"--rate: {unknown_name('unknown tenant', load.tenant, tenants)}")
        asked = {load.model for load in self._loads}
        models = [model for model in settings.models if model.name in asked or ALL in asked]
        names = [model.name for model in models]
        for option, mixes in (("--rows", self._shape.rows), ("--sizes", self._shape.sizes)):
            for name in mixes:
                if name not in names:
                    raise SimulateRequestError(
                        f"{option}: {unknown_name('a model without a rate', name, names)}"
                    )
        for name, mix in self._shape.rows.items():
            most = max(rows for rows, share in zip(mix.values, mix.shares, strict=True) if share > 0)
            _check_rows(f"--rows: {name}", most, settings)
        tiers = dict.fromkeys(tier for model in models for tier in model.by_tier)
        for tier, _ in self._shape.tiers:
            if tier and tier not in tiers:
                raise SimulateRequestError(f"--tier: {unknown_name('unknown tier', tier, tiers)}")
        for model in models:
            if model.spec.size_hint is None and model.name in self._shape.sizes:
                raise SimulateRequestError(
                    f"--sizes: the cost of {model.name} does not depend on a size (no size_hint in its "
                    "model.yaml); leave it out"
                )
        return models

    def arrivals(self, models: Sequence[ServedModel], seed: int, scale: float) -> Iterable[Arrival]:
        """See `Traffic`."""
        try:
            streams = [
                each
                for number, load in enumerate(self._loads)
                for each in self._streams(load, models, scale, np.random.default_rng([seed, number]))
            ]
        except ValueError as error:
            raise SimulateRequestError(f"--rate: {error}") from None
        return merge(streams)

    def _streams(
        self, load: OfferedLoad, models: Sequence[ServedModel], scale: float, rng: np.random.Generator
    ) -> list[Stream]:
        due_s = due_times(load.pattern, self._shape.seconds, self._shape.cv, rng, scale)
        places = [place for place, model in enumerate(models) if load.model in (model.name, ALL)]
        shares = popularity(len(places), self._shape.zipf)
        owners = (
            rng.choice(places, len(due_s), p=shares) if len(places) > 1 else np.full(len(due_s), places[0])
        )
        streams = []
        for place in places:
            model = models[place]
            rows = self._shape.rows.get(model.name, constant(1))
            sizes = _sizes(self._shape.sizes.get(model.name), model.spec.size_hint)
            whole = stream(place, due_s[owners == place], rows, sizes, rng, load.tenant)
            streams += self._by_tier(whole, rng)
        return streams

    def _by_tier(self, whole: Stream, rng: np.random.Generator) -> list[Stream]:
        """Return the stream, apart by what its requests ask for."""
        names, shares = zip(*self._shape.tiers, strict=True)
        if len(names) == 1:
            return [replace(whole, tier=names[0])]
        drawn = rng.choice(len(names), len(whole.at_us), p=shares)
        return [whole.part(drawn == number, name) for number, name in enumerate(names)]


def _sizes(mix: Mix | None, hint: SizeHint | None) -> Sizes | None:
    """Return the sizes as they are drawn; the largest size if nothing is said."""
    return None if hint is None else (mix or constant(hint.buckets[-1]), hint)


class Recorded:
    """The requests of a recording, as they came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._played: tuple[object, Iterable[Arrival]] = (None, ())  # the latest, as runs ask for it again
        self.seconds = 0.0
        self.source = f"recorded in {path}"
        self.notes: Sequence[str] = ()

    def models(self, settings: Settings) -> list[ServedModel]:
        """See `Traffic`."""
        try:
            found = replay(recorded_files(self._path), settings.models)
        except (OSError, ValueError) as error:
            raise SimulateRequestError(f"--trace: {error}") from None
        self.seconds = max(found.span_us / 1e6, 1e-3)
        self.notes = found.notes
        asked, most = set[int](), 0
        for arrival in found:
            asked.add(arrival.model)
            most = max(most, arrival.rows)
        _check_rows("--trace", most, settings)
        return [model for place, model in enumerate(settings.models) if place in asked]

    def arrivals(self, models: Sequence[ServedModel], seed: int, scale: float) -> Iterable[Arrival]:  # noqa: ARG002  a recording has no seed
        """See `Traffic`."""
        key = (tuple(models), scale)
        if self._played[0] != key:
            try:
                self._played = (key, replay(recorded_files(self._path), models, speed=scale))
            except (OSError, ValueError) as error:
                raise SimulateRequestError(f"--trace: {error}") from None
        return self._played[1]


def _check_rows(where: str, most: int, settings: Settings) -> None:
    """Raise SimulateRequestError unless a gateway with these settings takes requests of `most` rows."""
    limit = settings.limits.rows_per_request
    if most > limit:
        raise SimulateRequestError(
            f"{where} has requests of {most:,} rows, which a gateway with {settings.path} refuses; expected "
            f"at most its limits.rows_per_request, {limit:,}"
        )


def read_loads(texts: Sequence[str]) -> list[OfferedLoad]:
    """Return the loads of all --rate options; UsageError for one that is none."""
    loads = []
    for text in (part for each in texts for part in _COMMAS.split(each)):
        name, sign, pattern = text.strip().partition("=")
        tenant, slash, model = name.rpartition("/")
        if not (sign and pattern and model) or (slash and not tenant):
            raise SimulateRequestError(f"--rate: expected MODEL=RATE, such as digits=50; got {text!r}")
        loads.append(OfferedLoad(model.strip(), pattern.strip(), tenant.strip() or DEFAULT_TENANT))
    names = [(load.tenant, load.model) for load in loads]
    if twice := {model for tenant, model in names if names.count((tenant, model)) > 1}:
        raise SimulateRequestError(f"--rate: {', '.join(sorted(twice))} is given more than once")
    return loads


def read_tiers(text: str) -> tuple[tuple[str, float], ...]:
    """Return TIER=SHARE,... of --tier, and the rest that asks for none. Raises SimulateRequestError for
    anything else."""
    shares: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not name or name in shares or not 0 <= share <= 1:
            raise SimulateRequestError(
                f"--tier: expected TIER=SHARE, each tier once, such as gold=0.2; got {part!r}"
            )
        shares[name] = share
    rest = 1 - sum(shares.values())
    if rest < -_ROUNDING:
        raise SimulateRequestError(f"--tier: shares of {text} add up to {1 - rest:g}; expected at most 1")
    return (*shares.items(), *([("", rest)] if rest > _ROUNDING else []))


def read_mixes(option: str, text: str) -> dict[str, Mix]:
    """Return MODEL=MIX,... of an option. Raises SimulateRequestError for anything else."""
    mixes = {}
    for part in filter(None, _COMMAS.split(text)):
        name, sign, mix = part.strip().partition("=")
        if not (sign and name and mix):
            raise SimulateRequestError(f"{option}: expected MODEL=NUMBERS, such as digits=4; got {part!r}")
        try:
            mixes[name.strip()] = read_mix(mix)
        except ValueError as error:
            raise SimulateRequestError(f"{option}: {error}") from None
    return mixes
