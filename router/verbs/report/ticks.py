"""Where the ticks of an axis stand: at numbers that people like, inside its range."""

from math import ceil, floor, isfinite, log10

_FLAT = 1e-9  # of the larger end: a shorter axis has room for one number
_ROUNDED = 1e-9  # of a step: an end so near to a tick has it
_DECADES = 3.5  # from so many on, an axis names powers of ten alone


def linear(low: float, high: float, most: int = 6) -> list[float]:
    """Return up to `most` + 1 multiples of 1, 2, 2.5 or 5 times a power of ten."""
    if not (isfinite(low) and isfinite(high)):
        return []
    if high - low <= _FLAT * max(abs(low), abs(high)):
        return [low]
    rough = (high - low) / most
    power = 10.0 ** floor(log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * (1 - _ROUNDED))
    digits = 2 - floor(log10(step))
    found = range(ceil(low / step - _ROUNDED), floor(high / step + _ROUNDED) + 1)
    return [min(max(round(each * step, digits), low), high) for each in found]


def logarithmic(low: float, high: float, most: int = 8) -> list[float]:
    """Return up to `most` + 2 numbers of a logarithmic axis: of short ones 1, 1.5, 2, 3, 5, 7 times a power
    of ten, of longer ones 1, 2, 5, of the longest powers alone."""
    if not (isfinite(low) and isfinite(high) and low > 0):
        return []
    decades = log10(high / low)
    subs = (
        (1.0,) if decades > _DECADES else (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    )
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    found = [float(f"{sub}e{power}") for power in powers for sub in subs]
    inside = [each for each in found if low <= each <= high]
    if len(inside) < 2:
        return linear(low, high, 4)
    return inside[:: ceil(len(inside) / (most + 2))]


def figure(value: float) -> str:
    """Return what stands at a tick, for example `1,500` or `0.05`."""
    return f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:,.6g}"
