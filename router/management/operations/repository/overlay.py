"""What clients have loaded and unloaded over what penstock.yaml says."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from router.settings import Settings
from serving.values.specs import ServedModel

Versions = tuple[ServedModel, ...]
"""All served versions of one model: first the one of its own name."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Of each model the last word that a client spoke, as long as the file has spoken none after it.

    All by the model's name, whatever its versions.

    - `unloaded`: models of the file that are not served.
    - `loaded`: models that the file does not name, with all their versions, and models that were loaded with
      a policy of their own.
    - `batch_max`: of models of the file that were loaded with one of their own.
    - `elsewhere`: what other cells serve of the file, by served name.
    """

    unloaded: frozenset[str] = frozenset()
    loaded: Mapping[str, Versions] = field(default_factory=lambda: MappingProxyType({}))
    batch_max: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    elsewhere: frozenset[str] = frozenset()

    def over(self, settings: Settings) -> Settings:
        """Return the settings of the file with these words: what is to be served."""
        names = {model.spec.model_name for model in settings.models}
        slices = tuple(each.name for each in settings.slices)
        filed = [
            with_batch_max(model, self.batch_max.get(model.spec.model_name))
            for model in settings.models
            if model.spec.model_name not in self.unloaded
            and model.name not in self.elsewhere
            and model.spec.model_name not in self.loaded
        ]
        others = [
            each if name in names else replace(each, slices=slices, tiers=settings.tiers)
            for name, versions in self.loaded.items()
            for each in versions
        ]
        return replace(settings, models=(*filed, *others))

    def without(self, names: Collection[str]) -> "Overlay":
        """Return the overlay without these models."""
        return Overlay(
            self.unloaded.difference(names),
            {name: versions for name, versions in self.loaded.items() if name not in names},
            {name: rows for name, rows in self.batch_max.items() if name not in names},
            self.elsewhere,
        )

    def with_loaded(self, versions: Versions, filed: bool, batch_max: int | None) -> "Overlay":
        """Return the overlay after a client loaded a model. `filed`: whether the settings file says which
        versions are served."""
        name = versions[0].spec.model_name
        rest = self.without([name])
        if not filed:
            return replace(rest, loaded={**rest.loaded, name: versions})
        if batch_max is None:
            return rest
        return replace(rest, batch_max={**rest.batch_max, name: batch_max})

    def with_unloaded(self, name: str, filed: bool) -> "Overlay":
        """Return the overlay after a client unloaded the model."""
        rest = self.without([name])
        return replace(rest, unloaded=rest.unloaded | {name}) if filed else rest


def with_batch_max(model: ServedModel, batch_max: int | None) -> ServedModel:
    """Return the model with batches of at most `batch_max` rows; None: as it is."""
    if batch_max is None:
        return model
    return replace(model, spec=replace(model.spec, batch_max=batch_max))
