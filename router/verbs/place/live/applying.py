"""A plan as the body of `PUT /v2/placement`: from what a gateway runs to what it is to run, and how."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from router.management.operations.slice_json import read_slice, told_slice
from router.settings import Settings
from router.verbs.place.question.asked import PlacementTask
from router.verbs.place.question.current import placed, placed_slices
from router.verbs.place.question.fleet import CPU
from router.verbs.place.question.standing import free_names, hosts_of, own_slots
from router.verbs.place.view.words import listed
from router.verbs.simulate.traffic import SimulateRequestError
from serving.control.rollouts.rollout_steps import rollout_steps
from serving.control.state.desired import DesiredSlice
from serving.planning.deciding import Decision
from serving.planning.parts import placed as placed_parts
from serving.policy.placement.terms.moves import same_slices
from serving.policy.placement.terms.plan import Placement, Slot, capacities
from serving.policy.transition.steps import Create, Transition, TransitionRefused
from serving.values.slice_specs import Share, SliceSpec

Json = dict[str, Any]

UNSAYABLE = (
    "nothing is applied: a gateway has slices of whole cores of this machine's CPU, of its GPUs and of "
    "rehearsed devices; the plan has others, or none"
)
SHARED = "there is no way without sharing cores: while it is applied, old slices and new ones share them ({})"
DRAINED = "{} changes its kind of share: the gateway drains such a GPU first, one after the other"


@dataclass(frozen=True, slots=True)
class Running:
    """What a gateway has: `told`, the body of GET /v2/placement.

    `away`: names that no new slice gets. `failing`: (model, slice) of loads that fail there.
    """

    told: Json
    away: frozenset[str] = frozenset()
    failing: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> "Running":
        """Return what a gateway has if these settings are in force."""
        slices = [told_slice(each) for each in settings.slices]
        models = {each.name: {"slices": list(each.slices)} for each in settings.models}
        return cls({"slices": slices, "models": models})

    @property
    def slices(self) -> tuple[SliceSpec, ...]:
        """In its order."""
        return tuple(map(read_slice, self.told["slices"]))

    @property
    def models(self) -> dict[str, tuple[str, ...]]:
        """The slices of each."""
        return {name: tuple(each["slices"]) for name, each in self.told["models"].items()}

    def over(self, settings: Settings) -> Settings:
        """Return the settings with what runs; models that do not run are on no slice."""
        models = tuple(replace(each, slices=self.models.get(each.name, ())) for each in settings.models)
        return replace(settings, slices=self.slices, models=models)


def as_running(asked: PlacementTask, running: Running) -> PlacementTask:
    """Return the same question, where what is in place today is what runs."""
    present, notes = placed(running.over(asked.settings), asked.problem)
    stale = {*placed(asked.settings, asked.problem)[1]}
    return replace(asked, current=present, notes=(*(n for n in asked.notes if n not in stale), *notes))


def with_sharing(asked: PlacementTask, decision: Decision) -> tuple[PlacementTask, Decision]:
    """Return the task and the decision with an empty transition if none is found for lack of room. Workers of
    old and new slices can share cores, slower, for the moment of a move.

    A GPU has no two kinds of share at once. There the gateway finds the way
    (serving/control/rollouts/breaking.py).
    """
    if decision.taken and (drained := _drained(asked, decision.plan.placement)):
        note = DRAINED.format(listed(drained))
        return replace(asked, notes=(*asked.notes, note)), replace(decision, transition=Transition())
    if not (decision.taken and isinstance(decision.transition, TransitionRefused)):
        return asked, decision
    hosts = hosts_of(asked)
    there = own_slots(asked, decision.plan.placement)
    if not there or any(hosts[device] != CPU for device in (*there, *asked.current)):
        return asked, decision  # a GPU has no room for two layouts at once
    note = SHARED.format(decision.transition.reason)
    return replace(asked, notes=(*asked.notes, note)), replace(decision, transition=Transition())


def _drained(asked: PlacementTask, plan: Placement) -> list[str]:
    """Return the GPUs of this gateway that have another kind of share now than they are to have."""
    hosts = hosts_of(asked)
    return [
        device
        for device, slots in plan.items()
        if hosts.get(device, CPU) != CPU and _kinds(slots) and _kinds(asked.current.get(device, ()))
        and _kinds(slots) != _kinds(asked.current[device])
    ]  # fmt: skip


def _kinds(slots: Sequence[Slot]) -> set[str]:
    return {slot.share.kind for slot in slots}


def body(asked: PlacementTask, decision: Decision, running: Running) -> tuple[Json, list[str]]:
    """Return (the body, sentences on what the plan does not say). Raises SimulateRequestError if no gateway
    can run the plan."""
    placement = decision.plan.placement
    slots = own_slots(asked, placement)
    if not slots:
        raise SimulateRequestError(UNSAYABLE)
    absent = {model for there in slots.values() for slot in there for model in _names(slot)} - {
        *running.models
    }
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        named = listed(sorted(absent))
        raise SimulateRequestError(
            f"nothing is applied: {named} {verb} planned, and the gateway does not serve {named}"
        )
    steps = _steps(asked, decision, running)
    if steps:
        *between, last = steps
        final = [(each.spec, [one.model for one in each.replicas]) for each in last]
    else:
        between = []
        final = _named(asked, slots, running)
    models, notes = _models(asked, decision, running, final)
    told: Json = {"slices": [_slice(spec) for spec, _ in final], "models": models}
    if between:
        told["steps"] = [
            [
                _slice(each.spec) | {"models": {one.model: one.routed for one in each.replicas}}
                for each in state
            ]
            for state in between
        ]
    return told, notes


def _slice(spec: SliceSpec) -> Json:
    if spec.device == CPU:
        return {"name": spec.name, "cores": len(spec.cores), "threads": spec.threads}
    told = {"name": spec.name, "device": spec.device, "share": str(spec.share), "threads": spec.threads}
    return told | ({"instance": spec.instance} if spec.instance else {})


def _spec(name: str, device: str, kind: str, share: Share) -> SliceSpec:
    """Return a new slice. One of cores has as many threads; which cores, the gateway says."""
    if device == CPU:
        return SliceSpec(name, tuple(range(int(share.amount))), int(share.amount))
    return SliceSpec(name, (), device=device, part=share, kind=kind)


def _steps(asked: PlacementTask, decision: Decision, running: Running) -> Sequence[Sequence[DesiredSlice]]:
    """Return the states after each group of the transition, the last to stay.

    Return () if the transition does not begin with exactly what runs: other models or slices would be in its
    way.
    """
    way, old = decision.transition, asked.current
    if not isinstance(way, Transition) or not way.groups or not old:
        return ()
    hosts, specs = hosts_of(asked), placed_slices(running.over(asked.settings), asked.problem)
    if not _exact(asked, decision, running, specs):
        return ()
    names = free_names({each.name for each in running.slices} | running.away)
    kinds = {device: asked.problem.pool_of[device].kind for device in hosts}

    def spec_of(step: Create, _name: str) -> SliceSpec:
        host = hosts[step.device]
        return _spec(next(names[host]), host, kinds[step.device], step.share)

    return rollout_steps(old, specs, way, spec_of).states


def _exact(
    asked: PlacementTask,
    decision: Decision,
    running: Running,
    specs: Mapping[str, tuple[SliceSpec, ...]],
) -> bool:
    """Return whether what runs is exactly what the transition begins with, and all of its slices can be."""
    placement, way = decision.plan.placement, decision.transition
    there = {
        each.name: {name for name, on in running.models.items() if each.name in on} for each in running.slices
    }
    planned = {model for slots in placement.values() for slot in slots for model in _names(slot)}
    begun = {
        spec.name: slot
        for device, slots in asked.current.items()
        for spec, slot in zip(specs[device], slots, strict=True)
    }
    steps = way.steps if isinstance(way, Transition) else ()
    created = [step.share for step in steps if isinstance(step, Create)]
    return (
        not any(each.instance for each in running.slices)  # whose workers a transition has as one slice
        and all(slot.processes == 1 for slots in placement.values() for slot in slots)
        and {*begun} == {each.name for each in running.slices}
        and all(len(each.cores) == each.threads for each in running.slices if each.device == CPU)
        and all(there[name] == {*_names(slot)} for name, slot in begun.items())
        and {*running.models} == planned
        and all(share.kind != "cores" or share.amount.is_integer() for share in created)
    )


def _names(slot: Slot) -> Iterator[str]:
    return (each.model for each in slot.residents)


def _named(
    asked: PlacementTask, planned: Mapping[str, Sequence[Slot]], running: Running
) -> list[tuple[SliceSpec, list[str]]]:
    """Return the plan's slices with their models: one that runs keeps its name, others have free ones."""
    hosts, specs = hosts_of(asked), placed_slices(running.over(asked.settings), asked.problem)
    names = free_names({each.name for each in running.slices} | running.away)
    found = []
    for device, slots in planned.items():
        pairs = same_slices(asked.current.get(device, ()), slots)
        same = {after: specs[device][before] for before, after in pairs}
        kind = asked.problem.pool_of[device].kind
        for number, slot in enumerate(slots):
            kept = same.get(number)
            broken = kept is not None and (
                any((name, kept.name) in running.failing for name in _names(slot))
                or kept.share.processes != slot.processes
            )
            partial = kept is not None and kept.device == CPU and len(kept.cores) != kept.threads
            if kept is None or broken or partial:
                workers = _workers(slot, names[hosts[device]], hosts[device], kind)
            else:
                workers = [kept] if not kept.instance else _beside(kept, running)
            found += [(worker, [*_names(slot)]) for worker in workers]
    return found


