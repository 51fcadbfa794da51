"""What clients have loaded and unloaded over what penstock.yaml says."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from router.settings import Settings
from serving.values.specs import ServedModel


@dataclass(frozen=True, slots=True)
class Overlay:
    """Of each model the last word that a client spoke, as long as the file has spoken none after it.

    `unloaded`: models of the file that are not served. `loaded`: models that the file does not name.
    `batch_max`: of models of the file that were loaded with one of their own.
    """

    unloaded: frozenset[str] = frozenset()
    loaded: Mapping[str, ServedModel] = field(default_factory=lambda: MappingProxyType({}))
    batch_max: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def over(self, settings: Settings) -> Settings:
        """Return the settings of the file with these words: what is to be served."""
        names = {model.name for model in settings.models}
        slices = tuple(each.name for each in settings.slices)
        filed = [
            with_batch_max(model, self.batch_max.get(model.name))
            for model in settings.models
            if model.name not in self.unloaded
        ]
        others = [
            replace(each, slices=slices, tiers=settings.tiers)
            for name, each in self.loaded.items()
            if name not in names
        ]
        return replace(settings, models=(*filed, *others))

    def without(self, names: Collection[str]) -> "Overlay":
        """Return the overlay without these models."""
        return Overlay(
            self.unloaded.difference(names),
            {name: model for name, model in self.loaded.items() if name not in names},
            {name: rows for name, rows in self.batch_max.items() if name not in names},
        )

    def with_loaded(self, model: ServedModel, filed: bool, batch_max: int | None) -> "Overlay":
        """Return the overlay after a client loaded the model. `filed`: whether the settings file names the
        model."""
        rest = self.without([model.name])
        if not filed:
            return replace(rest, loaded={**rest.loaded, model.name: model})
        if batch_max is None:
            return rest
        return replace(rest, batch_max={**rest.batch_max, model.name: batch_max})

    def with_unloaded(self, name: str, filed: bool) -> "Overlay":
        """Return the overlay after a client unloaded the model."""
        rest = self.without([name])
        return replace(rest, unloaded=rest.unloaded | {name}) if filed else rest


def with_batch_max(model: ServedModel, batch_max: int | None) -> ServedModel:
    """Return the model with batches of at most `batch_max` rows; None: as it is."""
    if batch_max is None:
        return model
    return replace(model, spec=replace(model.spec, batch_max=batch_max))
