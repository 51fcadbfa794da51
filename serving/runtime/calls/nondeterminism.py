"""Variants that say that they are deterministic, and gave two answers to one sample when they were loaded."""

from serving.values.specs import ServedModel

Build = tuple[str, str, str]  # model, variant, revision of the model's files


class Doubts:
    """`changes`: how often something was found; what is made of it is made anew with another number."""

    __slots__ = ("_found", "changes")

    def __init__(self) -> None:
        self._found: dict[Build, str] = {}
        self.changes = 0

    def add(self, build: Build, how: str) -> bool:
        """Return its answers differed, and how; False where that was known."""
        if build in self._found:
            return False
        self._found[build] = how
        self.changes += 1
        return True

    def of(self, model: ServedModel) -> dict[str, str]:
        """Return how its answers differed, by variant, of those that do, as its files are now."""
        return {
            variant: how
            for (name, variant, revision), how in self._found.items()
            if name == model.name and revision == model.revision
        }

    def forget(self, name: str) -> None:
        """Forget a model that is not known any more."""
        for build in list(self._found):
            if build[0] == name:
                del self._found[build]
