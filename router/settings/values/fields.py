"""The types of the values of settings files: what a key can hold, in which range.

Units are in the keys, so a number never changes its meaning.
"""

import re
from collections.abc import Callable, Collection
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from router.settings.values.problems import fault, shown, unknown_name
from serving.values.specs import ParameterValue

FAULT = "fault"
"""The pydantic error type whose message is already a sentence of ours."""

SIZES = "sizes of 1 or more, or -1 or a name such as tokens where any size is welcome"
"""Of a shape."""

OCTAVES = 5
"""Below the largest size, with two buckets each: at most a third of a row in a batch is filling. Smaller rows
share the first bucket."""

HOUR_S = 3600
DAY_S = 24 * HOUR_S
HOUR_MS = HOUR_S * 1000


class Keys(BaseModel):
    """A mapping with known keys. A key without a value counts as not given."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _omit_empty(cls, section: object) -> object:
        if not isinstance(section, dict):
            return section
        return {k: v for k, v in section.items() if v is not None or k not in cls.model_fields}


def refuse(message: str) -> PydanticCustomError:
    """Return an error for a validator to raise, with a sentence of ours."""
    return PydanticCustomError(FAULT, "{message}", {"message": message})


def known(what: str, names: Collection[str]) -> Callable[[str], str]:
    """Return a validator of names that have to be among these."""

    def check(name: str) -> str:
        if name not in names:
            raise refuse(unknown_name(f"unknown {what}", name, names))
        return name

    return check


def distinct(values: list[int] | list[str]) -> bool:
    """Return whether none is there twice."""
    return len(set(values)) == len(values)


def check_names(value: object) -> object:
    """Return a validator of lists of names."""
    if isinstance(value, list) and value and all(type(name) is str for name in value):
        if distinct(value):
            return value
        twice = next(name for name in value if value.count(name) > 1)
        raise refuse(f"{shown(twice)} is listed twice")
    raise refuse(fault("not a list of names", value, "a list with at least one name, such as [a, b]"))


def check_cores(value: object) -> object:
    """Return the cores of a slice: a count, or core numbers as a tuple."""
    if type(value) is int and 1 <= value <= 4096:
        return value
    if isinstance(value, list) and value and all(type(core) is int and 0 <= core < 4096 for core in value):
        if distinct(value):
            return tuple(value)
        raise refuse("a core is listed twice")
    what = "no cores" if value in (0, []) else "not a number of cores"
    raise refuse(fault(what, value, "a count (1 or more) or a list of core numbers such as [0, 1]"))


def _check_scalar(value: object) -> object:
    if isinstance(value, bool | str) or (isinstance(value, int | float) and abs(value) < 1 << 63):
        return value
    raise refuse(fault("not a single value", value, "true, false, a finite number or text"))


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise refuse(fault(f"not a regular expression ({error})", text, "one such as x-.*")) from None
    return text


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
Text = Annotated[str, Field(min_length=1, max_length=4096)]
DeviceText = Annotated[str, Field(min_length=1, max_length=80)]
ShareText = Annotated[str, Field(min_length=1, max_length=40)]
PatternText = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_check_pattern)]
Names = Annotated[list[str], PlainValidator(check_names)]
Scalar = Annotated[ParameterValue, PlainValidator(_check_scalar)]
Number = Annotated[float, Field(allow_inf_nan=False, gt=-(2**63), lt=2**63)]
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
SloMs = Annotated[float, Field(ge=0.001, le=HOUR_MS, allow_inf_nan=False)]  # the clock counts us
Seconds = Annotated[float, Field(gt=0, le=DAY_S, allow_inf_nan=False)]
Kilobytes = Annotated[float, Field(ge=1, le=1 << 20, allow_inf_nan=False)]
Megabytes = Annotated[float, Field(ge=0.001, le=1 << 20, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]  # for an hour
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def check_shape(value: object) -> object:
    """Return the shape of a tensor: sizes, -1 and names of sizes; it raises if it is none."""
    if isinstance(value, list) and value and all(map(_is_size, value)):
        return value
    got = str(value)[:80] if isinstance(value, list) else shown(value)
    raise refuse(f"not a shape; got {got}, expected {SIZES}")


def _is_size(side: object) -> bool:
    if isinstance(side, str):
        return side.isidentifier() and len(side) <= 64
    return type(side) is int and (side >= 1 or side == -1)


def check_buckets(value: object) -> object:
    """Return the bounds of size buckets; it raises if they are none. A single number is the last bound, and
    the others follow from it."""
    if type(value) is int and 1 <= value < 1 << 40:
        halves = [max(round(value * step / 2**octave), 1) for octave in range(OCTAVES) for step in (1, 0.75)]
        return sorted({*halves})
    sound = isinstance(value, list) and value and all(type(each) is int and each >= 1 for each in value)
    if isinstance(value, list) and sound and value == sorted(set(value)):
        return value
    got = str(value)[:80] if isinstance(value, list) else shown(value)
    expected = "numbers such as [64, 128], or the largest size alone, such as 128"
    raise refuse(f"not ascending sizes; got {got}, expected {expected}")
