"""Which caller a request is from, once its key is known."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from serving.values.versions import model_of

IDENTITY: Final = "penstock.identity"
"""Where an ASGI scope has the Identity; nothing is there where no key is asked for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key's name, the tenant of its requests, and what it may do. `models`, `tiers`: None for all."""

    name: str
    tenant: str
    roles: frozenset[str]
    models: frozenset[str] | None = None
    tiers: frozenset[str] | None = None


CALLER: Final[ContextVar[Identity | None]] = ContextVar("caller", default=None)
"""Of the gRPC call that runs; None where no key is asked for."""


def own_tenant(identity: Identity | None) -> str:
    """Return the tenant of a caller's requests; "" where no key is asked for: then the request itself says
    it."""
    return "" if identity is None else identity.tenant


def may_use(identity: Identity | None, model: str) -> bool:
    """Return whether it may know of the model. None, of a gateway without keys, may."""
    return identity is None or identity.models is None or model_of(model) in identity.models
