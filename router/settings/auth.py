"""`auth:` as AuthSettings: whether callers need an API key, and which file lists the keys."""

import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from router.settings.findings import Findings
from router.settings.problems import fault, shown
from router.settings.schema import AuthSection

_LOC = ("auth",)
_EXPECTED = "keys: keys.yaml, say; `penstock key new` makes that file"


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """`keys`: the file of the keys. `metrics`: whether the metrics port asks for a key too."""

    keys: Path
    metrics: bool = False


def read_auth(findings: Findings, host: str) -> AuthSettings | None:
    """The section; None where there is none, which is a warning where `host` is not this machine alone."""
    top, value = findings.document.value, findings.document.at(_LOC)
    if isinstance(top, dict) and "auth" in top and value is None:
        findings.add(_LOC, fault("no keys file", value, _EXPECTED))
        return None
    if isinstance(value, dict):
        section = findings.parse(AuthSection, _LOC)
        if section is None:
            return None
        return AuthSettings(
            Path(os.path.abspath(findings.document.file.parent / section.keys)), section.metrics
        )
    if not is_loopback(host):
        findings.warn(
            ("server", "host"),
            f"the gateway listens on {shown(host)} without keys: whoever reaches it can run models, unload "
            "them and change their placement; `auth: {keys: keys.yaml}` asks for keys",
        )
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server on that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
