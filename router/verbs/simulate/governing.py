"""What control is told of a simulated gateway whose models have `replicas:` or whose slices `memory_mb:`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from router.commandline.spelling import nearest
from router.settings import Settings
from router.settings.profiles import known_profiles
from router.settings.values.problems import fault, one_of
from router.verbs.simulate.traffic import SimulateRequestError
from serving.profile.curve import Profile
from serving.profile.files.store import LOCAL, ProfileStore
from serving.runtime.files.capacity_file import NAME, CapacityFile
from serving.simulation.devices.losses import Loss, clash
from serving.simulation.governed.governed import Governance
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel

REPLICAS, MEMORY = "replicas", "memory_mb"
LEFT_OUT = (REPLICAS, MEMORY)
"""What `--ignore` may name: keys of penstock.yaml that a simulation can do without."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The slices that are simulated, in place of the settings' own: `count` like a model's first, or each of
    the settings' slices `devices` times."""

    count: int | None = None
    devices: int = 1

    def of(self, model: ServedModel) -> list[tuple[str, str]]:
        """Return where the model may be: the slices' names, each with the name of the settings' slice that it
        is like."""
        if self.count:
            return [(f"slice-{number + 1}", model.slices[0]) for number in range(self.count)]
        return [
            (f"{name}.{copy + 1}" if self.devices > 1 else name, name)
            for copy in range(self.devices)
            for name in model.slices
        ]


def without(settings: Settings, ignored: Collection[str]) -> Settings:
    """Return the settings as if they did not state what is ignored."""
    models, slices = settings.models, settings.slices
    if REPLICAS in ignored:
        models = tuple(replace(each, replicas=None) for each in models)
    if MEMORY in ignored:
        slices = tuple(replace(each, memory_bytes=0) for each in slices)
    return replace(settings, models=models, slices=slices)


def told_ignored(settings: Settings, ignored: Collection[str]) -> str:
    """Return the sentence on what `--ignore` leaves out of these settings; "" where it leaves out nothing."""
    told = []
    scaled = [each.name for each in settings.models if each.replicas is not None]
    if REPLICAS in ignored and scaled:
        told.append(f"replicas of {', '.join(scaled)}: one stands on each slice, always")
    limited = [each.name for each in settings.slices if each.memory_bytes]
    if MEMORY in ignored and limited:
        told.append(f"memory_mb of {', '.join(limited)}: all models fit there, always")
    return f"left out by --ignore: {'; '.join(told)}" if told else ""


def is_governed(settings: Settings) -> bool:
    """Return whether control decides what is where: how many replicas a model has follows its load, or a
    slice has no room for all."""
    return any(each.replicas is not None for each in settings.models) or any(
        each.memory_bytes for each in settings.slices
    )


def governance(
    settings: Settings, asked: Sequence[ServedModel], copies: Copies, price: float | None
) -> tuple[Governance, list[str]]:
    """Return (what control gets to know, sentences on what it does not get to know). `price`: of each slice
    for an hour, None for the settings' own.

    Models without requests hold slices and memory too: they are there if they were measured. Raises
    SimulateRequestError if a variant was measured on some of its model's slices only, or if a model needs
    more slices than there are.
    """
    known = known_profiles(settings, ProfileStore(settings.profiles))
    by_name = {each.name: each for each in asked}
    models: list[ServedModel] = []
    notes: list[str] = []
    for model in settings.models:
        here = by_name.get(model.name, model)
        whole = _measured(here, known)
        if whole is None and here.name in by_name:
            raise SimulateRequestError(_half_measured(settings, here, known))
        if whole is None:
            notes.append(f"{here.name} was never measured: that it takes memory and slices is left out")
        else:
            models.append(replace(whole, slices=tuple(name for name, _ in copies.of(whole))))
    _check_room(models)
    likes = {name: like for each in settings.models for name, like in copies.of(each)}
    specs = {each.name: each for each in settings.slices}
    slices = tuple(_copy(name, specs[like], price) for name, like in likes.items())
    profiles = {
        (name, model.name, variant): known[like, model.name, variant]
        for model in models
        for name, like in copies.of(next(each for each in settings.models if each.name == model.name))
        for variant in model.variants
    }
    capacities = CapacityFile(settings.profiles / LOCAL / NAME)
    return Governance(slices, tuple(models), profiles, settings.scaling, capacities.read), notes


def check_losses(governed: Governance, losses: Sequence[Loss]) -> None:
    """Raise SimulateRequestError for a loss of a slice that does not exist, cannot be taken away, or is gone
    already."""
    specs = {each.name: each for each in governed.slices}
    for loss in losses:
        option = "--lose" if loss.notice_s is None else "--spot"
        known = dict.fromkeys(each.node for each in governed.slices if each.node) if loss.node else specs
        if loss.slice not in known:
            what = "node" if loss.node else "slice"
            expected = one_of(known) if known else "a slice; no slice of the settings is on a node"
            told = fault(f"no {what} of that name", loss.slice, expected, nearest(loss.slice, known))
            raise SimulateRequestError(f"{option}: {told}")
        if loss.notice_s is not None and not specs[loss.slice].spot:
            raise SimulateRequestError(
                f"--spot: slice {loss.slice} is no spot slice; say `spot: true` of it, or use --lose"
            )
    if again := clash([(domain, each) for each in losses for domain in _domains(specs, each)]):
        first, second = again
        raise SimulateRequestError(
            f"--lose, --spot: {second.slice} at {second.at_s:g} s is gone already, with {first.slice}; leave "
            "one of them out"
        )


def _domains(specs: Mapping[str, SliceSpec], loss: Loss) -> Collection[str]:
    """Return the failure domains that go."""
    if loss.node:
        return {each.domain for each in specs.values() if each.node == loss.slice}
    return {specs[loss.slice].domain}


def _copy(name: str, like: SliceSpec, price: float | None) -> SliceSpec:
    return replace(like, name=name, price=like.price if price is None else price)


def _measured(model: ServedModel, known: Mapping[tuple[str, str, str], Profile]) -> ServedModel | None:
    """Return the model with those of its variants that were measured on all of its slices; None where one was
    on some only, or none of those that answer was."""
    counts = {
        variant: sum((name, model.name, variant) in known for name in model.slices)
        for variant in model.variants
    }
    if any(0 < count < len(model.slices) for count in counts.values()):
        return None
    there = tuple(variant for variant, count in counts.items() if count)
    return replace(model, variants=there) if {*model.own.variants} & {*there} else None


def _half_measured(
    settings: Settings, model: ServedModel, known: Mapping[tuple[str, str, str], Profile]
) -> str:
    missing = [
        f"{variant} on slice {name}"
        for variant in model.variants
        for name in model.slices
        if (name, model.name, variant) not in known
        and any((other, model.name, variant) in known for other in model.slices)
    ]
    why = "replicas and memory_mb let a model be on any of its slices"
    return (
        f"{settings.path}: {why}, and {model.name} was never measured there: {', '.join(missing)}. Start "
        f"`penstock serve --config {settings.path}` once, or leave these keys out with --ignore "
        f"{REPLICAS},{MEMORY}"
    )


def _check_room(models: Sequence[ServedModel]) -> None:
    for model in models:
        least = model.replicas.least if model.replicas else 0
        if least > len(model.slices):
            raise SimulateRequestError(
                f"--slices {len(model.slices)}: {model.name} has at least {least} replicas, one to a slice; "
                f"expected --slices {least} or more, or --ignore {REPLICAS}"
            )