def _workers(slot: Slot, names: Iterator[str], device: str, kind: str) -> list[SliceSpec]:
    """Return the new slices of a slot: one, or one for each process of an instance."""
    share = slot.share.with_processes(slot.processes)
    found = [_spec(next(names), device, kind, share) for _ in range(share.processes)]
    if share.processes == 1:
        return found
    return [replace(each, instance=found[0].name) for each in found]


def _beside(spec: SliceSpec, running: Running) -> list[SliceSpec]:
    """Return the slices of the same instance, with this one."""
    return [each for each in running.slices if each.instance == spec.instance]


def _models(
    asked: PlacementTask,
    decision: Decision,
    running: Running,
    final: Sequence[tuple[SliceSpec, Sequence[str]]],
) -> tuple[Json, list[str]]:
    """Return, for all models that run, their slices and what was planned for. A model without a place in the
    plan stays on its slices that remain, or goes where it is predicted to be least busy."""
    carried = capacities(decision.plan.placement)
    names = {spec.name for spec, _ in final}
    variants = {each.name: each.answering_variant for each in asked.settings.models}
    models: Json = {}
    unplanned: dict[tuple[str, ...], list[str]] = {}
    for model, before in running.models.items():
        on = tuple(spec.name for spec, there in final if model in there)
        models[model] = {"slices": on}
        if on:
            rate = asked.rates[model]
            models[model] |= {
                "variant": variants[model],
                "requests_per_s": rate.requests,
                "rows": rate.rows.mean,
                "capacity_rows_per_s": carried[model],
            }
        else:
            on = tuple(name for name in before if name in names) or (_idlest(asked, decision, final),)
            models[model]["slices"] = on
            unplanned.setdefault(on, []).append(model)
    notes = [
        f"not in the plan, as nothing is asked of it: {listed(several)}; kept on {listed(on)}"
        for on, several in unplanned.items()
    ]
    return models, notes


def _idlest(
    asked: PlacementTask, decision: Decision, final: Sequence[tuple[SliceSpec, Sequence[str]]]
) -> str:
    """Return the name of the slice on which least is to be computed."""
    busy = decision.prediction.busy
    parts = placed_parts(asked.problem, _own(decision.plan.placement))
    shares = [busy.get(each.name, 0.0) for each in parts for _ in each.workers]
    if len(shares) != len(final):
        return final[-1][0].name
    return min(zip(shares, (spec.name for spec, _ in final), strict=True))[1]


def _own(placement: Placement) -> Mapping[str, tuple[Slot, ...]]:
    return {device: slots for device, slots in placement.items() if slots}
