"""Decisions to be shown: of a fleet of GPUs divided by MIG and machines divided by cores, and of a large
one."""

from dataclasses import replace
from math import inf

from router.verbs.place.view.figures import ModelFigures, models
from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.steps import steps
from serving.policy.placement.terms.geometry import Geometry, MigProfile
from serving.policy.placement.terms.moves import Moves, moves
from serving.policy.placement.terms.plan import PlacedReplica, Placement, PlacementPlan, Slot, cost
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.policy.transition.steps import (
    Address,
    Create,
    Destroy,
    Drain,
    LoadStep,
    RouteStep,
    Sizing,
    Transition,
    UnloadStep,
)
from serving.values.slice_specs import Share

GPU, CPU = "gpu-nvidia-a100-sxm4-80gb", "cpu-amd-epyc-f25m17"
GEOMETRY: Geometry = (
    MigProfile(19, "1g.10gb", (0, 1, 2, 3, 4, 5, 6), 1, 7, 9.5, 14),
    MigProfile(14, "2g.20gb", (0, 2, 4), 2, 3, 19.5, 28),
    MigProfile(9, "3g.40gb", (0, 4), 4, 2, 39.25, 42),
    MigProfile(5, "4g.40gb", (0,), 4, 1, 39.25, 56),
    MigProfile(0, "7g.80gb", (0,), 8, 1, 79.0, 98),
)
RESERVE = 0.2


def mig(name: str) -> Share:
    """The share that a MIG profile's name means."""
    return Share("mig", float(name[0]), name)


def cores(count: int) -> Share:
    """So many."""
    return Share("cores", float(count))


def option(kind: str, share: Share, variant: str, row_us: float) -> Option:
    """A batch takes as long as five rows beside its own, less on a larger share."""
    speed = share.amount**0.8
    curve = tuple((rows, row_us * (5 + rows) / speed) for rows in (1, 2, 4, 8, 16, 32))
    return Option(kind, share, variant, curve, memory_bytes=1 << 30, load_us=500_000)


def demand(model: str, asked: float, slo_ms: int, row_us: float, domains_min: int = 1) -> Demand:
    """What is `asked` with the reserve, to run on a GPU, or seven times slower on cores."""
    options = [option(GPU, mig(each.name), "fp16", row_us) for each in GEOMETRY]
    options += [option(CPU, cores(count), "int8", 7 * row_us) for count in (1, 2, 4, 8)]
    return Demand(model, asked * (1 + RESERVE), slo_ms * 1000, tuple(options), domains_min)


def pools(gpus: int, machines: int) -> tuple[Pool, ...]:
    """Two GPUs a host; each machine a domain of its own."""
    cards = tuple(PlacementDevice(f"gpu-{number}", f"host-{number // 2}") for number in range(gpus))
    nodes = tuple(PlacementDevice(f"node-{number}", f"rack-{number}") for number in range(machines))
    return (
        Pool("gpu", GPU, Instances(GEOMETRY), cards, 1.45, 80 << 30),
        Pool("node", CPU, Parts("cores", 16.0), nodes, 0.3, 64 << 30),
    )


def slot(problem: PlacementProblem, share: Share, *names: str, start: int = -1) -> Slot:
    """Those models on a slice, each with its best batch there."""
    found = []
    for name in names:
        offer = next(each for each in problem.demand_of[name].offers if each.option.share == share)
        found.append(PlacedReplica(name, offer.option, offer.rows, offer.throughput / len(names)))
    return Slot(share, tuple(found), start)


FLEET = PlacementProblem(
    (
        demand("minilm", 1_150, 100, 1_800, domains_min=2),
        demand("bert-large-uncased", 130, 250, 6_600),
        demand("digits", 14_000, 25, 240),
        demand("simple", 4_000, 25, 120),
    ),
    pools(4, 2),
)
BEFORE: Placement = {
    "gpu-0": (slot(FLEET, mig("7g.80gb"), "minilm", start=0),),
    "gpu-1": (slot(FLEET, mig("7g.80gb"), "bert-large-uncased", "simple", start=0),),
    "gpu-2": (slot(FLEET, mig("7g.80gb"), "digits", start=0),),
    "node-0": (slot(FLEET, cores(8), "minilm"),),
}
AFTER: Placement = {
    "gpu-0": (
        slot(FLEET, mig("3g.40gb"), "minilm", start=4),
        slot(FLEET, mig("2g.20gb"), "bert-large-uncased", start=0),
        slot(FLEET, mig("1g.10gb"), "digits", "simple", start=2),
    ),
    "gpu-2": (slot(FLEET, mig("7g.80gb"), "digits", start=0),),
    "node-1": (
        slot(FLEET, cores(8), "minilm"),
        slot(FLEET, cores(4), "digits", "simple"),
        slot(FLEET, cores(1), "digits"),
    ),
}
OLD_MINILM = Address("gpu-0", 0, 0)
SIZING = Sizing(Address("gpu-2", 0, 0), BEFORE["gpu-2"][0].residents[0], AFTER["gpu-2"][0].residents[0])
OF_8_CORES, OF_MINILM = AFTER["node-1"][0], BEFORE["gpu-0"][0].residents[0]
TRANSITION = Transition(
    (
        (Create("node-1", 0, cores(8), -1), Create("node-1", 1, cores(4), -1)),
        (LoadStep(Address("node-1", 0, 0), OF_8_CORES.residents[0]),),
        (
            RouteStep((Address("node-1", 0, 0),), (OLD_MINILM,), (SIZING,)),
        ),
        (Drain(OLD_MINILM),),
        (UnloadStep(OLD_MINILM, OF_MINILM),),
        (Destroy("gpu-0", 0, mig("7g.80gb"), 0),),
    )
)  # fmt: skip
STEPS = steps(BEFORE, TRANSITION)


