"""Request parameters: the client's timeout, a pinned variant, a tier, a floor of accuracy, and those that the
model declares.

What is none of these is refused (`extensions.py`).
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite, nan
from typing import Final, NamedTuple

from router.tensors.parts.errors import bad_input
from router.tensors.parts.wording import listed, quoted, suggestion
from router.tensors.request.extensions import refuse_unread
from router.tensors.request.sequences import SEQUENCE, read_step
from serving.ports import Call
from serving.values.sequences import SequenceStep
from serving.values.specs import Parameters, ParameterSpec, ParameterValue, ServedModel
from serving.values.vocabulary import NEVER_US

LONGEST_US = NEVER_US >> 1
"""Longer timeouts (clients say UINT64_MAX for "none") are cut to this, so that an instant plus one
still lies before NEVER_US."""

READ = ("timeout", "variant", "tier", "accuracy_min", "binary_data_output")
"""Request parameters that the gateway reads itself; a model never sees them."""

PRIORITY: Final = "priority"
"""Read where the model has levels: 1 is the first, 0 is the model's own default (Triton's scheduling
policy)."""
EMPTY_FINAL = "triton_enable_empty_final_response"
"""Asks for an answer without outputs after the last one, of a model with any number of answers."""
FIELD_CHARACTERS: Final = 1024
"""Of a header field that states a parameter; each other value is a lane of its own."""

_READ = frozenset(READ)
_DIGITS_MAX = 20  # of 2^64


class Stated(NamedTuple):
    """What a client says of the answer that it needs: `tier`, "" for none, and a floor, 0 for none."""

    tier: str
    accuracy_min: float


class RequestParameters(NamedTuple):
    """What the parameters amount to, in the words of `serving.ports.Call`. `stated`: of tier and floor, None
    for nothing; whether the model can keep it is seen later, together with what the header fields say.
    `empty_final`: what EMPTY_FINAL says. `step`: of which sequence the request is, None for a model without
    sequences. `priority`: the level that the request states, 0 for none."""

    timeout_us: int | None
    variant: str
    parameters: Parameters
    stated: Stated | None = None
    empty_final: bool = False
    step: SequenceStep | None = None
    priority: int = 0


def read(values: Mapping[str, object], model: ServedModel) -> RequestParameters:
    """Return the checked values, with the defaults of what the client left out. Raises RequestError for what
    is not valid."""
    step, priority = read_step(values, model), 0
    if not values.keys() <= _READ:
        read_here: tuple[str, ...] = READ if step is None else (*READ, *SEQUENCE)
        if model.spec.priorities is not None:
            read_here = (*read_here, PRIORITY)
            priority = _priority(values.get(PRIORITY, 0))
        refuse_unread("the request", values, (*(spec.name for spec in model.spec.parameters), *read_here))
    timeout_us = _timeout_us(values["timeout"]) if "timeout" in values else None
    variant = _variant(values["variant"], model) if "variant" in values else ""
    declared = sorted(model.spec.parameters, key=lambda spec: spec.name)
    parameters = tuple(
        (spec.name, _value(values[spec.name], spec) if spec.name in values else spec.default)
        for spec in declared
    )
    stated = _stated(values) if "tier" in values or "accuracy_min" in values else None
    empty_final = values.get(EMPTY_FINAL) is True
    return RequestParameters(timeout_us, variant, parameters, stated, empty_final, step, priority)


def take_fields(call: Call, value_of: Callable[[str], str | None]) -> None:
    """Set the parameters that header fields may state (`ParameterSpec.header`) and that still have their
    default. `value_of` returns the value of a field by its name in lower case. Raises RequestError for a
    value that the parameter cannot have."""
    stated: dict[str, ParameterValue] = {}
    for spec in call.model.spec.parameters:
        text = value_of(spec.name.lower()) if spec.header else None
        if text is not None:
            stated[spec.name] = _value(_spelled(text.strip(), spec), spec)
    if stated:
        defaults = {spec.name: spec.default for spec in call.model.spec.parameters}
        call.parameters = tuple(
            (name, stated[name] if name in stated and value == defaults[name] else value)
            for name, value in call.parameters
        )


def _spelled(text: str, spec: ParameterSpec) -> object:
    """Return what a header field says as the parameter's type; the text itself where it is none of that."""
    if spec.type == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    if len(text) > FIELD_CHARACTERS:
        most = f"at most {FIELD_CHARACTERS} characters"
        raise bad_input(f"header field {quoted(spec.name)} has {len(text)} characters; {most} are accepted")
    with suppress(ValueError):
        if spec.type == "int" and len(text) <= _DIGITS_MAX:
            return int(text)
        if spec.type == "float":
            return float(text)
    return text


