"""Figures of the sentences, to as many digits as they mean something."""

from collections.abc import Sequence

from router.verbs.explain.body import Variant
from router.verbs.report import numbers

_NAMED_MAX = 4


def milliseconds(us: float) -> str:
    """Return the time in ms, for example `1.3 ms`."""
    return f"{numbers.milliseconds(us / 1000)} ms"


def rate(per_s: float) -> str:
    """Return a counted rate, for example `310`, `1,934`."""
    return numbers.rate(per_s)


def about(per_s: float) -> str:
    """Return a reckoned rate, to two digits, for example `190`, `1,900`."""
    return numbers.rate(float(f"{per_s:.2g}"))


def accuracy(share: float) -> str:
    """Return the accuracy to four digits, for example `0.97`."""
    return f"{share:.4g}"


def named(variant: Variant) -> str:
    """Return the variant with its accuracy, for example `cnn (0.9867)`; the name alone if that was not
    measured."""
    share = variant["accuracy"]
    return variant["name"] if share is None else f"{variant['name']} ({accuracy(share)})"


def joined(names: Sequence[str]) -> str:
    """Return the names joined, for example `cpu0, cpu1 and cpu2`; of many the first, and how many more."""
    if len(names) > _NAMED_MAX:
        return f"{', '.join(names[: _NAMED_MAX - 1])} and {len(names) - _NAMED_MAX + 1} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
