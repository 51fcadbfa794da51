"""What `penstock place` is asked: the settings, who asks for how much, and the devices, as a problem."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from router.settings import Settings, SettingsError, load_settings
from router.verbs.place.options import PlaceOptions
from router.verbs.place.question.current import current
from router.verbs.place.question.demands import demands
from router.verbs.place.question.fleet import geometries, pools, this_machine
from router.verbs.place.question.rates import AskedRates, RunningGateway, given, recorded, watched
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.deciding import DecisionTerms
from serving.planning.task import AskedRate, PlanningTask
from serving.policy.placement.terms.geometry import Geometry
from serving.policy.placement.terms.plan import Placement
from serving.policy.placement.terms.problem import PlacementProblem
from serving.runtime.slicing.inventory import take_inventory
from serving.values.slice_specs import DeviceSpec


@dataclass(frozen=True, slots=True)
class PlacementTask:
    """`problem`: what is to be decided, its rates with the reserve; `current`: the placement of today;
    `rates` by model, without the reserve; `notes`: sentences on all that for the operator."""

    settings: Settings
    problem: PlacementProblem
    current: Placement
    rates: Mapping[str, AskedRate]
    notes: tuple[str, ...] = ()

    @property
    def planning(self) -> PlanningTask:
        """The same without the settings' files and the notes."""
        settings = self.settings
        return PlanningTask(
            settings.models, settings.tenants, settings.limits, self.problem, self.current, self.rates
        )


def ask(
    config: Path,
    rates: Sequence[str],
    reserve: float,
    gateway: RunningGateway,
    trace: Path | None,
    rows: str = "",
) -> PlacementTask:
    """Return all of it. Rates are those of `rates` (MODEL=REQUESTS_A_SECOND,...; with `rows`, MODEL=MIX,...),
    else of the recording `trace`, else of the gateway that runs.

    UsageError, in a sentence, where nothing can be placed as asked.
    """
    if not (isfinite(reserve) and reserve >= 0):
        raise SimulateRequestError(
            f"--reserve: expected a share of the rates such as 0.2, 0 or more; got {reserve:g}"
        )
    try:
        settings = load_settings(config)
    except SettingsError as error:
        raise SimulateRequestError(str(error)) from None
    return posed(settings, _rates(settings, rates, gateway, trace, rows), reserve)


def posed(settings: Settings, asked: AskedRates, reserve: float) -> PlacementTask:
    """Return all of it for these rates. SimulateRequestError if no device can run a model within its SLO."""
    if other := [each.name for each in settings.slices if each.python]:
        raise SimulateRequestError(
            f"{', '.join(other)}: another `python`; a plan does not know which model needs it; "
            "expected slices with the gateway's own"
        )
    if far := [each.name for each in settings.slices if each.node]:
        raise SimulateRequestError(
            f"{', '.join(far)}: on a node; a plan is of this machine's devices and of those in `devices:`"
        )
    devices, told, notes = _devices(settings)
    usable = pools(devices, told)
    found, premises = demands(settings, asked.by_model, usable, reserve)
    problem = PlacementProblem(found, usable)
    present, absent = current(settings, problem)
    return PlacementTask(
        settings, problem, present, asked.by_model, (*asked.notes, *notes, *premises, *absent)
    )


def terms_of(options: PlaceOptions) -> DecisionTerms:
    """Return what the options ask of a decision."""
    return DecisionTerms(
        attainment=options.attainment,
        horizon_s=options.horizon_h * 3600,
        limit_s=options.limit_s,
        seconds=options.seconds,
        seed=options.seed,
        in_flight=options.in_flight,
    )


def _rates(
    settings: Settings, rates: Sequence[str], gateway: RunningGateway, trace: Path | None, rows: str
) -> AskedRates:
    if rates:
        if other := [name for name, value in (("--trace", trace), ("--url", gateway.url)) if value]:
            raise SimulateRequestError(f"--rates says what is asked; leave out {' and '.join(other)}")
        return given(settings, rates, rows)
    if rows:
        raise SimulateRequestError("--rows says how many rows a request of --rates has; give --rates as well")
    if trace is not None:
        if gateway.url:
            raise SimulateRequestError("--trace brings its own rates; leave out --url")
        return recorded(settings, trace)
    return watched(settings, gateway, time.sleep)


def _devices(settings: Settings) -> tuple[Sequence[DeviceSpec], Mapping[str, Geometry], list[str]]:
    """Return the devices, the MIG geometries that this machine's driver lists, and sentences on both."""
    found: Sequence[DeviceSpec] = settings.devices
    told: Mapping[str, Geometry] = {}
    notes: list[str] = []
    if not found:
        inventory = take_inventory()
        found, notes = this_machine(inventory, os.environ)
        told = geometries(inventory)
        notes = [f"the devices are those of this machine: {settings.path.name} has no `devices:`", *notes]
    if len(found) > 1 and not any(each.price for each in found):
        notes = [*notes, "no device has a price, so each counts as 1"]
    return found, told, notes
