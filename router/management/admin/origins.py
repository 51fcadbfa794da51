"""Whether a request may come from a page of another site: such a page changes nothing here.

A browser sends a plain POST of any page without asking the server first, and says in `Origin` and
`Sec-Fetch-Site` where it comes from (https://fetch.spec.whatwg.org, "origin header"; W3C Fetch Metadata). A
page whose host name was made to point here (DNS rebinding) says that name in `Host`.
"""

from collections.abc import Collection, Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from router.tensors.parts.wording import quoted

_OWN_PAGES: Final = ("same-origin", "none")
"""Values of Sec-Fetch-Site of a page of this server, and of what a person does without any page."""


def stranger(fields: Iterable[tuple[bytes, bytes]], hosts: Collection[str]) -> str:
    """Return why these header fields (lower-case names) are not of a client that may change something; ""
    where they are. `hosts`: names of this server, in lower case, beside localhost and all addresses."""
    said: dict[str, list[str]] = {}
    for name, value in fields:
        said.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    host = said.get("host", [""])[-1]
    if not _is_own(_name_of(host), hosts):
        hint = "call it by an address or localhost, or list the name under `admin: {hosts: [...]}`"
        return f"Host {quoted(host)} is no name of this gateway: {hint}"
    for origin in said.get("origin", ()):
        if _authority(origin) != host.lower():
            return f"a page of another origin, {quoted(origin)}, may change nothing here"
    for site in said.get("sec-fetch-site", ()):
        if site not in _OWN_PAGES:
            return f"a page of another site (Sec-Fetch-Site: {quoted(site)}) may change nothing here"
    return ""


def _is_own(name: str, hosts: Collection[str]) -> bool:
    """Return whether a name is our own. An address is: no name server can turn it elsewhere, nor can one turn
    localhost (RFC 6761, 6.3)."""
    if name == "localhost" or name.endswith(".localhost") or name in hosts:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _name_of(host: str) -> str:
    """Return the host name without the port; "" if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _authority(origin: str) -> str:
    """Host and port of an origin, as in Host; of `null`, what no Host is."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
