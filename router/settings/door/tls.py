"""`server: {tls: ...}` as TlsSettings: which files encrypt all ports, which clients' certificates count."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from router.settings.values.fields import Text
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc
from router.settings.values.schema import Section

LOC: Loc = ("server", "tls")


class TlsSection(Section):
    """`tls:` of `server:`; paths are relative to the settings file."""

    cert: Text
    key: Text
    client_ca: Text | None = None
    client_cert: Literal["require", "ask"] | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """`cert`: the server's certificate, and those that signed it; `key`: its private key; both PEM.

    `client_ca`: who signs certificates of clients; None where they show none. `requires`: whether a client
    without a certificate ends with the handshake.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    requires: bool = False


def read_tls(findings: Findings) -> TlsSettings | None:
    """Return the section of a document; None where there is none, or where it is faulty."""
    value = findings.document.at(LOC)
    if not isinstance(value, dict):
        return None
    section = findings.parse(TlsSection, LOC)
    if section is None:
        return None
    folder = findings.document.file.parent
    paths = [
        None if each is None else Path(os.path.abspath(folder / each))
        for each in (section.cert, section.key, section.client_ca)
    ]
    cert, key, client_ca = paths
    if cert is None or key is None:
        return None
    if section.client_cert is not None and client_ca is None:
        expected = "expected client_ca, the authorities that sign clients' certificates"
        findings.add((*LOC, "client_cert"), f"nothing says which certificates of clients count; {expected}")
    if section.client_cert == "ask" and findings.document.at(("server", "grpc")) == "grpcio":
        expected = "expected `grpc: ngh2`, or `client_cert: require`"
        findings.warn((*LOC, "client_cert"), f"the grpcio server never asks, it only requires; {expected}")
    return TlsSettings(cert, key, client_ca, client_ca is not None and section.client_cert != "ask")
