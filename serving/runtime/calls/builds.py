"""Which models are answered by replicas of more than one build: their files have changed, and those that are
live were loaded before."""

from serving.values.specs import ServedModel

Place = tuple[str, str, str]  # slice, model, variant


class Builds:
    """`mixed`: the names of such models. A replica is of the build that its model had when it was first
    live. `versions`: of the replicas of models that have versions."""

    __slots__ = ("_older", "_replicas", "mixed", "versions")

    def __init__(self) -> None:
        self._replicas: dict[Place, int] = {}
        self._older: set[Place] = set()
        self.versions: dict[Place, int] = {}
        self.mixed: frozenset[str] = frozenset()

    def serve(self, before: ServedModel | None, model: ServedModel) -> None:
        """Note that a model is served differently from now on."""
        if before is None or before.spec.variants == model.spec.variants:
            return
        self._older.update(place for place in self._replicas if place[1] == model.name)
        self._look()

    def live(self, place: Place, replica: int, version: int) -> None:
        """Note that a replica is live, perhaps instead of another. `version`: the model's now, 0 for none."""
        if self._replicas.get(place) != replica:
            self._replicas[place] = replica
            self.versions.pop(place, None)
            if version:
                self.versions[place] = version
            self._gone(place)

    def gone(self, slice_name: str, model: str = "", variant: str = "") -> None:
        """Note that a replica is gone; without a model, note that all replicas of the slice are gone."""
        for place in list(self._replicas):
            if place == (slice_name, model, variant) or (place[0] == slice_name and not model):
                del self._replicas[place]
                self.versions.pop(place, None)
                self._gone(place)

    def _gone(self, place: Place) -> None:
        if place in self._older:
            self._older.discard(place)
            self._look()

    def _look(self) -> None:
        self.mixed = frozenset(model for _, model, _ in self._older)
