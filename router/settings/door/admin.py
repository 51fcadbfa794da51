"""`admin:` as AdminSettings: the door of everything that changes what a gateway does."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from router.commandline.reading import UNIX
from router.settings.door.addresses import url_of
from router.settings.values.findings import Findings
from router.settings.values.problems import fault
from router.settings.values.schema import AdminSection

SOCKET_BYTES_MAX: Final = 107
"""Of the path of a Unix socket: `sun_path` has 108 bytes (unix(7)), and the last is zero."""
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_LOC: Final = ("admin",)


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Where the admin door is: a port (0: any free one), or the Unix socket `socket` in its place.

    `hosts`: more names by which clients may call the door. `on_inference_ports`: REST and gRPC ports take
    changes too. `feedback`: feedback on answers counts as a change. `secure`: its port speaks TLS.
    """

    host: str = "127.0.0.1"
    port: int = 8004
    socket: Path | None = None
    hosts: tuple[str, ...] = ()
    on_inference_ports: bool = False
    feedback: bool = False
    secure: bool = False

    @property
    def address(self) -> str:
        """Where this machine finds the door, as `--url` takes it; "" where the port is any free one."""
        if self.socket is not None:
            return f"{UNIX}{self.socket}"
        return url_of(self.host, self.port, secure=self.secure)


def read_admin(findings: Findings, ports: Mapping[str, int]) -> AdminSettings:
    """Return the section, with the defaults for what it leaves out. `ports`: those of `server:`, by key."""
    stated = isinstance(findings.document.at(_LOC), dict)
    section = (findings.parse(AdminSection, _LOC) if stated else None) or AdminSection()
    defaults = AdminSettings()
    socket = _read_socket(findings, section) if section.socket is not None else None
    for place, name in enumerate(section.hosts):
        if not _HOST_NAME.fullmatch(name):
            expected = "a name without scheme and port, such as ops.example.com"
            findings.add((*_LOC, "hosts", place), fault("not a host name", name, expected))
    admin = AdminSettings(
        defaults.host if section.host is None else section.host,
        defaults.port if section.port is None else section.port,
        socket,
        tuple(section.hosts),
        section.on_inference_ports,
        section.feedback,
    )
    taken = next((key for key, port in ports.items() if port and port == admin.port), "")
    if taken and section.socket is None:
        expected = "a port of its own (0 picks a free one)"
        if section.port is None:
            findings.add(("server", taken), fault("the port of the admin door", admin.port, expected))
        else:
            findings.add((*_LOC, "port"), fault(f"the same port as server.{taken}", admin.port, expected))
    return admin


def _read_socket(findings: Findings, section: AdminSection) -> Path:
    """Return its absolute path. The folder need not be there yet: it may be made as the gateway starts."""
    loc = (*_LOC, "socket")
    if section.host is not None or section.port is not None:
        findings.add(loc, "a socket takes the place of host and port; expected the one or the other")
    path = Path(os.path.abspath(findings.document.file.parent / str(section.socket)))
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError:
        length = 0
    if not length or "\0" in str(path):
        findings.add(loc, fault("no possible name", path, "a path such as /run/penstock.sock"))
    elif length > SOCKET_BYTES_MAX:
        findings.add(loc, fault(f"a path of {length} bytes", path, f"at most {SOCKET_BYTES_MAX}"))
    return path
