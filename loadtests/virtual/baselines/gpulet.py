"""Gpulets (Choi et al., USENIX ATC 2022): GPUs cut in two at most, each part as large as is efficient.

Elastic partitioning takes models in descending rate * SLO. Each model asks for the smaller of two parts. One
is its most efficient part, the knee. The other is the least that carries what is left of its rate. The
model gets all of the smallest remainder of a GPU that holds this part. If there is none, the model shares a
part in turns. If that fails too, a GPU is cut. A part is refused if one of the two on the GPU would miss its
SLO or carry less than it was given.

The public code (casys-kaist/glet) sorts ascending, never takes the largest size for a knee, and accepts 85 %
of a rate. Here the order and the knee are as in the paper, and all of the rate has to be carried.
Interference is `Option`'s pressure and sensitivity here, because every plan is checked against them. The
paper has a linear model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise

from loadtests.virtual.baselines.colocated import ColocatedPart, settle
from loadtests.virtual.baselines.pools import NEAR, each_pool, offers, single
from loadtests.virtual.baselines.squishy import Session
from serving.policy.placement.terms.plan import ROUNDING, Draft, Slot
from serving.policy.placement.terms.problem import Demand, Offer, Option, Parts, PlacementProblem, Pool
from serving.values.slice_specs import Share

GAIN_MIN = 1.05
"""A larger part has to carry so many times as much to be a candidate for the knee (glet)."""

Gpu = tuple[ColocatedPart, ...]
Change = tuple[int, Gpu, float]
"""A GPU by its index, what it becomes, and what it takes on of the rate."""


def solve(problem: PlacementProblem) -> Draft:
    """Return a draft on pools of devices divided by amounts. Other pools are not used."""
    return each_pool(problem, "gpulet", _pack)


def _pack(problem: PlacementProblem, pool: Pool) -> Sequence[tuple[Slot, ...]]:
    if not isinstance(pool.division, Parts):
        return []
    partitioning = _Partitioning(pool, pool.division)
    for demand in sorted(problem.demands, key=lambda each: -each.rate * each.slo_us):
        partitioning.add(demand)
    return [slots for gpu in partitioning.gpus if (slots := settle(pool, gpu))]


class _Partitioning:
    """GPUs that are being cut. `gpus`: those that are cut, with one part or two of each in use."""

    def __init__(self, pool: Pool, parts: Parts) -> None:
        self.gpus: list[Gpu] = []
        self._pool = pool
        self._parts = parts
        self._singles: dict[tuple[str, Share], Option | None] = {}

    def add(self, demand: Demand) -> None:
        """Add as much of the demand as there is room for."""
        found = offers(self._pool, demand)
        left = demand.rate
        while found and left > NEAR * demand.rate:
            changes = chain(
                self._remainders(demand, found, left),
                self._shared(demand, left),
                self._cut(demand, found, left),
            )
            change = next((each for each in changes if settle(self._pool, each[1])), None)
            if change is None:
                return
            index, gpu, rate = change
            self.gpus[index : index + 1] = [gpu]
            left -= rate

    def _remainders(self, demand: Demand, found: Sequence[Offer], rate: float) -> Iterator[Change]:
        """Yield changes that give the model all that a GPU with one part has left, the smallest first."""
        least = ideal(found, rate).option.share.amount
        near = self._parts.total * ROUNDING / 2
        rooms = [
            (self._parts.total - gpu[0].share.amount + near, index)
            for index, gpu in enumerate(self.gpus)
            if len(gpu) == 1
        ]
        for room, index in sorted(each for each in rooms if each[0] >= least):
            option = next(each.option for each in reversed(found) if each.option.share.amount <= room)
            beside = self.gpus[index][0]
            offer = option.offer(demand.slack * demand.slo_us, 1 + option.sensitivity * beside.pressure)
            if offer is not None:
                given = min(rate, offer.throughput)
                part = ColocatedPart(option.share, (Session(demand, option, given),))
                yield index, (beside, part), given

    def _shared(self, demand: Demand, rate: float) -> Iterator[Change]:
        """Yield changes that put the whole rate on a part that is in use, in turns, the fullest first."""
        sessions: dict[Share, Session | None] = {}
        found = []
        for index, gpu in enumerate(self.gpus):
            for place, part in enumerate(gpu):
                if part.share not in sessions:
                    option = self._single(demand, part.share)
                    sessions[part.share] = Session(demand, option, rate) if option else None
                session = sessions[part.share]
                if session and part.load + session.load <= 1:
                    found.append((-part.load, index, place, session))
        for _, index, place, session in sorted(found, key=lambda each: each[:3]):
            gpu = self.gpus[index]
            joined = self._joined(gpu[place], session)
            if joined is not None:
                yield index, (*gpu[:place], joined, *gpu[place + 1 :]), rate

    def _joined(self, part: ColocatedPart, session: Session) -> ColocatedPart | None:
        """Return the part with one session more, all in turns.

        Return None if a model cannot run so, or is there already.
        """
        sessions = []
        for each in part.sessions:
            option = self._single(each.demand, part.share)
            if option is None or each.demand.model == session.demand.model:
                return None
            sessions.append(replace(each, option=option))
        return ColocatedPart(part.share, (*sessions, session))

    def _single(self, demand: Demand, share: Share) -> Option | None:
        key = (demand.model, share)
        if key not in self._singles:
            self._singles[key] = single(self._pool, demand, share)
        return self._singles[key]

    def _cut(self, demand: Demand, found: Sequence[Offer], rate: float) -> Iterator[Change]:
        """Yield the change that cuts a part of an empty GPU."""
        if len(self.gpus) < len(self._pool.devices):
            offer = ideal(found, rate)
            given = min(rate, offer.throughput)
            part = ColocatedPart(offer.option.share, (Session(demand, offer.option, given),))
            yield len(self.gpus), (part,), given


def ideal(found: Sequence[Offer], rate: float) -> Offer:
    """Return the smaller of the most efficient part and the least that carries the rate.

    Offers ascend by amount.
    """
    enough = [each for each in found if each.throughput >= rate * (1 - NEAR)]
    return min([knee(found), *enough[:1]], key=lambda each: each.option.share)


def knee(found: Sequence[Offer]) -> Offer:
    """Return the part up to which more of the GPU gains most, of equal ones the smallest.

    Offers ascend by amount.
    """
    gains = [
        ((high.throughput - low.throughput) / (high.option.share.amount - low.option.share.amount), high)
        for low, high in pairwise(found)
        if high.throughput >= GAIN_MIN * low.throughput
    ]
    return max(gains, key=lambda each: each[0])[1] if gains else found[0]
