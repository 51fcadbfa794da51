"""The file of API keys as KeySpecs. It holds no key, only what tells one when it comes."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, PlainValidator

from router.settings.gateway import Settings
from router.settings.values.document import read_document
from router.settings.values.fields import Name, Names, check_names, refuse
from router.settings.values.findings import Findings
from router.settings.values.problems import SettingsError, SettingsProblem, fault, one_of, shown, unknown_name
from router.settings.values.schema import Section
from serving.values.specs import DEFAULT_TENANT

INFER, READ, ADMIN = ROLES = ("infer", "read", "admin")
ID_CHARS: Final = 12
HASH_CHARS: Final = 64
_CERTIFICATE: Final = re.compile(r"(DNS:|URI:|CN=)[ -~]{1,1000}\Z")


def _check_roles(value: object) -> object:
    names = check_names(value)
    for name in names if isinstance(names, list) else ():
        if name not in ROLES:
            raise refuse(unknown_name("unknown role", name, ROLES))
    return names


def _check_digits(what: str, count: int) -> Callable[[object], object]:
    """Return a validator. It shows no value: in the place of a hash there may stand a key."""
    digits = re.compile(rf"[0-9a-f]{{{count}}}\Z")

    def check(value: object) -> object:
        if isinstance(value, str) and digits.match(value):
            return value
        expected = f"{count} hexadecimal digits in quotes, as `penstock key new` writes"
        raise refuse(f"not {what}; expected {expected}")

    return check


def _check_instant(text: str) -> str:
    try:
        instant_s(text)
    except (ValueError, OverflowError):
        raise refuse(
            fault("not an instant", text, "a date such as 2027-01-31, or 2027-01-31T18:00Z")
        ) from None
    return text


def instant_s(text: str) -> float:
    """Return a date, or a date with a time, as Unix time in seconds; of a date its first moment, UTC where it
    names no zone. ValueError where it is none."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _check_certificate(text: str) -> str:
    if not _CERTIFICATE.match(text):
        expected = "DNS:app1.example.com, URI:spiffe://example.com/app1 or CN=app1"
        raise refuse(fault("no name of a certificate", text, expected))
    return text


class KeySection(Section):
    """An entry of the keys file: of a key, which has `id` and `hash`, or of a client's certificate."""

    name: Name
    id: Annotated[str, PlainValidator(_check_digits("the id of a key", ID_CHARS))] = ""
    hash: Annotated[str, PlainValidator(_check_digits("the hash of a key", HASH_CHARS))] = ""
    certificate: Annotated[str, AfterValidator(_check_certificate)] | None = None
    tenant: Name = DEFAULT_TENANT
    roles: Annotated[list[str], PlainValidator(_check_roles)]
    models: Names | None = None
    tiers: Names | None = None
    expires: Annotated[str, AfterValidator(_check_instant)] | None = None


@dataclass(frozen=True, slots=True)
class KeySpec:
    """One key. `id` is the part of it that is no secret, `hash` the SHA-256 of all of it, in hexadecimal
    digits. `models` and `tiers`: None for all. `expires_s`: Unix time from which on it counts no more.
    `certificate`: the name in a client's certificate that takes the place of a key, which then has neither id
    nor hash."""

    name: str
    id: str
    hash: str
    tenant: str
    roles: tuple[str, ...]
    models: tuple[str, ...] | None = None
    tiers: tuple[str, ...] | None = None
    expires_s: float = inf
    certificate: str = ""


def tenants_of(settings: Settings) -> tuple[str, ...]:
    """Return the tenants that a key may be of."""
    return (*dict.fromkeys((*(each.name for each in settings.tenants), DEFAULT_TENANT)),)


def read_keys(path: Path, tenants: Collection[str] | None) -> tuple[KeySpec, ...]:
    """Return the keys of the file, in its order; none where it is empty. `tenants`: those that a key may be
    of, None for any. SettingsError with everything that is wrong with the file."""
    return _read(path, tenants)[0]


