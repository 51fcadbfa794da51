"""A request as the simulator sees it."""

from typing import NamedTuple

from serving.values.specs import DEFAULT_TENANT


class Arrival(NamedTuple):
    """A request for the model of this number, due after its SLO or after `slack_us`.

    `size`: its largest row's size; `bucket`: that size's bucket, 0 if it is the size itself. `variant`: the
    variant it pins, if any. `expires`: its client said when it is due, and gets an answer then. `tier`: what
    it asks for, "" for its tenant's tier. If there is no tier, or none of that name, the promise is the
    model's own.
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
