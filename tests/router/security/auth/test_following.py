"""The keys file is followed: an edit counts whole and soon, a faulty one is refused and nothing changes."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from router.security.auth.following import KeyWatch, differences
from router.security.auth.guard import KeyGuard
from router.security.auth.issuing import NewKey, add_key, make_key, revoke_key
from router.security.auth.keys import KeyFile
from router.settings import load_settings
from router.settings.keys import KeySpec, read_keys
from tests.router.settings.samples import write_deployment

SETTINGS = "auth: {keys: keys.yaml}\ntenants: [{name: gold}]\nmodels: [{path: models/digits}]\n"


def entry(name: str, key: NewKey, **more: str) -> str:
    said = {"name": name, "id": f'"{key.id}"', "hash": f'"{key.hash}"', "roles": "[infer]"} | more
    return "- {" + ", ".join(f"{word}: {value}" for word, value in said.items()) + "}\n"


class Followed:
    """A keys file with one key, `first`, and a watch over it."""

    def __init__(self, home: Path) -> None:
        self.path = home / "keys.yaml"
        self.first, self.second = make_key(), make_key()
        self.write(entry("first", self.first))
        settings = load_settings(write_deployment(home, SETTINGS))
        self.guard = KeyGuard(KeyFile(read_keys(self.path, None)))
        self.said: list[str] = []
        self.news = asyncio.Event()
        self.watch = KeyWatch(settings, self.guard, self.say)

    def write(self, text: str) -> None:
        self.path.write_text(text)

    @property
    def counts(self) -> list[bool]:
        """Whether the first key does, and the second."""
        find = self.guard.keys.find
        return [find(each.text.encode()) is not None for each in (self.first, self.second)]

    def say(self, line: str) -> None:
        self.said.append(line)
        self.news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Looked at again whenever something is said."""
        async with asyncio.timeout(60):
            while not holds():
                self.news.clear()
                await self.news.wait()


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


async def test_at_the_start_nothing_is_said(followed: Followed) -> None:
    await followed.watch.look()
    assert (followed.said, followed.counts) == ([], [True, False])


async def test_an_edit_counts_and_is_said_by_the_names_of_keys(followed: Followed) -> None:
    await followed.watch.look()
    followed.write(entry("first", followed.first) + entry("second", followed.second, tenant="gold"))
    await followed.watch.look()
    assert followed.counts == [True, True]
    followed.write(entry("second", followed.second))
    await followed.watch.look()
    assert followed.counts == [False, True]
    assert followed.said == [
        f"{followed.path} was edited: second is added; keys that count: 2",
        f"{followed.path} was edited: first is revoked; second is changed; keys that count: 1",
    ]


async def test_a_faulty_edit_is_refused_with_its_place_and_the_keys_stay(followed: Followed) -> None:
    await followed.watch.look()
    faulty = entry("first", followed.first, tenant="golf") + entry("second", followed.second, rolls="[read]")
    followed.write(faulty)
    await followed.watch.look()
    assert followed.counts == [True, False]
    tenant, unknown = followed.watch.refused
    assert tenant.startswith(f"{followed.path}:1:{faulty.index('golf') + 1}: [0].tenant: a tenant that ")
    assert tenant.endswith("got 'golf', expected gold or default (did you mean gold?)")
    assert f"{followed.path}:2:" in unknown
    assert "(did you mean roles?)" in unknown
    assert followed.said == [
        f"the edit of {followed.path} is refused, the keys stay as they were:",
        *(f"  {reason}" for reason in followed.watch.refused),
    ]
    followed.write(entry("second", followed.second))
    await followed.watch.look()
    assert (followed.watch.refused, followed.counts) == ((), [False, True])


async def test_what_holds_a_key_in_the_wrong_place_is_refused_without_showing_it(followed: Followed) -> None:
    key = followed.second.text
    for text in (f"- {key}\n", f"- {{name: a, id: {key}, hash: {key}, roles: [infer]}}\n", f"{key}\n"):
        followed.write(text)
        await followed.watch.look()
        assert followed.watch.refused
        assert not [line for line in followed.said if key[20:40] in line]


async def test_keys_of_a_file_that_is_gone_count_until_it_is_back(followed: Followed) -> None:
    await followed.watch.look()
    followed.path.unlink()
    await followed.watch.look()
    assert followed.counts == [True, False]
    assert followed.said == [f"{followed.path} is gone: its keys count until it is back"]
    followed.write("# none\n")
    await followed.watch.look()
    assert followed.counts == [False, False]


@pytest.mark.slow
async def test_what_the_command_writes_counts_by_itself(followed: Followed) -> None:
    watching = asyncio.create_task(followed.watch.run())
    second = add_key(followed.path, {"name": "second", "roles": ["read"]}, None).encode()
    await followed.until(lambda: followed.guard.keys.find(second) is not None)
    revoke_key(followed.path, "first")
    await followed.until(lambda: followed.counts == [False, False])
    assert followed.guard.keys.find(second) is not None
    watching.cancel()
    await asyncio.wait([watching])


@pytest.mark.slow
async def test_an_edit_counts_that_is_made_while_another_is_read(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = iter([entry("second", followed.second)])

    def edited_meanwhile(path: Path, tenants: Collection[str] | None) -> tuple[KeySpec, ...]:
        specs = read_keys(path, tenants)
        for text in edits:
            followed.write(text)
        return specs

    monkeypatch.setattr("router.security.auth.following.read_keys", edited_meanwhile)
    watching = asyncio.create_task(followed.watch.run())
    await followed.until(lambda: followed.counts == [False, True])
    watching.cancel()
    await asyncio.wait([watching])


async def test_where_nothing_can_be_watched_that_is_said(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_folders: Path, **_more: object) -> None:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr("router.settings.file_following.awatch", fail)
    await followed.watch.run()
    assert "is not watched any more, an edit needs a restart: OS file watch limit" in followed.said[-1]


def test_no_change_is_said_as_none(followed: Followed) -> None:
    specs = followed.guard.keys.specs
    assert [*differences(specs, specs)] == ["keys that count: 1"]
