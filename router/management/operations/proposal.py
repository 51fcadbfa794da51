"""The body of `PUT /v2/placement`, held against what runs: slices with real cores, and who is on which.

    {"slices": [{"name": "cpu-1", "cores": 2, "threads": 2},
                {"name": "cuda0-1", "device": "cuda:0", "share": "mps:30"},
                {"name": "cuda1-1", "device": "cuda:1", "share": "mig:2g.35gb*2", "instance": "a"}, ...],
     "models": {"digits": {"slices": ["cpu-1"]}, ...},
     "steps": [[{"name": "cpu-1", "cores": 2, "threads": 2, "models": {"digits": true}}, ...], ...]}

The keys of a slice are those of `slice_json.py`. Slices with one `instance` are the processes of one MIG
instance, as many as their share says.

`steps`, which may be left out, are the states to go through: their slices and who is loaded there, true where
requests are sent to it. A model may say for which variant it was planned, and for which load.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import orjson

from router.management.operations.applied import PlannedFor
from router.settings import Settings
from router.settings.machine.gpus import SlicedDevice, check_devices, read_share, share_of, sliced_devices
from router.settings.served.scaling import crowding
from router.settings.values.document import FILE_BYTES_MAX, Document
from router.settings.values.fields import Count, DeviceText, Name, Names, Number, ShareText
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, SettingsError, SettingsProblem, fault, shown, unknown_name
from router.settings.values.schema import Section
from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import ServedModel

CPU: Final = "cpu"
GPU_SLICES_MAX: Final = 4096
"""Of one state; more are a mistake."""


class UnsoundError(Exception):
    """The body cannot be carried out; `reasons` are all that speak against it, a sentence each."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


class _Body(Section):
    """The whole. What is in it is read one by one, so that a fault in one hides none in another."""

    slices: list[object]
    models: dict[str, object]
    steps: list[object] | None = None


_Kind = tuple[int, int, str, str, str]
"""Cores, threads, device, share, instance."""


class _Slice(Section):
    """A slice of `cores` whole cores, or of a share of a GPU."""

    name: Name
    cores: Count | None = None
    threads: Count = 1
    device: DeviceText | None = None
    share: ShareText | None = None
    instance: DeviceText | None = None

    @property
    def core_count(self) -> int:
        """The cores that it has to itself: none on a GPU."""
        return self.cores or 0

    @property
    def _share_name(self) -> str:
        """The share as a slice that runs calls it: "whole" is "whole:1"."""
        if self.device is None:
            return ""
        try:
            return str(share_of(self.share))
        except ValueError:  # told where shares are read
            return self.share or ""

    @property
    def kind(self) -> "_Kind":
        """What a slice of that name is, wherever it appears."""
        return self.core_count, self.threads, self.device or CPU, self._share_name, self.instance or ""


class _Step(_Slice):
    """A slice of a state on the way."""

    models: dict[str, bool]


class _Model(Section):
    """A model. `variant`: the one that answers, as it was planned; figures as those of standing.Load."""

    slices: Names
    variant: str | None = None
    requests_per_s: Number | None = None
    rows: Number = 1.0
    capacity_rows_per_s: Number | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """`settings`: those in force with the slices and models as proposed; `by`: the states on the way there;
    `loads`: what it was planned for."""

    settings: Settings
    by: tuple[DesiredState, ...] = ()
    loads: Mapping[str, PlannedFor] = field(default_factory=dict)


def proposal(
    content: bytes, settings: Settings, usable: Sequence[int], lost: Collection[int] = ()
) -> Proposal:
    """Return what the body asks of the gateway with these settings. `usable`: the gateway's cores.

    A running slice that the body names unchanged keeps its cores. The other slices get cores that are free
    when they start, `lost` cores last. Raises UnsoundError with all that is wrong.
    """
    if len(content) > FILE_BYTES_MAX:
        raise UnsoundError([f"the body is too large; expected at most {FILE_BYTES_MAX >> 10} KB"])
    try:
        return _read(_findings(content, settings), settings, usable, lost)
    except SettingsError as error:  # it has more faults than are looked for
        raise UnsoundError(_reasons(error.problems)) from None


