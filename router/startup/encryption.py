"""TLS of a whole gateway: its certificates, the gate of its ports, and what status and metrics show."""

from collections.abc import Callable
from typing import Protocol

from router.observing.status.document import TlsStatus
from router.observing.telemetry.families.condition import TlsPresent
from router.security.tls.certificates import Certificates, CertificateWatch
from router.security.tls.gate import Gate
from router.settings.door.certificates import written
from router.settings.door.tls import TlsSettings
from serving.values.specs import Limits


class Encrypting(Protocol):
    """A server that can speak TLS."""

    def encrypt(self, gate: Gate) -> None:
        """Speak TLS from the start on."""
        ...


class Encryption:
    """One of a gateway; `watch` follows the files."""

    def __init__(self, tls: TlsSettings, limits: Limits, say: Callable[[str], None]) -> None:
        self.certificates = Certificates(tls)
        self._gate = Gate(self.certificates, limits)
        self.watch = CertificateWatch(self.certificates, say)

    def use(self, *servers: Encrypting) -> None:
        """Have these servers speak TLS; call this before they start."""
        for each in servers:
            each.encrypt(self._gate)

    def close(self) -> None:
        """End the handshakes that are under way."""
        self._gate.close()

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the latest edition of the files is not in force."""
        return (self.certificates.fault,) if self.certificates.fault else ()

    def describe(self) -> TlsStatus:
        """Return what `GET /v2/status` says."""
        certificates, gate = self.certificates, self._gate
        return {
            "until": written(certificates.until_s),
            "renewals": certificates.renewals,
            "fault": certificates.fault,
            "handshakes": gate.done,
            "failed": dict(gate.ended),
        }

    def present(self) -> TlsPresent:
        """Return what metrics show."""
        certificates, gate = self.certificates, self._gate
        handshakes = {"done": gate.done, **gate.ended}
        return TlsPresent(handshakes, gate.under_way, certificates.until_s, not certificates.fault)