def check_keys(settings: Settings) -> tuple[tuple[KeySpec, ...], tuple[SettingsProblem, ...]]:
    """Return the keys of these settings, () without `auth:`; and what of them hardly is as it was meant.
    SettingsError as `read_keys`."""
    if settings.auth is None:
        return (), ()
    keys, findings = _read(settings.auth.keys, tenants_of(settings))
    served = [model.name for model in settings.models]
    tiers = [*dict.fromkeys(each.tier for model in settings.models for each in model.tiers)]
    for place, key in enumerate(keys):
        for what, named, known in (("models", key.models, served), ("tiers", key.tiers, tiers)):
            for at, name in enumerate(named or ()):
                if name not in known:
                    message = unknown_name(f"not one of the {what} that are served", name, known)
                    findings.warn((place, what, at), message)
    if settings.server.tls is None or settings.server.tls.client_ca is None:
        for place, key in enumerate(keys):
            if key.certificate:
                expected = "expected `server: {tls: {client_ca: ...}}` in penstock.yaml"
                findings.warn((place, "certificate"), f"no client is asked for a certificate; {expected}")
    if not keys:
        findings.warn((), "there is no key: all but health probes is refused; `penstock key new` makes one")
    return keys, tuple(sorted(findings.warnings))


def _read(path: Path, tenants: Collection[str] | None) -> tuple[tuple[KeySpec, ...], Findings]:
    if not path.exists():
        message = "no such file; `penstock key new` makes it"
        raise SettingsError([SettingsProblem(str(path), 1, 1, "", message)])
    findings = Findings(read_document(path, may_be_empty=True))
    entries = findings.document.value
    if entries is not None and not isinstance(entries, list):
        findings.add((), "not a list of keys; expected entries that begin with '- name: '")
        entries = None
    keys = [_read_key(findings, place, tenants) for place in range(len(entries or ()))]
    found = [key for key in keys if key is not None]
    _check_distinct(findings, keys)
    findings.stop_if_any()
    return tuple(found), findings


def _read_key(findings: Findings, place: int, tenants: Collection[str] | None) -> KeySpec | None:
    if not isinstance(findings.document.at((place,)), dict):  # it may be a key: it is not shown
        findings.add(
            (place,),
            "not a mapping; expected name, id, hash and roles",
        )
        return None
    section = findings.parse(KeySection, (place,))
    if section is None:
        return None
    _check_proof(findings, place, section)
    if tenants is not None and section.tenant not in tenants:
        what = "a tenant that `tenants:` of penstock.yaml does not list"
        findings.add((place, "tenant"), unknown_name(what, section.tenant, tenants))
    if section.models is not None and ADMIN in section.roles:
        what = f"a key of role {ADMIN} changes all of the gateway"
        findings.add((place, "models"), f"{what}; expected no models here, or {one_of(ROLES[:-1])} as role")
    return KeySpec(
        section.name,
        section.id,
        section.hash,
        section.tenant,
        tuple(section.roles),
        None if section.models is None else tuple(section.models),
        None if section.tiers is None else tuple(section.tiers),
        inf if section.expires is None else instant_s(section.expires),
        section.certificate or "",
    )


def _check_proof(findings: Findings, place: int, section: KeySection) -> None:
    """Check that the entry says by what its caller is known: a key, or a certificate."""
    stated = findings.document.at((place,))
    keys = stated.keys() if isinstance(stated, dict) else ()
    for each in ("id", "hash"):
        if section.certificate is None and each not in keys:
            findings.add((place,), f"{each} is missing; expected id and hash, or the certificate of a client")
        elif section.certificate is not None and each in keys:
            expected = "a certificate takes the place of id and hash; expected the one or the others"
            findings.add((place, each), expected)


def _check_distinct(findings: Findings, keys: list[KeySpec | None]) -> None:
    """Check that names, ids and certificates differ: a key is revoked by its name, found by the others."""
    names: dict[str, int] = {}
    ids: dict[str, int] = {}
    certificates: dict[str, int] = {}
    for place, key in enumerate(keys):
        if key is None:
            continue
        for what, value, seen in (
            ("name", key.name, names),
            ("id", key.id, ids),
            ("certificate", key.certificate, certificates),
        ):
            if value and seen.setdefault(value, place) != place:
                message = f"{shown(value)} is that of entry [{seen[value]}] too; expected another {what}"
                findings.add((place, what), message)
