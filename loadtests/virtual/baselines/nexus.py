"""Nexus (Shen et al., SOSP 2019, section 6.1): whole nodes for what fills them, the rest in turns.

A rate becomes as many nodes as the largest batch within half the SLO fills. What is left of each model goes
into nodes that models share in turns. Models that take most of a node come first, and each goes where it
leaves the least idle.

A node is a GPU in the paper. Here it is the largest slice that a model was measured on, so a device may hold
several. The spare part of the SLO follows from `Demand.slack`. The merging is as in the paper; in the public
code (uwsampl/nexus) it is commented out.
"""

from collections.abc import Sequence

from loadtests.virtual.baselines.colocated import ColocatedPart, first_fit, settle
from loadtests.virtual.baselines.pools import NEAR, each_pool, offers, single
from loadtests.virtual.baselines.squishy import Session, occupancy
from serving.policy.placement.terms.plan import Draft, Slot
from serving.policy.placement.terms.problem import Demand, Parts, PlacementProblem, Pool


def solve(problem: PlacementProblem) -> Draft:
    """Return a draft on pools of devices divided by amounts. Other pools are not used."""
    return each_pool(problem, "nexus", _pack)


def _pack(problem: PlacementProblem, pool: Pool) -> Sequence[tuple[Slot, ...]]:
    if not isinstance(pool.division, Parts):
        return []
    full: list[ColocatedPart] = []
    residual: list[Session] = []
    for demand in problem.demands:
        nodes, rest = _saturate(pool, demand)
        full += nodes
        residual += rest
    return first_fit(pool, [*full, *_merge(pool, residual)])


def _saturate(pool: Pool, demand: Demand) -> tuple[list[ColocatedPart], list[Session]]:
    """Return the nodes that the rate fills, and what is left.

    What is left gets a node of its own if it cannot share one.
    """
    found = offers(pool, demand)
    if not found or demand.rate <= 0:
        return [], []
    best = found[-1]
    count = int(demand.rate / best.throughput + NEAR)
    share = best.option.share
    nodes = [ColocatedPart(share, (Session(demand, best.option, best.throughput),))] * count
    rate = demand.rate - count * best.throughput
    if rate <= NEAR * demand.rate:
        return nodes, []
    option = single(pool, demand, share)
    if option is not None:
        rest = Session(demand, option, rate)
        if occupancy([rest]) <= 1 and settle(pool, [ColocatedPart(share, (rest,))]):
            return nodes, [rest]
    return [*nodes, ColocatedPart(share, (Session(demand, best.option, rate),))], []


def _merge(pool: Pool, residual: Sequence[Session]) -> list[ColocatedPart]:
    """Return nodes for what is left, merged in descending occupancy.

    Each session joins the node that is then the fullest.
    """
    nodes: list[ColocatedPart] = []
    for session in sorted(residual, key=lambda each: -occupancy([each])):
        joined = [
            (-occupancy(both.sessions), place)
            for place, node in enumerate(nodes)
            if node.share == session.option.share
            and settle(pool, [both := ColocatedPart(node.share, (*node.sessions, session))])
        ]
        if joined:
            place = min(joined)[1]
            nodes[place] = ColocatedPart(nodes[place].share, (*nodes[place].sessions, session))
        else:
            nodes.append(ColocatedPart(session.option.share, (session,)))
    return nodes
