"""The files of `server: {tls: ...}`, looked at before they serve: what is wrong with them, and until when the
certificate is valid.

The ssl module shows no certificate of its own side. So the certificate is shown to a client in this process:
a handshake in memory. That finds at the same time what no file shows, such as a key that is too weak.
"""

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from router.settings.door.tls import TlsSettings
from serving.profile.files.shared_files import open_regular

DAY_S: Final = 86_400.0
SOON_S: Final = 14 * DAY_S
"""A certificate that expires within this is worth a warning: most are renewed 30 days before."""
SOON_SHARE: Final = 1 / 4
"""Of a short life the warning comes with less left than this share."""
FILE_BYTES_MAX: Final = 1 << 20
STEPS_MAX: Final = 8
"""Of the handshake in memory; two are enough."""
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL: the dates are looked at afterwards."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_KEY: Final = "PRIVATE KEY-----"

CERT, KEY, CLIENT_CA = FILES = ("cert", "key", "client_ca")


class CertificateError(Exception):
    """The files cannot serve. `which`: the setting whose file is at fault; `message`: a sentence."""

    def __init__(self, which: str, message: str) -> None:
        super().__init__(message)
        self.which = which
        self.message = message


@dataclass(frozen=True, slots=True)
class Validity:
    """From when until when a certificate is valid, in seconds of Unix time."""

    from_s: float
    until_s: float

    def is_soon_over(self, now_s: float) -> bool:
        """Return whether it is time to renew the certificate."""
        return self.until_s - now_s < min(SOON_S, (self.until_s - self.from_s) * SOON_SHARE)


def written(instant_s: float) -> str:
    """Return an instant as messages show it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(instant_s))


def make_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return what a server shows and asks for: TLS 1.2 or later, ciphers with forward secrecy and
    authenticated encryption only (of TLS 1.2 those that RFC 9113, 9.2.2, allows HTTP/2). CertificateError."""
    _look_at_texts(tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL")
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
    except ssl.SSLError as error:
        raise _pair_fault(tls, error) from None
    except OSError as error:
        raise CertificateError(CERT, f"{tls.cert}: cannot be read: {error.strerror}") from None
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (ssl.SSLError, OSError):
            expected = "expected the certificates (PEM) of the authorities that sign clients' certificates"
            raise CertificateError(CLIENT_CA, f"{tls.client_ca}: no certificates; {expected}") from None
        context.verify_mode = ssl.CERT_REQUIRED if tls.requires else ssl.CERT_OPTIONAL
    return context


def inspect(tls: TlsSettings, now_s: float) -> Validity:
    """Return until when the certificate is valid. Raises CertificateError if it is not valid now, or if the
    files cannot serve."""
    make_context(tls)
    validity = _validity(tls)
    if validity.until_s <= now_s:
        cure = "renew it; the gateway takes the new file without a restart"
        raise CertificateError(
            CERT, f"{tls.cert}: the certificate expired {written(validity.until_s)}; {cure}"
        )
    if validity.from_s > now_s:
        cure = "check this machine's clock, or wait"
        raise CertificateError(
            CERT, f"{tls.cert}: the certificate is valid only from {written(validity.from_s)}; {cure}"
        )
    return validity


def _look_at_texts(tls: TlsSettings) -> None:
    cert, key = _text(CERT, tls.cert), _text(KEY, tls.key)
    if _BEGIN not in cert:
        expected = "expected PEM, the server's certificate first and then those that signed it"
        raise CertificateError(CERT, f"{tls.cert}: no certificate; {expected}")
    if _KEY not in key:
        raise CertificateError(KEY, f"{tls.key}: no private key; expected PEM, without a password")
    if "ENCRYPTED" in key:
        cure = f"`openssl pkey -in {tls.key.name} -out plain.key` writes it without"
        raise CertificateError(KEY, f"{tls.key}: the key has a password, which no gateway knows; {cure}")
    if tls.client_ca is not None:
        _text(CLIENT_CA, tls.client_ca)


def _text(which: str, path: Path) -> str:
    try:
        with open_regular(path) as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise CertificateError(which, f"{path}: no such file") from None
    except PermissionError:
        cure = "let the user that runs the gateway read it"
        raise CertificateError(which, f"{path}: cannot be read: permission denied; {cure}") from None
    except OSError as error:
        raise CertificateError(which, f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise CertificateError(which, f"{path}: over {FILE_BYTES_MAX >> 20} MB; expected a PEM file")
    return data.decode("latin-1")


def _pair_fault(tls: TlsSettings, error: ssl.SSLError) -> CertificateError:
    if error.reason in ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
        cure = "expected the key with which this certificate was requested"
        return CertificateError(KEY, f"{tls.key}: the key does not match the certificate {tls.cert}; {cure}")
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        cure = "use RSA of 2048 bits or more, or an EC key such as P-256"
        return CertificateError(CERT, f"{tls.cert}: OpenSSL refuses a key or signature so weak; {cure}")
    what = (error.reason or "PEM that OpenSSL cannot read").replace("_", " ").lower()
    return CertificateError(CERT, f"{tls.cert} and {tls.key}: cannot be used together ({what})")


def _validity(tls: TlsSettings) -> Validity:
    shown: dict[str, Any] = _shown(tls) or {}
    if "notAfter" not in shown:
        expected = "expected one for servers (extended key usage serverAuth)"
        raise CertificateError(CERT, f"{tls.cert}: the certificate cannot be shown to clients; {expected}")
    dates = (ssl.cert_time_to_seconds(shown[name]) for name in ("notBefore", "notAfter"))
    return Validity(*dates)


def _shown(tls: TlsSettings) -> Any:
    """Return what a client sees of the certificate; None if no client takes it."""
    text = _text(CERT, tls.cert)
    leaf = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(tls.cert, tls.key, password=lambda: "")
    client.check_hostname = False
    client.load_verify_locations(cadata=leaf)
    client.verify_flags |= ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there)
    for _ in range(STEPS_MAX):
        for side in reversed(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return None
            if side is sides[1]:
                return side.getpeercert()
    return None
