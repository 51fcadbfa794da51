"""TLS in the event loop: handshakes, bounded in time and number, and what is encrypted (docs/tls.md)."""

from router.tls.certificates import Certificates
from router.tls.gate import Gate
from router.tls.names import NAMES, names_of

__all__ = ["NAMES", "Certificates", "Gate", "names_of"]