def told(
    problem: PlacementProblem, placement: Placement, attainments: tuple[float, ...]
) -> tuple[ModelFigures, ...]:
    """What is asked is the rate without the reserve; p99 is of the SLO what a good share leaves."""
    found = models(problem, placement, {each.model: each.rate / (1 + RESERVE) for each in problem.demands})
    return tuple(
        replace(each, attainment=share, p99_ms=each.slo_ms * (0.6 if share > 0.99 else 1.3))
        for each, share in zip(found, attainments, strict=True)
    )


GOOD = (0.9985, 0.9931, 0.9958, 1.0)
CHANGED = PlaceReport(
    problem=FLEET,
    before=BEFORE,
    after=AFTER,
    plan=PlacementPlan(AFTER, cost(FLEET, AFTER), 2.91, "integer program"),
    taken=True,
    reason="it saves 1.15 in 3600 s, starting 6 replicas costs 0.0412",
    models=told(FLEET, AFTER, GOOD),
    attainment=0.99,
    reserve=RESERVE,
    priced=True,
    moves=moves(BEFORE, AFTER),
    steps=STEPS,
    busy={"gpu-0/mig:3g.40gb@4": 0.61},
    notes=("all figures of minilm are of rows of the largest size, up to 512",),
    premises=(("settings", "penstock.yaml"), ("rates", "minilm=1300,bert-large-uncased=130")),
)
KEPT = replace(
    CHANGED,
    after=BEFORE,
    taken=False,
    reason="it saves only 1.15 in 3600 s, starting 6 replicas costs 2.3",
    models=told(FLEET, BEFORE, GOOD),
    steps=(),
)
FIRST = replace(CHANGED, before={}, reason="nothing is in place yet", moves=moves({}, AFTER), steps=())
NOTHING = replace(
    FIRST,
    problem=PlacementProblem((), FLEET.pools),
    after={},
    plan=PlacementPlan({}, 0.0, 0.0, "greedy"),
    models=(),
    moves=Moves(),
)


def large(devices: int = 1_000) -> PlaceReport:
    """A fleet of so many GPUs, four models each with as many layouts as there are pairs of them."""
    names = [f"model-{number:02}" for number in range(12)]
    demands = tuple(demand(name, 900.0 * devices / 12, 100, 300) for name in names)
    problem = PlacementProblem(demands, pools(devices, 3))
    placement: dict[str, tuple[Slot, ...]] = {}
    for number in range(devices - 5):
        one, other = names[number % 12], names[number * number % 11]
        placement[f"gpu-{number}"] = (
            slot(problem, mig("4g.40gb"), one, start=0),
            slot(problem, mig("3g.40gb"), other, start=4),
        )
    return replace(
        FIRST,
        problem=problem,
        after=placement,
        plan=PlacementPlan(
            placement, cost(problem, placement), cost(problem, placement) * 0.99, "price and round"
        ),
        models=told(problem, placement, (0.9995,) * 12),
        moves=moves({}, placement),
    )


def foretold(*attainments: float, shown: PlaceReport = CHANGED) -> PlaceReport:
    """With other predictions."""
    return replace(shown, models=told(shown.problem, shown.after, attainments))


def lacking() -> PlaceReport:
    """With a tenth more of bert asked than is carried with the reserve."""
    demands = tuple(
        replace(each, rate=221.1) if each.model.startswith("bert") else each for each in FLEET.demands
    )
    problem = PlacementProblem(demands, FLEET.pools)
    plan = PlacementPlan(AFTER, cost(problem, AFTER), inf, "greedy", short={"bert-large-uncased": 20.1})
    return replace(CHANGED, problem=problem, plan=plan, models=told(problem, AFTER, GOOD))
