"""Figures as texts, to as many digits as they mean something."""

from math import floor, isnan

NONE = "-"


def percent(share: float) -> str:
    """Cut, not rounded: 100 % means all, 0 % none. Above 99 % the hundredths count, and are shown."""
    if isnan(share):
        return NONE
    if share <= 0 or share >= 1:
        return f"{share:.0%}".replace("%", " %")
    if share < 0.001:
        return "<0.1 %"
    digits = 2 if share >= 0.99 else 1
    cut = floor(share * 100 * 10**digits + 1e-9) / 10**digits  # .994 * 100 is a little less than 99.4
    return f"{cut:.{digits}f} %"


def milliseconds(value: float) -> str:
    """Return milliseconds to three digits."""
    return NONE if isnan(value) else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def rate(value: float) -> str:
    """Return the count of something a second, to three digits, and whole numbers above."""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def amount(value: float) -> str:
    """Return seconds or money, as `rate` does."""
    return NONE if isnan(value) else rate(value)