def _read(findings: Findings, settings: Settings, usable: Sequence[int], lost: Collection[int]) -> Proposal:
    findings.parse(_Body)
    _check_counts(findings, len(usable))
    slices = [findings.parse(_Slice, ("slices", place)) for place in range(_length(findings, "slices"))]
    models = _models(findings, settings)
    steps = [
        [findings.parse(_Step, ("steps", place, at)) for at in range(_length(findings, "steps", place))]
        for place in range(_length(findings, "steps"))
    ]
    known = {each.name: _kind(each) for each in settings.slices}
    _check_slices(findings, ("slices",), slices, known, len(usable))
    for place, state in enumerate(steps):
        _check_slices(findings, ("steps", place), state, known, len(usable))
    devices = _devices(findings, [(("slices",), slices), *((("steps", n), s) for n, s in enumerate(steps))])
    _check_loaded(findings, steps, settings)
    _check_limited(findings, slices, settings)
    _stop_if_any(findings)
    served = tuple(replace(each, slices=tuple(models[each.name].slices)) for each in settings.models)
    if crowded := crowding(served, [each.name for each in slices if each]):
        raise UnsoundError([crowded])
    states = [[each for each in state if each] for state in steps]
    final = [each for each in slices if each]
    specs = _dealt([*states, final], settings, usable, lost, devices)
    return Proposal(
        replace(settings, slices=tuple(specs[each.name] for each in final), models=served),
        tuple(
            DesiredState(tuple(_wanted(each, specs, served) for each in state), served) for state in states
        ),
        _loads(models),
    )


def _findings(content: bytes, settings: Settings) -> Findings:
    findings = Findings(Document(Path("placement"), _json(content), {}, {}, ()))
    findings.devices, findings.recut = settings.devices, settings.placement.recut
    return findings


def _json(content: bytes) -> object:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise UnsoundError([f"the body is no JSON: {error}"]) from None


def _length(findings: Findings, *loc: str | int) -> int:
    value = findings.document.at(loc)
    return len(value) if isinstance(value, list) else 0


def _check_counts(findings: Findings, cores: int) -> None:
    """Check the counts of slices, before anything is compared with each slice. Raises UnsoundError if there
    are too many."""
    models = findings.document.at(("models",))
    lists: list[Loc] = [("slices",), *(("steps", place) for place in range(_length(findings, "steps")))]
    lists += [("models", name, "slices") for name in (models if isinstance(models, dict) else ())]
    on_gpus = any("device" in each for each in _told_slices(findings))
    most = GPU_SLICES_MAX if on_gpus else cores
    many = [loc for loc in lists if _length(findings, *loc) > most]
    for loc in many:
        expected = f"at most {most}" + ("" if on_gpus else ", as many as there are cores here")
        findings.add(loc, fault("too many slices", _length(findings, *loc), expected))
    if many:
        _stop_if_any(findings)


def _told_slices(findings: Findings) -> Iterator[dict[object, object]]:
    slices = findings.document.at(("slices",))
    return (each for each in (slices if isinstance(slices, list) else ()) if isinstance(each, dict))


def _stop_if_any(findings: Findings) -> None:
    if reasons := _reasons(findings.problems):
        raise UnsoundError(reasons)


def _reasons(problems: Iterable[SettingsProblem]) -> dict[str, None]:
    return dict.fromkeys(f"{each.where}: {each.message}" if each.where else each.message for each in problems)


def _models(findings: Findings, settings: Settings) -> dict[str, _Model]:
    """Return those that are sound; checked against what is served and against the slices, faulty ones too."""
    several = range(_length(findings, "slices"))
    given = (findings.document.at(("slices", place, "name")) for place in several)
    names = [*dict.fromkeys(name for name in given if isinstance(name, str))]
    served = {each.name: each for each in settings.models}
    value = findings.document.at(("models",))
    sections = value if isinstance(value, dict) else {}
    found: dict[str, _Model] = {}
    for name in sections:
        if name not in served:
            findings.add(("models",), unknown_name("unknown model", name, [*served]))
        elif (section := findings.parse(_Model, ("models", name))) is not None:
            found[name] = section
            _check_model(findings, ("models", name), section, served[name], names)
    for name in served if isinstance(value, dict) else ():
        if name not in sections:
            findings.add(("models",), f"{shown(name)} is missing; expected every model that is served")
    return found


