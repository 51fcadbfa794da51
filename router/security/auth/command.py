"""`penstock key`: API keys for the callers of a gateway."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from router.security.auth.issuing import Entry, IssueError, add_certificate, add_key, revoke_key
from router.security.auth.options import KeyOptions
from router.settings import SettingsError, load_settings
from router.settings.keys import KeySpec, read_keys, tenants_of


def new(asked: KeyOptions) -> int:
    """Print a new key, once; or add an entry for a certificate. Returns the exit code."""
    try:
        path, tenants = _find(asked.config, asked.keys)
        if asked.certificate:
            add_certificate(path, entry(asked), tenants)
            sys.stderr.write(f"{path} has an entry for certificates that name {asked.certificate}.\n")
            return 0
        key = add_key(path, entry(asked), tenants)
    except (IssueError, SettingsError) as error:
        return _fail(error)
    sys.stdout.write(f"{key}\n")
    sys.stderr.write(f"The key of {asked.name}, shown this once: {path} has its hash only.\n")
    return 0


def entry(asked: KeyOptions) -> Entry:
    """Return what a new entry of the keys file says beside the key itself."""
    found: Entry = {"name": asked.name}
    if asked.certificate:
        found["certificate"] = asked.certificate
    if asked.tenant:
        found["tenant"] = asked.tenant
    for what, named in (("roles", asked.roles), ("models", asked.models), ("tiers", asked.tiers)):
        if named:
            found[what] = [each.strip() for each in named.split(",")]
    if asked.expires:
        found["expires"] = asked.expires
    return found


def show(config: Path, keys: Path | None) -> int:
    """Print a line for each key. Returns the exit code."""
    try:
        found = read_keys(*_find(config, keys))
    except (IssueError, SettingsError) as error:
        return _fail(error)
    rows = [("NAME", "ID", "TENANT", "ROLES", "MODELS", "TIERS", "EXPIRES"), *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    return 0


def revoke(name: str, config: Path, keys: Path | None) -> int:
    """Take a key out of the file. Returns the exit code."""
    try:
        path, _ = _find(config, keys)
        revoke_key(path, name)
    except (IssueError, SettingsError) as error:
        return _fail(error)
    sys.stderr.write(f"{name} is revoked; a gateway that runs refuses it within a second.\n")
    return 0


def _find(config: Path, keys: Path | None) -> tuple[Path, Sequence[str] | None]:
    """Return the keys file, and the tenants that its keys may be of; None where no settings say."""
    if keys is not None:
        return keys, None
    settings = load_settings(config)
    if settings.auth is None:
        expected = "`auth: {keys: keys.yaml}` there, or --keys FILE"
        raise IssueError(f"{config} has no `auth:`; expected {expected}")
    return settings.auth.keys, tenants_of(settings)


def _row(key: KeySpec) -> tuple[str, ...]:
    every = ("all" if names is None else ",".join(names) for names in (key.models, key.tiers))
    until = "never" if key.expires_s == inf else datetime.fromtimestamp(key.expires_s, UTC).isoformat()
    return key.name, key.id or key.certificate, key.tenant, ",".join(key.roles), *every, until


def _fail(error: Exception) -> int:
    sys.stderr.write(f"{error}\n")
    return 1
