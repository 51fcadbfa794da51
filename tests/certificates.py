"""Certificates to test with, made by the openssl program in a folder of the test. No key is committed."""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Final

import pytest

from router.settings.door.tls import TlsSettings

EC: Final = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
RSA: Final = ("rsa:2048",)
LOCAL: Final = "DNS:localhost,IP:127.0.0.1"


class Authority:
    """Signs certificates. `ca`: the file that names it."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._name = folder, name
        self.ca = folder / f"{name}.pem"
        options = ("-days", "30", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        self._openssl("req", "-x509", "-newkey", *EC, "-nodes", *options)

    def sign(
        self, name: str, names: str = LOCAL, common: str = "", days: int = 30, kind: tuple[str, ...] = EC
    ) -> Path:
        """Make NAME.pem and NAME.key, and return the former. `names`: alternative names, as openssl writes
        them."""
        subject = f"/CN={common or name}"
        request = ("-newkey", *kind, "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        self._openssl("req", *request, "-subj", subject)
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={names}" if names else "")
        signed = ("-in", f"{name}.csr", "-CA", f"{self._name}.pem", "-CAkey", f"{self._name}.key")
        more = ("-CAcreateserial", "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        self._openssl("x509", "-req", *signed, *more)
        return self.folder / f"{name}.pem"

    def encrypt_key(self, name: str) -> Path:
        """Return another file with NAME's key, behind a password."""
        self._openssl("ec", "-in", f"{name}.key", "-aes256", "-passout", "pass:a b", "-out", f"{name}.locked")
        return self.folder / f"{name}.locked"

    def tls(self, name: str = "server", client_ca: Path | None = None, requires: bool = False) -> TlsSettings:
        """Return settings for a certificate that was made before."""
        return TlsSettings(self.folder / f"{name}.pem", self.folder / f"{name}.key", client_ca, requires)

    def client(self, name: str = "") -> ssl.SSLContext:
        """Return what a client trusts, and shows: the certificate of that name, if any."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if name:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context

    def _openssl(self, *arguments: str) -> None:
        command = ("openssl", *arguments)
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=60)


def authority(folder: Path) -> Authority:
    """Return an authority with a server's certificate and a client's; the test is skipped without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl program is not installed")
    made = Authority(folder)
    made.sign("server")
    made.sign("app1", "URI:spiffe://example.com/app1,DNS:app1.example.com", "application one")
    return made
