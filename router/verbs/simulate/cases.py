"""What is compared: each settings file with each policy, as a site that can be simulated."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from router.commandline.spelling import nearest
from router.settings import Settings, SettingsError, load_settings
from router.settings.profiles import known_profiles
from router.settings.values.problems import fault, one_of, shown
from router.verbs.simulate.governing import (
    Copies,
    check_losses,
    governance,
    is_governed,
    told_ignored,
    without,
)
from router.verbs.simulate.left_out import left_out
from router.verbs.simulate.traffic import SimulateRequestError, Traffic
from serving.policy.batching.catalogue import POLICIES
from serving.profile.curve import Profile
from serving.profile.derived.carrying import ProfiledCapacity, carried
from serving.profile.derived.latency import Latency
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.simulation.devices.losses import Loss
from serving.simulation.devices.site import Site, SiteReplica
from serving.simulation.governed.governed import Governance
from serving.values.specs import BatchingSpec, ServedModel

AS_CONFIGURED = ""
WARM_S_MAX = 1.0  # at the start of a run rates are not known yet: it is not counted, ...
_WARM_SHARE = 0.1  # ... nor is more than this share of a short run


Profiles = dict[tuple[str, str, str], Profile]
"""By slice, model and variant."""


@dataclass(frozen=True, slots=True)
class SimulatedDeployment:
    """Instead of the settings' own slices: `slices` alike with all models on each, or the settings' slices
    `devices` times; and instead of their prices `price` for an hour of each. `ignored`: keys of penstock.yaml
    that are left out. `losses`: of slices, which the controller meets."""

    slices: int | None = None
    devices: int | None = None
    price: float | None = None
    ignored: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def copies(self) -> Copies:
        """The slices."""
        return Copies(self.slices, self.devices or 1)


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to simulate; `name` tells it from the others, `policy` is "" if the settings decide. `notes`:
    sentences for the operator on what is left out. `left_out`: keys of penstock.yaml that the simulation
    leaves out, in words. `governance`: the input of control, None if nothing depends on it."""

    name: str
    config: Path
    policy: str
    site: Site
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    governance: Governance | None = None

    def profiled(self, model: ServedModel) -> dict[str, ProfiledCapacity]:
        """Return, by slice, the profiled capacity of the model's answering variant there, for rows of the
        largest size. A slice that runs no batch within half the SLO is left out."""
        size, rows_max = model.spec.sizes[-1], model.spec.batch_max
        found = {
            each.slice: carried(each.latency, model.own.slo_us, rows_max, size)
            for each in self.site.residents
            if (each.model, each.variant) == (model.name, model.answering_variant)
        }
        return {name: each for name, each in found.items() if each is not None}

    def slices_of(self, model: str) -> int:
        """Return how many slices hold the model."""
        return len({each.slice for each in self.site.residents if each.model == model})


def cases(
    configs: Sequence[Path], policies: Sequence[str], deployment: SimulatedDeployment, traffic: Traffic
) -> list[Case]:
    """Return every settings file with every policy; UsageError, in a sentence, where one cannot be
    simulated."""
    if deployment.slices and deployment.devices:
        raise SimulateRequestError("--slices and --devices: give one of them")
    if twice := [str(config) for config in configs if configs.count(config) > 1]:
        raise SimulateRequestError(f"{twice[0]} is given twice")
    for policy in policies:
        _check_policy(policy)
    found = []
    for config in configs:
        filed = _load(config)
        models = traffic.models(without(filed, deployment.ignored))
        for policy in policies or [AS_CONFIGURED]:
            case = case_of(filed, policy, deployment, traffic)
            found.append(replace(case, name=_name(config, configs, policy, models)))
    return found


def case_of(filed: Settings, policy: str, deployment: SimulatedDeployment, traffic: Traffic) -> Case:
    """Return these settings with a policy, AS_CONFIGURED for their own; SimulateRequestError, in a sentence,
    where they cannot be simulated."""
    settings = without(filed, deployment.ignored)
    models = traffic.models(settings)
    profiles = _profiles(settings, models)
    notes = tuple(_unmeasured(models, profiles))
    ignored = told_ignored(filed, deployment.ignored)
    missing = (*filter(None, [ignored]), *left_out(settings, models, deployment.losses))
    asked = [_with_policy(each, policy) for each in models]
    governed, said = None, list[str]()
    if is_governed(settings) or deployment.losses:
        governed, said = governance(settings, asked, deployment.copies, deployment.price)
        check_losses(governed, deployment.losses)
    site = _site(settings, asked, profiles, deployment)
    settle_us = int(min(WARM_S_MAX, _WARM_SHARE * traffic.seconds) * 1e6)
    site = replace(site, settle_us=settle_us)
    return Case(policy, filed.path, policy, site, (*notes, *said), missing, governed)


