"""What a placement on a running gateway must do without: lost slices, and models whose loads fail."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from router.settings.values.problems import unknown_name
from router.verbs.place.live.applying import Running, as_running
from router.verbs.place.question.asked import PlacementTask
from router.verbs.place.question.fleet import CPU
from router.verbs.place.question.lost_parts import lost_part
from router.verbs.place.question.standing import hosts_of
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.remaining import Outage, remaining
from serving.policy.placement.terms.geometry import Layout
from serving.policy.placement.terms.problem import Parts
from serving.values.slice_specs import Share, SliceSpec

AT = "@"


@dataclass(frozen=True, slots=True)
class Outages:
    """`lost`: names of slices. `failing`: (model, place) of loads that fail.

    A place is a slice, or a share such as `cores:2` where a slice of that share is there no more.
    """

    lost: tuple[str, ...] = ()
    failing: tuple[tuple[str, str], ...] = ()

    @property
    def options(self) -> Iterator[str]:
        """The words with which `penstock place` does without the same."""
        if self.lost:
            yield from ("--without", ",".join(self.lost))
        if self.failing:
            yield from ("--not", ",".join(f"{model}{AT}{place}" for model, place in self.failing))


def read_outages(lost: Sequence[str], failing: Sequence[str]) -> Outages:
    """Return what the options --without and --not say. SimulateRequestError if a pair has no `@`."""
    pairs = []
    for text in _parts(failing):
        model, at, place = text.partition(AT)
        if not (model and at and place):
            raise SimulateRequestError(f"--not: got {text!r}, expected MODEL@SLICE, such as digits@cpu-1")
        pairs.append((model, place))
    return Outages(tuple(dict.fromkeys(_parts(lost))), tuple(dict.fromkeys(pairs)))


def _parts(texts: Sequence[str]) -> Iterator[str]:
    return (part.strip() for text in texts for part in text.split(",") if part.strip())


def left(asked: PlacementTask, running: Running, outages: Outages) -> tuple[PlacementTask, Running]:
    """Return the question and what runs, both without the outages.

    A model gets no slice of a share on which its load fails, unless it is on another such slice.
    SimulateRequestError if a name is unknown, or if nothing is left.
    """
    hosts = hosts_of(asked)
    if not hosts:
        raise SimulateRequestError(
            "--without and --not take slices of this machine or of rehearsed devices; the devices are others"
        )
    slices = {each.name: each for each in running.slices}
    _check(outages, running, slices)
    outages = replace(outages, lost=_with_instances(outages.lost, slices))
    failing = {
        (_kind(asked, share), model, share)
        for model, place in outages.failing
        if (share := _share(place, slices)) and not _elsewhere(model, share, running, outages)
    }
    problem = remaining(asked.problem, replace(_lost(asked, hosts, slices, outages), failing=failing))
    if not problem.pools:
        raise SimulateRequestError(f"all devices are lost with {', '.join(outages.lost)}")
    there = _without(running, outages)
    notes = (*asked.notes, *_notes(outages))
    return as_running(replace(asked, problem=problem, notes=notes), there), there


def _lost(
    asked: PlacementTask, hosts: Mapping[str, str], slices: dict[str, SliceSpec], outages: Outages
) -> Outage:
    """Return the outage that the lost slices cause: their cores, and their parts of GPUs.

    Raises SimulateRequestError if all cores are lost and nothing else can take their place.
    """
    gone = {slices[name].device for name in outages.lost}
    devices, amounts, instances = set[str](), dict[str, float](), dict[str, Layout]()
    for device in (device for device, host in hosts.items() if host in gone and host != CPU):
        there = [each for each in slices.values() if each.device == hosts[device]]
        part = lost_part(asked.problem.pool_of[device].division, there, outages.lost)
        if part is None:
            devices.add(device)
        elif isinstance(part, float):
            amounts[device] = part
        else:
            instances[device] = part
    for device in (device for device, host in hosts.items() if host == CPU and CPU in gone):
        division, amount = asked.problem.pool_of[device].division, _lost_cores(slices, outages.lost)
        if isinstance(division, Parts) and amount >= division.total:
            if len(asked.problem.pool_of) == 1:
                raise SimulateRequestError(f"all cores of {device} are lost with {', '.join(outages.lost)}")
            devices.add(device)
        amounts[device] = float(amount)
    return Outage(devices, amounts, instances)


def _with_instances(lost: Sequence[str], slices: Mapping[str, SliceSpec]) -> tuple[str, ...]:
    """Return the lost slices, and the other processes of their MIG instances: an instance is planned as a
    whole."""
    instances = {(slices[name].device, slices[name].instance) for name in lost if slices[name].instance}
    beside = (name for name, each in slices.items() if (each.device, each.instance) in instances)
    return tuple(dict.fromkeys((*lost, *beside)))


def _kind(asked: PlacementTask, share: Share) -> str:
    """Return the kind of the devices that have such shares."""
    found = (
        pool.kind for pool in asked.problem.pools if pool.kind.startswith("cpu-") == (share.kind == "cores")
    )
    return next(found, "")


def _check(outages: Outages, running: Running, slices: dict[str, SliceSpec]) -> None:
    for name in outages.lost:
        if name not in slices:
            raise SimulateRequestError(f"--without: {unknown_name('unknown slice', name, [*slices])}")
    for model, place in outages.failing:
        if model not in running.models:
            raise SimulateRequestError(f"--not: {unknown_name('unknown model', model, [*running.models])}")
        if _share(place, slices) is None:
            raise SimulateRequestError(f"--not: {unknown_name('unknown slice', place, [*slices])}")


def _share(place: str, slices: dict[str, SliceSpec]) -> Share | None:
    """Return the share of a slice, or the one that the text writes; None if it is neither."""
    if place in slices:
        return slices[place].share
    try:
        return Share.parse(place)
    except ValueError:
        return None


def _elsewhere(model: str, share: Share, running: Running, outages: Outages) -> bool:
    """Return whether the model is on a slice of that share that is not lost and loads it."""
    return any(
        each.name in running.models[model]
        and each.share == share
        and each.name not in outages.lost
        and (model, each.name) not in outages.failing
        for each in running.slices
    )


def _lost_cores(slices: dict[str, SliceSpec], lost: Sequence[str]) -> int:
    """Return how many cores no slice has any more; a slice without cores of its own has one a thread."""
    here = {name: each for name, each in slices.items() if each.device == CPU}
    kept = {core for name, each in here.items() if name not in lost for core in each.cores}
    missing = [here[name] for name in lost if name in here]
    gone = {core for each in missing for core in each.cores}
    return len(gone - kept) + sum(each.threads for each in missing if not each.cores)


def _without(running: Running, outages: Outages) -> Running:
    """Return what runs without lost slices; a model is not on a slice where its load fails."""
    told = running.told
    slices = [each for each in told["slices"] if each["name"] not in outages.lost]
    models = {
        name: each
        | {
            "slices": [
                one
                for one in each["slices"]
                if one not in outages.lost and (name, one) not in outages.failing
            ]
        }
        for name, each in told["models"].items()
    }
    return replace(
        running,
        told=told | {"slices": slices, "models": models},
        away=running.away | {*outages.lost},
        failing=running.failing | {*outages.failing},
    )


def _notes(outages: Outages) -> Iterator[str]:
    if outages.lost:
        yield f"planned without {', '.join(outages.lost)}"
    for model, place in outages.failing:
        yield f"planned without {model} on {place}, where it does not load"
