"""The keys file while the gateway runs: an edit counts whole, or is refused and the keys stay as they are."""

import asyncio
from collections.abc import Iterator

from router.security.auth.guard import KeyGuard
from router.security.auth.keys import KeyFile
from router.settings import Settings, SettingsError
from router.settings.file_following import FileFollower, Say
from router.settings.keys import KeySpec, read_keys, tenants_of


class KeyWatch(FileFollower):
    """Follows the keys file of settings with `auth:` into the guard."""

    def __init__(self, settings: Settings, guard: KeyGuard, say: Say) -> None:
        assert settings.auth is not None  # noqa: S101  # else there is nothing to follow
        path = settings.auth.keys
        super().__init__(path, say, "its keys count until it is back", "the keys stay as they were")
        self._tenants = tenants_of(settings)
        self._guard = guard

    async def _take(self) -> None:
        try:
            specs = await asyncio.to_thread(read_keys, self._path, self._tenants)
        except SettingsError as error:
            self._refuse([str(problem) for problem in error.problems])
            return
        before, self.refused = self._guard.keys.specs, ()
        if specs != before:
            self._guard.keys = KeyFile(specs)
            self._say(f"{self._path} was edited: {'; '.join(differences(before, specs))}")


def differences(before: tuple[KeySpec, ...], after: tuple[KeySpec, ...]) -> Iterator[str]:
    """Yield what counts otherwise than before, a few words for each key."""
    old, new = ({each.name: each for each in specs} for specs in (before, after))
    yield from (f"{name} is revoked" for name in old if name not in new)
    yield from (f"{name} is added" for name in new if name not in old)
    yield from (f"{name} is changed" for name in new if name in old and new[name] != old[name])
    yield f"keys that count: {len(after)}"
