"""Choices: the replicas of demands and the ways to divide devices, for programs over a whole fleet."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from serving.policy.placement.formulation.division import Division, ResourceUse, divide
from serving.policy.placement.formulation.offers import Offers
from serving.policy.placement.programs import Program
from serving.policy.placement.terms.plan import PlacedReplica, Slot
from serving.policy.placement.terms.problem import Demand, Offer, Parts, PlacementProblem

PENALTY_MAX = 1e7
"""The highest penalty, in devices. Solvers lose their precision with numbers that differ by more."""

REPLICA = 1e-3
"""What one more replica weighs, as a part of a device, where a program takes as little of devices as it
can."""

Prices = tuple[tuple[float, ...], ...]
"""For each resource of each division, what one more of it would save."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A way to carry something of a demand: replicas run as `offer` says on devices of a pool.

    `demand` and `division` are places in `Choices`. `taken`: what each replica takes of a device.
    """

    demand: int
    division: int
    offer: Offer
    taken: ResourceUse


@dataclass(frozen=True, slots=True)
class Choices:
    """All choices, with the demands and the divisions that they refer to.

    `demands`: those that something can carry. `hopeless`: the others that ask for anything. `divisions`: of
    the pools that can carry something.
    """

    demands: tuple[Demand, ...]
    hopeless: tuple[Demand, ...]
    divisions: tuple[Division, ...]
    each: tuple[DeviceChoice, ...]

    @property
    def fleet_price(self) -> float:
        """The price for an hour of all devices of the divisions' pools."""
        return sum(each.pool.price * len(each.pool.devices) for each in self.divisions)

    def slot(self, choice: DeviceChoice) -> Slot:
        """Return a slice with such a replica alone on it."""
        offer = choice.offer
        model = self.demands[choice.demand].model
        return Slot(offer.option.share, (PlacedReplica(model, offer.option, offer.rows, offer.throughput),))


def choices(problem: PlacementProblem, between: bool = False) -> Choices:
    """Return all choices that are worth having, of all pools.

    `between`: batches of replicas in turns may have any number of rows. Only devices that are divided by
    amounts have such replicas.
    """
    asked = [demand for demand in problem.demands if demand.rate > 0]
    offered = []
    for pool in problem.pools:
        offers = Offers(pool, between and isinstance(pool.division, Parts))
        here = [(place, offer) for place, demand in enumerate(asked) for offer in offers.of(demand)]
        if here and pool.devices:
            offered.append((divide(pool, dict.fromkeys(offer.option.share for _, offer in here)), here))
    carried = sorted({place for _, here in offered for place, _ in here})
    number_of = {place: number for number, place in enumerate(carried)}
    return Choices(
        tuple(asked[place] for place in carried),
        tuple(demand for place, demand in enumerate(asked) if place not in number_of),
        tuple(division for division, _ in offered),
        tuple(
            DeviceChoice(number_of[place], number, offer, taken)
            for number, (division, here) in enumerate(offered)
            for (place, offer), taken in zip(here, _taken(division, here), strict=True)
        ),
    )


def _taken(division: Division, here: Iterable[tuple[int, Offer]]) -> Iterator[ResourceUse]:
    known: dict[int, ResourceUse] = {}
    for _, offer in here:
        key = id(offer.option)
        if key not in known:
            known[key] = division.taken(offer.option)
        yield known[key]


def missing_price(every: Choices) -> float:
    """Return what to charge for a demand that is not carried at all.

    It is twice what any demand could cost alone, or twice what all devices cost if that is more. A demand for
    millions of devices gets less, so it may not be worth carrying in part.
    """
    alone = (
        every.demands[each.demand].rate / each.offer.throughput * every.divisions[each.division].pool.price
        for each in every.each
    )
    most = PENALTY_MAX * max(each.pool.price for each in every.divisions)
    return 1 + min(2 * max(every.fleet_price, *alone), most)


@dataclass(frozen=True, slots=True)
class DeviceColumns:
    """Some of a program's devices.

    `rows`: by resource, what is given less what is taken, at least 0. `columns`: by way of the division, how
    many devices are divided in that way.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]


def add_devices(program: Program, division: Division, count: int, integer: bool = False) -> DeviceColumns:
    """Add at most `count` devices of a pool to the program."""
    columns = tuple(program.column(division.pool.price, integer=integer) for _ in division.gives)
    program.row([(column, 1.0) for column in columns], upper=count)
    rows = tuple(
        program.row(
            [(column, gives[resource]) for column, gives in zip(columns, division.gives, strict=True)],
            lower=0.0,
        )
        for resource in range(len(division.gives[0]))
    )
    return DeviceColumns(rows, columns)


def add_replicas(
    program: Program, devices: DeviceColumns, choice: DeviceChoice, integer: bool = False
) -> int:
    """Add replicas of a choice on those devices; return the column of their number."""
    column = program.column(integer=integer)
    for resource, amount in choice.taken.resources:
        program.put(devices.rows[resource], column, -amount)
    return column
