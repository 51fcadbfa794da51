"""The keys in force. A key is `pk_<id>_<secret>`: the id finds it, and the whole text has to have its hash.

The hash is a plain SHA-256. Slow hashes make guessing a password cost more; a secret of 256 random bits
cannot be guessed, and a slow hash would cost every request its milliseconds (NIST SP 800-63B, 5.1.2.2, asks
for no slow hash from 112 bits on).
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from router.security.auth.identity import Identity
from router.settings.keys import HASH_CHARS, ID_CHARS, KeySpec

PREFIX: Final = "pk_"
SECRET_CHARS: Final = 64
"""256 bits as hexadecimal digits."""
KEY_CHARS: Final = len(PREFIX) + ID_CHARS + 1 + SECRET_CHARS
_ID_BEGINS: Final = len(PREFIX)
_ID_ENDS: Final = _ID_BEGINS + ID_CHARS
_NO_HASH: Final = bytes(HASH_CHARS // 2)


class Known:
    """A key as the gateway knows it; `expires_s`: Unix time from which on it counts no more."""

    __slots__ = ("digest", "expires_s", "identity")

    def __init__(self, spec: KeySpec) -> None:
        self.digest = bytes.fromhex(spec.hash)
        self.expires_s = spec.expires_s
        self.identity = Identity(
            spec.name,
            spec.tenant,
            frozenset(spec.roles),
            None if spec.models is None else frozenset(spec.models),
            None if spec.tiers is None else frozenset(spec.tiers),
        )


class KeyFile:
    """Those of a file."""

    __slots__ = ("_by_id", "_by_name", "specs")

    def __init__(self, specs: Iterable[KeySpec] = ()) -> None:
        self.specs = tuple(specs)
        known = [(spec, Known(spec)) for spec in self.specs]
        self._by_id = {spec.id.encode(): each for spec, each in known if spec.id}
        self._by_name = {spec.certificate: each for spec, each in known if spec.certificate}

    def certified(self, names: Sequence[str]) -> Known | None:
        """Return the entry with one of these names of a certificate; the first name that has one counts."""
        return next((self._by_name[name] for name in names if name in self._by_name), None)

    def find(self, text: bytes) -> Known | None:
        """Return the key with this text; None if there is none.

        It takes as long for an id that is not there as for a wrong secret, wherever that differs.
        """
        if len(text) != KEY_CHARS:
            return None
        known = self._by_id.get(text[_ID_BEGINS:_ID_ENDS])
        right = compare_digest(sha256(text).digest(), _NO_HASH if known is None else known.digest)
        return known if right else None


def hash_of(text: str) -> str:
    """Return the hash that the keys file holds for a key, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()
