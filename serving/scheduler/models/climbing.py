"""What all that share slices may spend on a row, reviewed with their rates."""

from collections.abc import Collection, Sequence

from serving.policy.estimates.arrival_slack import ArrivalSlack
from serving.policy.estimates.rates import QUIET
from serving.policy.variants.climbing import LOAD_SHARE, Allowance, Climber, climb
from serving.scheduler.models.models import ScheduledModel
from serving.scheduler.slices.ladders import climber
from serving.scheduler.slices.slices import Slice
from serving.scheduler.waiting.requests import Wants


def climb_all(group: Sequence[ScheduledModel], now_us: int) -> None:
    """Renew the allowances of models that share slices, directly or through others: what the slices of each
    alone have time for, and all together."""
    if not any(flow.wants is not None and len(flow.wants[0]) > 1 for m in group for flow in m.flows.values()):
        return
    for model in group:
        if model.queue.comers is None:
            model.queue.comers = ArrivalSlack()
        model.queue.comers.review(now_us)
    loads = [(model, wants, each) for model in group for wants, each in _climbers(model, now_us)]
    together = climb([each for _, _, each in loads], LOAD_SHARE * len(_slices(group)))
    alone: dict[int, float] = {}
    for model in group if len(group) > 1 else ():
        own = [place for place, (each, _, _) in enumerate(loads) if each is model]
        found = climb([loads[place][2] for place in own], LOAD_SHARE * len(model.slices))
        alone.update(zip(own, found, strict=True))
    for place, (model, wants, _) in enumerate(loads):
        if wants is not None:
            allowance = model.queue.allowances.setdefault(wants, Allowance())
            allowance.update(min(together[place], alone.get(place, together[place])), now_us)


def _slices(group: Sequence[ScheduledModel]) -> Collection[Slice]:
    return {live: None for model in group for live in model.slices}


def _climbers(model: ScheduledModel, now_us: int) -> list[tuple[Wants | None, Climber]]:
    """Return the loads of a model by what they want; those that have no choice as one, without."""
    rates: dict[Wants, float] = {}
    fixed = 0.0
    for flow in model.flows.values():
        rate = flow.rate.recent(now_us)
        if flow.wants is None or len(flow.wants[0]) == 1:
            fixed += flow.need
        else:
            rates[flow.wants] = rates.get(flow.wants, 0.0) + (rate if rate > QUIET else 0.0)
    found: list[tuple[Wants | None, Climber]] = [(None, Climber(1.0, [(fixed, 0.0)]))] if fixed else []
    for wants, rate in rates.items():
        load = climber(wants, rate, model.variant_us, model.served.accuracy)
        if load is not None:
            found.append((wants, load))
    return found