def _load(config: Path) -> Settings:
    try:
        return load_settings(config)
    except SettingsError as error:
        raise SimulateRequestError(str(error)) from None


def _name(config: Path, configs: Sequence[Path], policy: str, models: Sequence[ServedModel]) -> str:
    stems = [each.stem for each in configs]
    file = str(config) if stems.count(config.stem) > 1 else config.stem
    if len(configs) > 1:
        return f"{file}, {policy}" if policy else file
    configured = {model.batching.policy for model in models}
    return policy or (configured.pop() if len(configured) == 1 else "as configured")


def _check_policy(text: str) -> None:
    name, colon, mode = text.partition(":")
    if name not in POLICIES:
        near = nearest(name, POLICIES)
        raise SimulateRequestError(f"--policy: {fault('unknown policy', name, one_of(POLICIES), near)}")
    modes = POLICIES[name].modes
    if colon and mode not in modes:
        known = f"expected {one_of(modes)}" if modes else "it has none"
        raise SimulateRequestError(f"--policy: {name} has no mode {shown(mode)}; {known}")


def _with_policy(model: ServedModel, policy: str) -> ServedModel:
    """Return the model with that policy; the settings' knobs are kept where they are for the same one."""
    name, _, mode = policy.partition(":")
    if not policy or (name == model.batching.policy and mode in ("", model.batching.mode)):
        return model
    return replace(model, batching=BatchingSpec(name, mode=mode))


def _profiles(settings: Settings, models: Sequence[ServedModel]) -> Profiles:
    """Return the profiles by slice, model and variant. Raises SimulateRequestError that names all missing
    profiles of the answering variants. It also names the best variant of a tier if no variant that may answer
    it was measured."""
    store = ProfileStore(settings.profiles)
    known = known_profiles(settings, store)
    kinds = {each.name: f"{device_kind(each)} {each.share}" for each in settings.slices}
    wanted = [(place, model) for model in models for place in model.slices]
    missing = [
        f"{model.name} {variant} on slice {place} ({kinds[place]})"
        for place, model in wanted
        for variant in _needed(model, {each for at, of, each in known if (at, of) == (place, model.name)})
    ]
    if missing:
        damaged = "".join(f"\n{problem}" for problem in store.problems)
        raise SimulateRequestError(
            f"{settings.path}: never measured: {', '.join(missing)}. Start `penstock serve --config "
            f"{settings.path}` once: it measures what is missing in some {settings.limits.sweep_s:g} s "
            f"and keeps it in {settings.profiles / 'local'}; `penstock profile` measures it well.{damaged}"
        )
    return {
        (place, model.name, variant): known[place, model.name, variant]
        for place, model in wanted
        for variant in model.variants
        if (place, model.name, variant) in known
    }


def _needed(model: ServedModel, known: Collection[str]) -> list[str]:
    """Return the variants without which requests would have no answer where only these are known."""
    of_tiers = [each.variants for each in model.by_tier.values() if each.variants]
    firsts = [(model.answering_variant,), *of_tiers]
    return list(dict.fromkeys(names[0] for names in firsts if not set(names) & set(known)))


def _unmeasured(models: Sequence[ServedModel], profiles: Profiles) -> Iterator[str]:
    """Yield sentences on variants that may answer and were never measured on some of their model's slices."""
    for model in models:
        for variant in dict.fromkeys(
            each for one in (model.own, *model.by_tier.values()) for each in one.variants
        ):
            bare = [place for place in model.slices if (place, model.name, variant) not in profiles]
            if bare:
                where = f"slice{'s' if len(bare) > 1 else ''} {', '.join(bare)}"
                yield (
                    f"{model.name} {variant} was never measured on {where}: it answers nothing there, where "
                    "a gateway would have measured it"
                )


def _site(
    settings: Settings,
    models: Sequence[ServedModel],
    profiles: Profiles,
    deployment: SimulatedDeployment,
) -> Site:
    """Return the models on their slices."""
    places = {model.name: deployment.copies.of(model) for model in models}
    latencies = {key: Latency(profile) for key, profile in profiles.items()}
    prices = {each.name: each.price for each in settings.slices}
    if deployment.price is not None:
        prices = dict.fromkeys(prices, deployment.price)
    residents = [
        SiteReplica(name, model.name, variant, latencies[key], profiles[key].load_us, prices[like])
        for model in models
        for name, like in places[model.name]
        for variant in model.variants
        for key in [(like, model.name, variant)]
        if key in profiles
    ]
    answering = {model.name: model.answering_variant for model in models}
    ordered = sorted(residents, key=lambda each: each.variant != answering[each.model])  # as they are loaded
    served = tuple(replace(model, slices=tuple(name for name, _ in places[model.name])) for model in models)
    return Site(served, tuple(ordered), settings.tenants, settings.limits)
