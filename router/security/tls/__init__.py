"""TLS in the event loop: handshakes, bounded in time and number, and what is encrypted (docs/tls.md)."""

from router.security.tls.certificates import Certificates
from router.security.tls.gate import Gate
from router.security.tls.names import NAMES, names_of

__all__ = ["NAMES", "Certificates", "Gate", "names_of"]
