"""What a client's certificate calls its client."""

from collections.abc import Mapping, Sequence
from typing import Any, Final  # Any: certificates as the ssl module and grpc show them

NAMES: Final = "penstock.certificate"
"""Under this name a transport and an ASGI scope hold the names of the client's certificate."""

NAMES_MAX: Final = 32
"""Of one certificate; the others do not count."""


_IN_RPC: Final = (("peer_uri", "URI:"), ("peer_dns", "DNS:"), ("x509_common_name", "CN="))
"""Where grpc shows names (grpc_security_constants.h), and what they begin with here."""


def names_of(shown: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of a verified certificate: of its URIs and DNS names first, then the common name."""
    if not shown:
        return ()
    alternatives = shown.get("subjectAltName", ())
    names = [f"{kind}:{value}" for wanted in ("URI", "DNS") for kind, value in alternatives if kind == wanted]
    names += [
        f"CN={value}" for part in shown.get("subject", ()) for key, value in part if key == "commonName"
    ]
    return tuple(names[:NAMES_MAX])


def names_in_rpc(shown: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the same, of what grpc calls the authentication context of a call."""
    names = [
        prefix + value.decode("utf-8", "replace") for key, prefix in _IN_RPC for value in shown.get(key, ())
    ]
    return tuple(names[:NAMES_MAX])


def rpc_names(names: Sequence[str]) -> dict[str, list[bytes]]:
    """Return the names as grpc shows them."""
    return {
        key: [name.removeprefix(prefix).encode() for name in names if name.startswith(prefix)]
        for key, prefix in _IN_RPC
    }
