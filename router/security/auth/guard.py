"""Lets a request in by its key, or says why not. One for all doors of a gateway; its keys may change."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from router.security.auth.identity import Identity
from router.security.auth.keys import KeyFile
from router.security.auth.rights import WATCHERS, Roles
from router.settings.keys import ROLES
from router.tensors.parts.errors import RequestError
from router.tensors.parts.wording import listed, quoted
from serving.values.versions import model_of
from serving.values.vocabulary import FORBIDDEN, UNAUTHENTICATED

MISSING, UNKNOWN, EXPIRED = _WITHOUT = ("missing", "unknown", "expired")
ROLE, MODEL, TIER = _MAY_NOT = ("role", "model", "tier")

NAMES_SHOWN: Final = 4
"""Names of a certificate in an error."""

_HOW: Final = "send one as `Authorization: Bearer KEY` or `x-api-key: KEY`"


class KeyGuard:
    """`refused`: how many requests, by why. `now_s`: Unix time, read for keys that expire."""

    def __init__(self, keys: KeyFile, now_s: Callable[[], float] = time.time) -> None:
        self.keys = keys
        self.refused: dict[str, int] = dict.fromkeys((*_WITHOUT, *_MAY_NOT), 0)
        self._now_s = now_s

    def identify(
        self, api_key: bytes | None, authorization: bytes | None, certificate: Sequence[str] = ()
    ) -> Identity:
        """Return the caller, by the values of `x-api-key`, which counts first, and `Authorization`; None for
        a field that is not there. RequestError (UNAUTHENTICATED) where neither holds a key that counts.
        `certificate`: names of the client's, which count where there is neither field."""
        text = api_key
        if text is None:
            if authorization is None:
                if certificate:
                    return self._certified(certificate)
                raise self._refuse(MISSING, f"an API key is needed; {_HOW}")
            if authorization[:7].lower() != b"bearer ":
                raise self._refuse(
                    MISSING, f"an API key is needed, and Authorization has no scheme Bearer; {_HOW}"
                )
            text = authorization[7:]
        known = self.keys.find(text.strip())
        if known is None:
            raise self._refuse(UNKNOWN, "the API key is none of this gateway; its operator can make one")
        if known.expires_s <= self._now_s():
            name = quoted(known.identity.name)
            raise self._refuse(EXPIRED, f"the API key {name} has expired; its operator can make another")
        return known.identity

    def _certified(self, names: Sequence[str]) -> Identity:
        known = self.keys.certified(names)
        if known is None:
            shown = listed(names[:NAMES_SHOWN])
            raise self._refuse(
                UNKNOWN, f"no entry of the keys file is for the certificate of {shown}; {_HOW}"
            )
        if known.expires_s <= self._now_s():
            name = quoted(known.identity.name)
            raise self._refuse(EXPIRED, f"the entry {name} of this certificate has expired; renew its date")
        return known.identity

    def require(self, identity: Identity, roles: Roles, model: str = "") -> None:
        """Raise RequestError (FORBIDDEN) unless the caller has one of the roles and may use the model, "" for
        none."""
        if not roles & identity.roles:
            has = listed(role for role in ROLES if role in identity.roles)
            needed = " or ".join(quoted(role) for role in ROLES if role in roles)
            raise self._refuse(
                ROLE, f"the API key {quoted(identity.name)} has the role {has}; this needs {needed}"
            )
        if model:
            self.check_model(identity, model)

    def check_model(self, identity: Identity, model: str) -> None:
        """Raise RequestError (FORBIDDEN) unless the caller may use the model."""
        models = identity.models
        if models is not None and model_of(model) not in models:
            its = f"its models are {listed(sorted(models))}"
            raise self._refuse(
                MODEL, f"the API key {quoted(identity.name)} may not use model {quoted(model)}; {its}"
            )

    def check_tier(self, identity: Identity, tier: str, own: str) -> None:
        """Raise RequestError (FORBIDDEN) unless the caller may ask for the tier. The caller may always have
        its tenant's tier (`own`); "" is none."""
        tiers = identity.tiers
        if tiers is not None and tier and tier != own and tier not in tiers:
            its = f"its tiers are {listed(sorted(tiers))}"
            raise self._refuse(
                TIER, f"the API key {quoted(identity.name)} may not ask for tier {quoted(tier)}; {its}"
            )

    def admit_scrape(self, fields: Mapping[bytes, bytes], certificate: Sequence[str] = ()) -> None:
        """Raise RequestError unless the header fields hold a key that may read metrics, or the client's
        certificate has a name that may."""
        identity = self.identify(fields.get(b"x-api-key"), fields.get(b"authorization"), certificate)
        self.require(identity, WATCHERS)

    def _refuse(self, why: str, message: str) -> RequestError:
        self.refused[why] += 1
        return RequestError(UNAUTHENTICATED if why in _WITHOUT else FORBIDDEN, message)
