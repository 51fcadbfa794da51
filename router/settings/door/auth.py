"""`auth:` as AuthSettings: whether callers need an API key, and which file lists the keys."""

import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from router.settings.door.admin import AdminSettings
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, shown
from router.settings.values.schema import AuthSection

_LOC = ("auth",)
_CHANGE = "unload models and change their placement"
_EXPECTED = "keys: keys.yaml, say; `penstock key new` makes that file"


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """`keys`: the file of the keys. `metrics`: whether the metrics port asks for a key too."""

    keys: Path
    metrics: bool = False


def read_auth(findings: Findings, host: str, admin: AdminSettings) -> AuthSettings | None:
    """Return the section; None where there is none, which is a warning where others than this machine reach
    the inference ports, which are on `host`, or the admin door."""
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
        may = f"run models, {_CHANGE}" if admin.on_inference_ports else "run models"
        _warn(findings, ("server", "host"), f"the gateway listens on {shown(host)}", may)
    if admin.socket is None and not is_loopback(admin.host):
        _warn(findings, ("admin", "host"), f"the admin door listens on {shown(admin.host)}", _CHANGE)
    return None


def _warn(findings: Findings, loc: Loc, listens: str, may: str) -> None:
    asks = "`auth: {keys: keys.yaml}` asks for keys"
    findings.warn(loc, f"{listens} without keys: whoever reaches it can {may}; {asks}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server on that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