def _check_model(
    findings: Findings, loc: Loc, section: _Model, model: ServedModel, names: Sequence[str]
) -> None:
    for place, each in enumerate(section.slices):
        if each not in names:
            findings.add((*loc, "slices", place), unknown_name("unknown slice", each, names))
    if section.variant not in (None, model.answering_variant):
        what = "planned for another variant than the one that answers"
        findings.add((*loc, "variant"), fault(what, section.variant, model.answering_variant))
    for key in ("requests_per_s", "rows", "capacity_rows_per_s"):
        if (getattr(section, key) or 0.0) < 0:
            findings.add((*loc, key), fault("too small", getattr(section, key), "0 or more"))


def _check_slices(
    findings: Findings,
    loc: Loc,
    slices: Sequence[_Slice | None],
    known: dict[str, _Kind],
    cores: int,
) -> None:
    """Check one state. `known`: the kind of slice of each name, which is the same wherever it is."""
    seen: set[str] = set()
    for place, each in enumerate(slices):
        if each is None:
            continue
        if (each.cores is None) == (each.device is None):
            findings.add((*loc, place), "no slice; expected `cores`, or `device` and `share` of a GPU")
        there = known.setdefault(each.name, each.kind)
        if each.name in seen:
            findings.add((*loc, place, "name"), f"{shown(each.name)} is used twice")
        elif there != each.kind:
            what = f"cores: {there[0]}, threads: {there[1]}"
            if there[2] != CPU:
                what = f"device: {there[2]}, share: {there[3]}, threads: {there[1]}"
                what += f", instance: {there[4]}" if there[4] else ""
            findings.add(
                (*loc, place, "name"), f"{shown(each.name)} has {what}; name another slice otherwise"
            )
        seen.add(each.name)
    if not slices and isinstance(findings.document.at(loc), list):
        findings.add(loc, "empty; expected at least one slice")
    count = sum(each.core_count for each in slices if each)
    if count > cores:
        findings.add(loc, fault("no such cores here", count, f"at most {cores} in all"))


def _check_loaded(findings: Findings, steps: Sequence[Sequence[_Step | None]], settings: Settings) -> None:
    served = [each.name for each in settings.models]
    for place, state in enumerate(steps):
        for at, step in enumerate(state):
            for name in step.models if step else ():
                if name not in served:
                    findings.add(("steps", place, at, "models"), unknown_name("unknown model", name, served))


def _check_limited(findings: Findings, slices: Sequence[_Slice | None], settings: Settings) -> None:
    """Check that slices that load on demand stay: elsewhere all of their models would be loaded at once."""
    names = {each.name for each in slices if each}
    for each in settings.slices:
        if each.memory_bytes and each.name not in names:
            what = f"{shown(each.name)} is missing; it has memory_mb, of which placements know nothing"
            findings.add(("slices",), f"{what}: expected it to stay")


def _dealt(
    states: Sequence[Sequence[_Slice]],
    settings: Settings,
    usable: Sequence[int],
    lost: Collection[int],
    devices: Mapping[str, SlicedDevice],
) -> dict[str, SliceSpec]:
    """Return every slice with its cores; running slices keep their cores.

    A new slice gets cores in the state in which it appears. It gets free cores first, next cores of slices
    that end with that state, then shared cores. Lost cores come last.
    """
    found = {each.name: each for each in settings.slices}
    core_price = _core_price(settings.slices)
    before = {*found}
    for state in states:
        names = {each.name for each in state}
        stay = _held(found[name] for name in names if name in found)
        leave = _held(found[name] for name in before - names)
        for each in state:
            if each.name not in found and each.device is not None:
                found[each.name] = _on_gpu(each, devices[each.device], settings)
            elif each.name not in found:
                rank = {core: (core in lost, core in stay, core in leave, core) for core in usable}
                cores = tuple(sorted(sorted(usable, key=rank.__getitem__)[: each.core_count]))
                price = core_price * each.core_count
                found[each.name] = SliceSpec(each.name, cores, each.threads, price=price)
                stay.update(cores)
        before = names
    return found


