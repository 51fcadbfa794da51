"""The certificates in force, and what follows their files: a renewed one serves new connections."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from router.settings.door.certificates import CertificateError, inspect, make_context, written
from router.settings.door.tls import TlsSettings
from router.settings.file_following import changes

logger = logging.getLogger(__name__)

SETTLE_S: Final = 2.0
"""Who renews a certificate writes two files, one after the other: a fault counts if it is there so long."""


class Certificates:
    """What servers show and ask for. `until_s`: Unix time when the certificate in force ends; `renewals`,
    `refused`: how many editions of the files came into force, and how many did not; `fault`: why the latest
    did not, "" where it did. `pem`: the key, the certificate and the authorities of clients, as grpc takes
    them."""

    def __init__(self, tls: TlsSettings, now_s: Callable[[], float] = time.time) -> None:
        """Raise CertificateError where the files cannot serve."""
        self.tls = tls
        self.renewals = 0
        self.refused = 0
        self.fault = ""
        self._now_s = now_s
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self.until_s = inspect(tls, now_s()).until_s
        self._editions = self._read()
        self.pem = _pem(self._editions)

    def context(self, protocols: Sequence[str]) -> ssl.SSLContext:
        """Return the context of a server that speaks these protocols (names of ALPN), the dearest first."""
        key = tuple(protocols)
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = _context(self.tls, key)
        return found

    def renew(self) -> bool:
        """Take the files as they are now; return whether they are other ones. CertificateError where they
        cannot serve: what was in force stays."""
        editions = self._read()
        if editions == self._editions:
            return False
        validity = inspect(self.tls, self._now_s())
        contexts = {protocols: _context(self.tls, protocols) for protocols in self._contexts}
        if editions != self._read():
            raise CertificateError("cert", f"{self.tls.cert}: the files were written to while they were read")
        self._contexts, self._editions, self.until_s = contexts, editions, validity.until_s
        self.pem = _pem(editions)
        self.renewals += 1
        return True

    def _read(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        tls = self.tls
        return _content(tls.cert), _content(tls.key), _content(tls.client_ca)


def _pem(editions: tuple[bytes | None, bytes | None, bytes | None]) -> tuple[bytes, bytes, bytes | None]:
    cert, key, client_ca = editions
    return key or b"", cert or b"", client_ca


def _content(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None and path.is_file() else None


def _context(tls: TlsSettings, protocols: tuple[str, ...]) -> ssl.SSLContext:
    context = make_context(tls)
    context.set_alpn_protocols(list(protocols))
    return context


class CertificateWatch:
    """Follows the files of the certificates into force, until it is cancelled."""

    def __init__(self, certificates: Certificates, say: Callable[[str], None]) -> None:
        self._certificates = certificates
        self._say = say
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        """Follow the files."""
        tls = self._certificates.tls
        paths = {path for path in (tls.cert, tls.key, tls.client_ca) if path is not None}
        await asyncio.gather(*(self._follow(path) for path in paths))

    async def _follow(self, path: Path) -> None:
        await self.look()  # it may have been renewed since it was read at the start
        try:
            async for _ in changes(path):
                await self.look()
        except Exception as error:  # of inotify: watches are a bounded resource of the machine
            logger.exception("watching %s failed", path)
            self._say(f"{path} is not watched any more, a renewal needs a restart: {error}")

    async def look(self) -> None:
        """Take the files where they are other ones; one that stays faulty is said once."""
        certificates = self._certificates
        async with self._looking:
            if not await self._fault():
                return
            await asyncio.sleep(SETTLE_S)
            fault = await self._fault()
            if fault and fault != certificates.fault:
                certificates.refused += 1
                logger.error("the renewed certificate is refused, the one before stays in force: %s", fault)
            certificates.fault = fault

    async def _fault(self) -> str:
        """Return why the files cannot be in force; "" where they are."""
        certificates = self._certificates
        try:
            if await asyncio.to_thread(certificates.renew):
                self._say(
                    f"{certificates.tls.cert} is renewed and serves new connections; it is valid until "
                    f"{written(certificates.until_s)}"
                )
        except CertificateError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename}: cannot be read: {error.strerror}"
        certificates.fault = ""
        return ""
