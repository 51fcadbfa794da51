"""Entries of the keys file: a new one at its end, one taken out. All other lines stay as they are, comments
included. What is to be written is read before it counts."""

import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from router.security.auth.keys import PREFIX, SECRET_CHARS, hash_of
from router.settings.keys import ID_CHARS, KeySpec, read_keys
from router.settings.values.document import read_document
from router.settings.values.problems import SettingsError, unknown_name
from serving.profile.files.shared_files import replace_file

OWNER_ONLY: Final = 0o600

Entry = dict[str, str | list[str]]
"""What a new entry says beside `id` and `hash`, by key; what it leaves out has its default."""


class IssueError(Exception):
    """It cannot be done, and the file is as it was; the text is a sentence, or a line for each fault."""


class NewKey(NamedTuple):
    """`text` is what its caller sends, `id` and `hash` what the keys file has of it."""

    text: str
    id: str
    hash: str


def make_key() -> NewKey:
    """Return a new key, from the system's source of randomness."""
    key_id = secrets.token_hex(ID_CHARS // 2)
    text = f"{PREFIX}{key_id}_{secrets.token_hex(SECRET_CHARS // 2)}"
    return NewKey(text, key_id, hash_of(text))


def add_key(path: Path, entry: Entry, tenants: Sequence[str] | None) -> str:
    """Return a new key with that entry, which is in the file when this returns; the file is made where there
    is none. `tenants`: as `read_keys`. IssueError where it cannot be."""
    key = make_key()
    said: Entry = {"name": entry["name"], "id": key.id, "hash": key.hash}
    _append(path, said | entry, tenants)
    return key.text


def add_certificate(path: Path, entry: Entry, tenants: Sequence[str] | None) -> None:
    """Put an entry for a client's certificate, which it names, into the file. As `add_key`."""
    _append(path, entry, tenants)


def _append(path: Path, said: Entry, tenants: Sequence[str] | None) -> None:
    name = said["name"]
    before, found = _read(path, tenants)
    if any(each.name == name for each in before):
        raise IssueError(f"{path} has a key {name}; expected another name, or `penstock key revoke {name}`")
    lines = [f"{word}: {json.dumps(value)}" for word, value in said.items()]
    text = found + ("\n" if found and not found.endswith("\n") else "") + "- " + "\n  ".join(lines) + "\n"
    after = _keys_in(text, tenants)
    if after[:-1] != before or not after or after[-1].name != name:
        raise IssueError(f"{path}: nothing can be added; expected entries whose '- ' begins their line")
    _write(path, found, text)


def revoke_key(path: Path, name: str) -> None:
    """Remove the key of that name from the file. Raises IssueError if the file has none, or if the key's
    lines hold more than the key."""
    before, found = _read(path, None)
    names = [each.name for each in before]
    if name not in names:
        raise IssueError(f"{path}: {unknown_name('no key of that name', name, names)}")
    place = names.index(name)
    places = read_document(path).value_places
    own = [line for loc, (line, _) in places.items() if loc[:1] == (place,)]
    lines = found.splitlines(keepends=True)
    text = "".join([*lines[: min(own) - 1], *lines[max(own) :]])
    try:
        sound = _keys_in(text, None) == (*before[:place], *before[place + 1 :])
    except IssueError:
        sound = False
    if not sound:
        raise IssueError(f"{path}:{min(own)}: the key's lines hold more than the key; take it out by hand")
    _write(path, found, text)


def _read(path: Path, tenants: Sequence[str] | None) -> tuple[tuple[KeySpec, ...], str]:
    """Return the keys and the text of the file; neither where there is none."""
    if not os.path.lexists(path):
        return (), ""
    try:
        return read_keys(path, tenants), path.read_text("utf-8")
    except SettingsError as error:
        raise IssueError(str(error)) from None


def _keys_in(text: str, tenants: Sequence[str] | None) -> tuple[KeySpec, ...]:
    """Return the keys of a file with that text. IssueError where it would be faulty."""
    with TemporaryDirectory(prefix="penstock-keys-") as folder:
        file = Path(folder, "keys.yaml")
        file.write_text(text, "utf-8")
        try:
            return read_keys(file, tenants)
        except SettingsError as error:
            faults = [f"{each.where}: {each.message}" for each in error.problems]
            raise IssueError("\n".join(faults)) from None


def _write(path: Path, before: str, text: str) -> None:
    """Write `text` in place of `before`. Only the file's owner can read it, or the users that could read the
    file before."""
    target = path.resolve()
    try:
        about = target.stat() if target.exists() else None
        if (target.read_text("utf-8") if about else "") != before:
            raise IssueError(f"{path} was changed meanwhile; try again")
        replace_file(target, text, OWNER_ONLY if about is None else about.st_mode & 0o777)
        if about is not None:
            with suppress(PermissionError):
                os.chown(target, about.st_uid, about.st_gid)
    except OSError as error:
        raise IssueError(f"{path}: cannot be written: {error.strerror}") from None
