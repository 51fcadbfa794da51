"""`penstock serve --reload`: models are loaded again when their files change."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from router.management.operations.repository.refusals import RepositoryError
from router.settings import Settings
from router.settings.model_file.folders import versions_in
from router.settings.model_file.revisions import revision_of
from serving.values.specs import ServedModel

LOOK_S: Final = 0.5
"""Between two looks at the files: one stat of each file."""


class Loads(Protocol):
    """What loads a model again; `Repository` does."""

    async def load(self, name: str) -> None:
        """Return when the model is ready. Raises RepositoryError if it stays as it was."""
        ...


class ModelReloads:
    """Follows the files of all served models: model.yaml, code and artifacts."""

    def __init__(
        self, repository: Loads, settings: Callable[[], Settings], say: Callable[[str], None]
    ) -> None:
        self._repository = repository
        self._settings = settings
        self._say = say
        self._known: dict[str, str] = {}

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Load each model with other files than at the last look."""
        models = self._settings().models
        revisions = await asyncio.to_thread(_revisions, models)
        changed = [
            name for name, revision in revisions.items() if self._known.get(name, revision) != revision
        ]
        self._known = revisions
        for name in changed:
            self._say(f"the files of {name} have changed: it is loaded again")
            try:
                await self._repository.load(name)
            except RepositoryError as error:
                self._say(f"{name} stays as it was: {error.message}")


def _revisions(models: Sequence[ServedModel]) -> dict[str, str]:
    """Return what tells the files of each model from others: of all served versions, and which there are."""
    found = {model.spec.model_name: f"{versions_in(model.spec.home)}" for model in models}
    for model in sorted(models, key=lambda each: each.spec.version):
        found[model.spec.model_name] += f" {revision_of(model)}"
    return found
