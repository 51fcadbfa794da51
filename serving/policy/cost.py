"""What slices cost, and whom: what is paid is that they are held, by the hour, whether they compute or not.

Each slice has a price of its own, so kinds of devices may differ. A slice's price is divided among its models
in proportion to how long it computed for each; where it never computed, in equal parts.
"""

from collections.abc import Mapping


def cost_per_hour(prices: Mapping[str, float], busy: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return each model's part of the price of all slices, per hour; the parts add up to it.

    `prices` per hour, by slice; `busy` by slice, then by each model resident there: the share of the slice's
    time in which it computes for that model.
    """
    parts: dict[str, float] = {}
    for place, shares in busy.items():
        total = sum(shares.values())
        for model, share in shares.items():
            part = share / total if total else 1 / len(shares)
            parts[model] = parts.get(model, 0.0) + prices[place] * part
    return parts


def cost_per_million(per_hour: float, good_rate: float) -> float:
    """Return the cost of a million requests answered in time, at `good_rate` of them a second; nan if there
    are none."""
    return per_hour / 3600 / good_rate * 1e6 if good_rate else float("nan")
