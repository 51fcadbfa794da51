"""What a request is promised: by what it says itself, in parameters and header fields (gRPC: metadata), else
by its tenant's tier. Checked against what the model's variants reach, before the core knows of the request.
"""

from collections.abc import Iterable

from router.protocol.oip import ACCURACY_FIELD, TIER_FIELD
from router.tensors.parts.errors import RequestError, bad_input
from router.tensors.parts.recent import Recent
from router.tensors.parts.wording import listed, quoted, suggestion
from router.tensors.request.decoded import Decoded
from router.tensors.request.parameters import Stated, share
from serving.values.objectives import Objective, ranked
from serving.values.specs import ServedModel

_NOTHING = Stated("", 0.0)

_FLOORS: Recent[tuple[int, str, float], tuple[ServedModel, Objective]] = Recent(256)
"""Objectives by model, tier and a floor of the request's own; clients say the same with every request."""


def promise(decoded: Decoded, tier: str, accuracy: str, tenant_tier: str) -> None:
    """Set the call's objective. `tier` and `accuracy` are what TIER_FIELD and ACCURACY_FIELD say, as a list
    if there are several fields. `tenant_tier` counts if the request names none; "" for nothing.

    The higher of two floors counts; two tiers must be the same. A pinned variant may lie below the floors of
    the model and of the tenant's tier, but not below the request's own. Raises RequestError for what cannot
    be had.
    """
    stated = decoded.stated or _NOTHING
    tier = _one_tier(tier, stated.tier)
    floor = stated.accuracy_min
    for each in accuracy.split(",") if accuracy else ():
        floor = max(floor, share(each, ACCURACY_FIELD) if each.strip() else 0.0)
    if not (tier or floor or tenant_tier):
        return
    call = decoded.call
    model = call.model
    objective = call.objective = _objective(model, tier or tenant_tier, floor)
    if call.variant:
        least = max(floor, objective.accuracy_min if tier else 0.0)
        if call.variant not in ranked({call.variant: model.accuracy(call.variant)}, least):
            raise _pinned_below(model, call.variant, least, tier if least > floor else "")
    elif not objective.variants and model.selection is None:  # a vote may be better than all of its voters
        raise _out_of_reach(model, objective, floor)


def _one_tier(by_field: str, by_parameter: str) -> str:
    named = dict.fromkeys(each for part in by_field.split(",") if (each := part.strip()))
    if len(named) > 1:
        raise bad_input(f"a request has one tier, but {TIER_FIELD} says {' and '.join(map(quoted, named))}")
    tier = next(iter(named), "")
    if tier and by_parameter and tier != by_parameter:
        both = f"{TIER_FIELD} says {quoted(tier)} and parameter 'tier' {quoted(by_parameter)}"
        raise bad_input(f"a request has one tier, but {both}")
    return tier or by_parameter


def _objective(model: ServedModel, tier: str, floor: float) -> Objective:
    promised = model.by_tier.get(tier) if tier else model.own
    if promised is None:
        known = f"its tiers are {listed(model.by_tier)}" if model.by_tier else "it has none"
        hint = suggestion(tier, model.by_tier) or f"; {known}"
        raise bad_input(f"model '{model.name}' has no tier {quoted(tier)}{hint}")
    if floor <= promised.accuracy_min:
        return promised
    key = (id(model), tier, floor)
    remembered = _FLOORS.get(key)
    if remembered is None or remembered[0] is not model:
        remembered = (model, model.objective(tier, floor))
        _FLOORS.put(key, remembered)
    return remembered[1]


def _pinned_below(model: ServedModel, variant: str, least: float, tier: str) -> RequestError:
    accuracy = model.accuracy(variant)
    measured = "has no measured accuracy" if accuracy is None else f"has an accuracy of {accuracy:g}"
    floor = f"the {least:g} of tier '{tier}'" if tier else f"accuracy_min {least:g}"
    enough = ranked({name: model.accuracy(name) for name in model.variants}, least)
    others = f"reached by {_shares(model, enough)}" if enough else "which no variant reaches"
    return bad_input(
        f"variant '{variant}' of model '{model.name}' {measured}; {floor} asks for more, {others}"
    )


def _out_of_reach(model: ServedModel, objective: Objective, floor: float) -> RequestError:
    best = ranked(_known(model), 0.0)[:1]
    reach = f"reaches at most {_shares(model, best)}" if best else "has no variant with a measured accuracy"
    least = f"{objective.accuracy_min:g}"
    whose = f"the {least} of tier '{objective.tier}'" if objective.tier else f"its own floor of {least}"
    asked = f"accuracy_min {least}" if floor >= objective.accuracy_min else whose
    return bad_input(f"model '{model.name}' {reach}; {asked} cannot be met")


def _known(model: ServedModel) -> dict[str, float | None]:
    return {name: share for name in model.variants if (share := model.accuracy(name)) is not None}


def _shares(model: ServedModel, names: Iterable[str]) -> str:
    return ", ".join(f"{model.accuracy(name):g} ({name})" for name in names)
