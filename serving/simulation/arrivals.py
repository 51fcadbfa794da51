"""A request as the simulator sees it."""

from typing import NamedTuple

from serving.specs import DEFAULT_TENANT


class Arrival(NamedTuple):
    """A request for the model of this number, due after its SLO or after `slack_us`.

    `size`: of its largest row; `bucket`: that size's, 0 where it is its own; `variant`: the one it pins, if
    any; `expires`: its client said when it is due, and is told then. `tier`: what it asks for, "" for its
    tenant's tier; what is promised is the model's own where there is none, or none of that name.
    """

    at_us: int
    model: int
    rows: int = 1
    slack_us: int | None = None
    tenant: str = DEFAULT_TENANT
    size: int = 0
    variant: str = ""
    expires: bool = False
    bucket: int = 0
    tier: str = ""