def _devices(
    findings: Findings, states: Sequence[tuple[Loc, Sequence[_Slice | None]]]
) -> Mapping[str, SlicedDevice]:
    """Return the GPUs that the slices name. Add what no GPU can give, state by state."""
    found: dict[str, SlicedDevice] = {}
    for loc, slices in states:
        asked: list[tuple[Loc, SlicedDevice, Share]] = []
        instances: dict[str, list[tuple[Loc, str, Share]]] = {}
        for place, each in enumerate(slices):
            if each is None or each.device is None:
                continue
            at = (*loc, place)
            share = read_share(findings, at, each.share)
            if each.device not in found:
                for one in sliced_devices(findings, at, each.device)[:1]:
                    found[each.device] = one
            if share is None or each.device not in found:
                continue
            if each.instance is None or each.instance not in instances:
                asked.append((at, found[each.device], share.with_processes(1)))
            if each.instance is not None or share.processes > 1:
                instances.setdefault(each.instance or "", []).append((at, each.device, share))
        _check_instances(findings, instances)
        check_devices(findings, asked)
    return found


def _check_instances(findings: Findings, instances: Mapping[str, Sequence[tuple[Loc, str, Share]]]) -> None:
    """Check that the slices of one instance, by its name, are all of its processes."""
    for name, slices in instances.items():
        at, device, share = slices[0]
        if not name:
            message = f"{share} is of one process of {share.processes}; expected `instance`, their one name"
            findings.add((*at, "share"), message)
        elif other := next((each for each in slices if each[1:] != (device, share)), None):
            message = f"{other[2]} of {other[1]} in instance {shown(name)} with {share} of {device}"
            findings.add((*other[0], "instance"), f"{message}; expected one device and one share")
        elif len(slices) != share.processes or share.processes == 1:
            expected = f"{share.processes}, as its share says" if share.processes > 1 else "mig:PROFILE*COUNT"
            found = f"{len(slices)} slices with share {share}"
            findings.add((*at, "instance"), fault(f"wrong count in instance {shown(name)}", found, expected))


def _on_gpu(each: _Slice, device: SlicedDevice, settings: Settings) -> SliceSpec:
    """Return a new slice on a GPU. Its price is the dearest of the kind now, by share."""
    share = share_of(each.share)
    alike = (
        one.price * one.share.processes / one.share.amount * share.amount / share.processes
        for one in settings.slices
        if one.kind == device.kind and one.share.kind == share.kind
    )
    spec = SliceSpec(each.name, (), each.threads, device.name, share, price=max(alike, default=0.0))
    spec = replace(spec, kind=device.kind, instance=each.instance or "")
    return replace(spec, rehearsed=device.rehearsed, rehearsal=device.rehearsal)


def _kind(spec: SliceSpec) -> _Kind:
    if spec.device == CPU:
        return len(spec.cores), spec.threads, CPU, "", ""
    return 0, spec.threads, spec.device, str(spec.share), spec.instance


def _core_price(slices: Iterable[SliceSpec]) -> float:
    """Return the price of a core of a new slice: what the dearest core costs now. A limit of cost holds there
    too."""
    on_cores = (each for each in slices if each.device == CPU)
    return max((each.price / max(len(each.cores), 1) for each in on_cores), default=0.0)


def _held(specs: Iterable[SliceSpec]) -> set[int]:
    return {core for each in specs for core in each.cores}


def _wanted(step: _Step, specs: Mapping[str, SliceSpec], models: Sequence[ServedModel]) -> DesiredSlice:
    """Return every served variant of the models there, the answering variants first."""
    pairs = [(model, variant) for model in models if model.name in step.models for variant in model.variants]
    pairs.sort(key=lambda pair: pair[1] != pair[0].answering_variant)
    replicas = (DesiredReplica(model.name, name, step.models[model.name]) for model, name in pairs)
    return DesiredSlice(specs[step.name], tuple(replicas))


def _loads(models: Mapping[str, _Model]) -> dict[str, PlannedFor]:
    """Return the loads of the models that say what they were planned for."""
    return {
        name: PlannedFor(each.requests_per_s, each.rows, each.capacity_rows_per_s)
        for name, each in models.items()
        if each.requests_per_s is not None and each.capacity_rows_per_s is not None
    }
