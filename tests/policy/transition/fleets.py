"""Fleets and placements at random, for transitions: nothing here knows how any is planned."""

from dataclasses import replace
from random import Random

from serving.policy.placement.terms.check import cycle_us, device_faults
from serving.policy.placement.terms.geometry import Geometry, MigProfile
from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    Parts,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share

GIB = 1 << 30

MIG: Geometry = (
    MigProfile(19, "1g.10gb", (0, 1, 2, 3, 4, 5, 6), 1, 7, 9.5, 14),
    MigProfile(14, "2g.20gb", (0, 2, 4), 2, 3, 19.5, 28),
    MigProfile(9, "3g.40gb", (0, 4), 4, 2, 39.25, 42),
    MigProfile(5, "4g.40gb", (0,), 4, 1, 39.25, 56),
    MigProfile(0, "7g.80gb", (0,), 8, 1, 78.75, 98),
)
"""Of an A100 80 GB, without the instance of one compute and two memory slices."""

MIG_SHARES = tuple(Share("mig", float(each.name[0]), each.name) for each in MIG)
MPS_SHARES = tuple(Share("mps", float(amount)) for amount in (10, 20, 30, 40, 50, 70, 100))
ROWS = (1, 2, 4, 8, 16)


def fleet(random: Random, devices_max: int = 6, models_max: int = 4) -> PlacementProblem:
    """One or two pools, some models; every model may be on every device."""
    pools, number = [], 0
    for kind in random.sample(("mig", "mps"), random.randint(1, 2)):
        count = random.randint(1, max(1, devices_max // 2))
        domains = random.randint(1, 3)
        devices = tuple(
            PlacementDevice(f"{kind}-{place}", f"host-{(number + place) % domains}") for place in range(count)
        )
        number += count
        if kind == "mig":
            pools.append(Pool("a", "A100", Instances(MIG), devices))
        else:
            parts = Parts("mps", 100, random.choice((0, 0, 4)))
            pools.append(Pool("b", "B", parts, devices, memory_bytes=random.randint(16, 40) * GIB))
    demands = tuple(demand(random, f"m{place}") for place in range(random.randint(1, models_max)))
    return PlacementProblem(demands, tuple(pools))


def demand(random: Random, model: str) -> Demand:
    """A model of one or two variants with an option for every share."""
    slo_us = random.choice((50_000, 100_000, 200_000))
    options = []
    for variant in ("fp32", "fp16")[: random.randint(1, 2)]:
        row_us, fixed_us = random.uniform(500, 4000), random.uniform(500, 4000)
        memory, pressure = random.randint(1, 12) * GIB, random.choice((0.0, 0.0, 0.1, 0.3))
        sensitivity = random.choice((0.0, 0.5, 1.0))
        for share in (*MIG_SHARES, *MPS_SHARES):
            part = share.amount / (7 if share.kind == "mig" else 100)
            curve = tuple((rows, (fixed_us + rows * row_us) / part**0.6) for rows in ROWS)
            kind = "A100" if share.kind == "mig" else "B"
            felt = (0.0, 0.0) if share.kind == "mig" else (pressure, sensitivity)
            options.append(Option(kind, share, variant, curve, memory, pressure=felt[0], sensitivity=felt[1]))
    return Demand(model, 1.0, slo_us, tuple(options), random.choice((1, 1, 2)))


def filled(random: Random, problem: PlacementProblem, fullness: float) -> Placement:
    """A placement at random: on each device some slices that fit, on some devices none."""
    found: dict[str, tuple[Slot, ...]] = {}
    for device, pool in problem.pool_of.items():
        slots: tuple[Slot, ...] = ()
        attempts = random.choice((2, 6, 20)) if random.random() < fullness else 0
        for _ in range(attempts):
            slot = at_random(random, problem, pool)
            more = carrying(problem, pool, (*slots, slot)) if slot else None
            slots = more or slots
        if slots:
            found[device] = slots
    return found


def at_random(random: Random, problem: PlacementProblem, pool: Pool) -> Slot | None:
    """A slice with one model, sometimes two or three."""
    shares = MIG_SHARES if pool.division.kind == "mig" else MPS_SHARES
    share = random.choice(shares)
    start = -1
    if isinstance(pool.division, Instances):
        profile = pool.division.profile(share)
        assert profile is not None
        start = random.choice(profile.starts)
    demands = random.sample(problem.demands, min(len(problem.demands), random.choice((1, 1, 1, 2, 3))))
    residents = []
    for each in demands:
        option = random.choice([option for option in each.options if option.share == share])
        rows = random.choice(ROWS[: random.randint(1, len(ROWS))])
        residents.append(PlacedReplica(each.model, option, rows, 0.0))
    return Slot(share, tuple(residents), start)


def carrying(problem: PlacementProblem, pool: Pool, slots: tuple[Slot, ...]) -> tuple[Slot, ...] | None:
    """The same slices with what each replica carries beside the others; None where it is no placement."""
    found = []
    for place, slot in enumerate(slots):
        others = [*slots[:place], *slots[place + 1 :]] if isinstance(pool.division, Parts) else []
        whole_us, _ = cycle_us(slot, others)
        found.append(
            replace(
                slot, residents=tuple(replace(r, capacity=r.rows * 1e6 / whole_us) for r in slot.residents)
            )
        )
    return None if [*device_faults(problem, pool, found)] else tuple(found)


def altered(random: Random, problem: PlacementProblem, old: Placement, share: float) -> Placement:
    """Some devices filled anew, on others a slice more or less or other batches."""
    found = dict(old)
    fresh = filled(random, problem, 0.9)
    for device, pool in problem.pool_of.items():
        if random.random() >= share:
            continue
        slots = found.pop(device, ())
        what = random.choice(("fresh", "less", "more", "sized", "swapped"))
        if what == "fresh":
            slots = fresh.get(device, ())
        elif what == "less" and slots:
            gone = random.randrange(len(slots))
            slots = carrying(problem, pool, (*slots[:gone], *slots[gone + 1 :])) or slots
        elif what == "more" and (slot := at_random(random, problem, pool)):
            slots = carrying(problem, pool, (*slots, slot)) or slots
        elif what == "sized":
            sized = tuple(
                replace(slot, residents=tuple(replace(r, rows=random.choice(ROWS)) for r in slot.residents))
                for slot in slots
            )
            slots = carrying(problem, pool, sized) or slots
        elif what == "swapped" and slots:
            place = random.randrange(len(slots))
            slot = at_random(random, problem, pool)
            if slot:
                slots = carrying(problem, pool, (*slots[:place], slot, *slots[place + 1 :])) or slots
        if slots:
            found[device] = slots
    return found


def pair(
    random: Random, devices_max: int = 6, models_max: int = 4
) -> tuple[PlacementProblem, Placement, Placement]:
    """A fleet and two placements on it, alike or not."""
    problem = fleet(random, devices_max, models_max)
    old = filled(random, problem, random.choice((0.5, 0.8, 1.0)))
    if random.random() < 0.5:
        return problem, old, filled(random, problem, random.choice((0.5, 0.8, 1.0)))
    return problem, old, altered(random, problem, old, random.choice((0.3, 0.6, 1.0)))


def aged(random: Random, problem: PlacementProblem) -> PlacementProblem:
    """What is known later: models hold more or less, SLOs are tighter, memory is scarcer, models are gone."""
    demands = []
    for each in problem.demands:
        held = [int(one.memory_bytes * random.choice((0.5, 1, 1.5))) for one in each.options]
        options = (replace(one, memory_bytes=gib) for one, gib in zip(each.options, held, strict=True))
        slo_us = each.slo_us * random.choice((0.3, 0.6, 1))
        demands.append(replace(each, slo_us=slo_us, options=tuple(options)))
    pools = (replace(each, memory_bytes=int(each.memory_bytes * 0.8)) for each in problem.pools)
    return PlacementProblem(tuple(demands[: random.randint(1, len(demands))]), tuple(pools))


def few(random: Random) -> tuple[PlacementProblem, Placement, Placement]:
    """Up to three devices of one kind with some large slices, one replica on each, and two placements."""
    kind, count, domains = random.choice(("mig", "mps")), random.randint(1, 3), random.randint(1, 2)
    devices = tuple(PlacementDevice(f"{kind}-{place}", f"host-{place % domains}") for place in range(count))
    if kind == "mig":
        pool, shares = Pool("a", "A100", Instances(MIG), devices), MIG_SHARES[1:4]
    else:
        pool = Pool("b", "B", Parts("mps", 100), devices, memory_bytes=random.randint(10, 30) * GIB)
        shares = tuple(random.sample([each for each in MPS_SHARES if each.amount >= 30], 2))
    demands = []
    for place in range(random.randint(1, 3)):
        one = demand(random, f"m{place}")
        variant = one.options[0].variant
        options = tuple(each for each in one.options if each.variant == variant and each.share in shares)
        demands.append(replace(one, options=options))
    problem = PlacementProblem(tuple(demands), (pool,))
    return problem, _offered(random, problem, pool), _offered(random, problem, pool)


def _offered(random: Random, problem: PlacementProblem, pool: Pool) -> Placement:
    """Devices with what the models' best offers are."""
    found: dict[str, tuple[Slot, ...]] = {}
    offers = [(each.model, offer) for each in problem.demands for offer in each.offers]
    for device in pool.devices:
        slots: tuple[Slot, ...] = ()
        for _ in range(random.choice((0, 2, 8, 8)) if offers else 0):
            model, offer = random.choice(offers)
            starts: tuple[int, ...] = (-1,)
            if isinstance(pool.division, Instances):
                profile = pool.division.profile(offer.option.share)
                starts = profile.starts if profile else ()
            resident = PlacedReplica(model, offer.option, offer.rows, 0.0)
            slot = Slot(offer.option.share, (resident,), random.choice(starts))
            slots = carrying(problem, pool, (*slots, slot)) or slots
        if slots:
            found[device.name] = slots
    return found