def _priority(value: object) -> int:
    """Return a level, which Triton's clients send as a number or as text. One that is no level of the model
    is the default, as in Triton."""
    value = _counted(value)
    if type(value) is not int or value < 0:
        raise bad_input(f"'{PRIORITY}' must be a whole number of 0 or more, got {quoted(value)}")
    return value


def share(value: object, name: str) -> float:
    """Return an accuracy from 0 to 1, as a number or spelled; `name` is what it is called where it is
    refused."""
    number = nan
    if isinstance(value, str) or type(value) in (int, float):
        with suppress(ValueError, OverflowError):
            number = float(value)  # type: ignore[arg-type]  # a string or a number
    if not 0 <= number <= 1:  # also true for NaN
        raise bad_input(f"{name} must be a number from 0 to 1 (0.95 for 95 %), got {quoted(value)}")
    return abs(number)  # 0.0 for -0.0


def _stated(values: Mapping[str, object]) -> Stated:
    tier = values.get("tier", "")
    if not isinstance(tier, str):
        raise bad_input(f"parameter 'tier' must be a string, got {quoted(tier)}")
    floor = share(values["accuracy_min"], "parameter 'accuracy_min'") if "accuracy_min" in values else 0.0
    return Stated(tier.strip(), floor)


def _timeout_us(value: object) -> int | None:
    """Return the timeout in us; 0 means that there is none, as Triton's clients mean it."""
    counted = _counted(value)
    whole = type(counted) is int or (isinstance(counted, float) and counted.is_integer())
    number = int(counted) if whole else -1  # type: ignore[call-overload]  # one of the two
    if number < 0:
        said = "a whole number of microseconds, 0 for none"
        raise bad_input(f"parameter 'timeout' must be {said}, got {quoted(value)}")
    return min(number, LONGEST_US) or None


def _counted(value: object) -> object:
    """Return the number that a text of digits spells, and any other value as it is."""
    spelled = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX
    return int(value) if spelled else value  # type: ignore[call-overload]  # a text


def _variant(value: object, model: ServedModel) -> str:
    if isinstance(value, str) and value in model.variants:
        return value
    hint = suggestion(value, model.variants) if isinstance(value, str) else ""
    hint = hint or f"; its variants are {listed(model.variants)}"
    raise bad_input(f"model '{model.name}' serves no variant {quoted(value)}{hint}")


def _value(value: object, spec: ParameterSpec) -> ParameterValue:
    typed = _typed(value, spec.type)
    if typed is None:
        raise bad_input(f"parameter '{spec.name}' must be of type {spec.type}, got {quoted(value)}")
    if isinstance(typed, int | float) and not isinstance(typed, bool):
        low = spec.minimum is not None and typed < spec.minimum
        high = spec.maximum is not None and typed > spec.maximum
        if low or high:
            bound = f"at least {spec.minimum:g}" if low else f"at most {spec.maximum:g}"
            bound += f" ({spec.bounded_by})" if high and spec.bounded_by else ""
            raise bad_input(f"parameter '{spec.name}' must be {bound}, got {quoted(value)}")
    return typed


def _typed(value: object, kind: str) -> ParameterValue | None:
    """Return the value as what the parameter declares, or None where it is something else."""
    if kind == "float" and type(value) in (int, float):
        number = float(value)  # type: ignore[arg-type]  # the line above
        return number if isfinite(number) else None
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and type(value) is int:
        return value
    if kind == "string" and isinstance(value, str):
        return value
    return None
