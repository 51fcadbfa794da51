"""The keys file while the gateway runs: an edit counts whole, or is refused and the keys stay as they are."""

import asyncio
import logging
from collections.abc import Callable, Iterator

from router.auth.guard import KeyGuard
from router.auth.keys import Keys
from router.editions import Edition, changes, read_edition
from router.settings import Settings, SettingsError
from router.settings.keys import KeySpec, read_keys, tenants_of

logger = logging.getLogger(__name__)

Say = Callable[[str], None]


class KeyWatch:
    """Follows the keys file of settings with `auth:` into the guard. `refused`: why its latest edit does not
    count; () where it does."""

    def __init__(self, settings: Settings, guard: KeyGuard, say: Say) -> None:
        assert settings.auth is not None  # noqa: S101  # else there is nothing to follow
        self.refused: tuple[str, ...] = ()
        self._path = settings.auth.keys
        self._tenants = tenants_of(settings)
        self._guard = guard
        self._say = say
        self._seen: Edition | None = None
        self._looked = False

    async def run(self) -> None:
        """Until it is cancelled, or the file cannot be watched."""
        # It may have been edited since it was read at the start; what comes after this look is a change.
        looking = asyncio.create_task(self._look())
        try:
            async for _ in changes(self._path):
                await looking
                await self._look()
        except Exception as error:  # of inotify: watches are a bounded resource of the machine
            logger.exception("watching %s failed", self._path)
            self._say(f"{self._path} is not watched any more, an edit needs a restart: {error}")
        finally:
            looking.cancel()

    async def _look(self) -> None:
        try:
            await self.look()
        except Exception:  # a bug: the next edit may fare better
            logger.exception("following %s failed", self._path)
            self.refused = (f"{self._path}: following it failed inside the gateway, whose log says how",)

    async def look(self) -> None:
        """Follow the file where it is another than at the last look; keys of one that is gone still count."""
        edition = await asyncio.to_thread(read_edition, self._path)
        if self._looked and edition == self._seen:
            return
        self._looked, self._seen = True, edition
        if edition is None:
            self._say(f"{self._path} is gone: its keys count until it is back")
            return
        try:
            specs = await asyncio.to_thread(read_keys, self._path, self._tenants)
        except SettingsError as error:
            self.refused = tuple(str(problem) for problem in error.problems)
            self._say(f"the edit of {self._path} is refused, the keys stay as they were:")
            for reason in self.refused:
                self._say(f"  {reason}")
            return
        before, self.refused = self._guard.keys.specs, ()
        if specs != before:
            self._guard.keys = Keys(specs)
            self._say(f"{self._path} was edited: {'; '.join(differences(before, specs))}")


def differences(before: tuple[KeySpec, ...], after: tuple[KeySpec, ...]) -> Iterator[str]:
    """What counts otherwise than before, a few words for each key."""
    old, new = ({each.name: each for each in specs} for specs in (before, after))
    yield from (f"{name} is revoked" for name in old if name not in new)
    yield from (f"{name} is added" for name in new if name not in old)
    yield from (f"{name} is changed" for name in new if name in old and new[name] != old[name])
    yield f"keys that count: {len(after)}"
