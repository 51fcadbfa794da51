"""A tenant's rate over several gateways: each holds it to a share, by what the tenant sends to each.

So all gateways together let in what the tenant may send, wherever it sends it. A gateway that the tenant does
not use keeps a little, so that its first requests there are not refused.
"""

from collections.abc import Mapping
from typing import Final

SPARE: Final = 0.1
"""Of a rate, what is divided equally; the rest follows the requests."""
GRAIN: Final = 0.02
"""Shares that differ by less are alike."""


def rate_shares(own: str, sent: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the share of each tenant's rate that the gateway `own` has, by tenant: 0 to 1.

    `sent`: by gateway and tenant, the requests a second that came, refused ones included.
    """
    if own not in sent:
        return {}
    even = 1 / len(sent)
    found = {}
    for tenant, here in sent[own].items():
        whole = sum(each.get(tenant, 0.0) for each in sent.values())
        found[tenant] = SPARE * even + (1 - SPARE) * (here / whole if whole > 0 else even)
    return found
