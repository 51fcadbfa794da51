"""Where models may run, and which slices are equal for them.

The topology is made once for a desired state. Each second every policy looks at all slices of its model, and
there may be many policies and slices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from serving.control.state.desired import DesiredState
from serving.values.slice_specs import SliceSpec


@dataclass(frozen=True, slots=True, eq=False)
class SliceClass:
    """Slices of one `kind`, with equal speed, and of one price.

    `label`: their name in plans. `label_held`: the name of slices that are held anyway, whatever scaled
    models do, and so cost no more.
    """

    kind: str
    label: str
    label_held: str
    specs: tuple[SliceSpec, ...]


class Topology:
    """The slices by class and model. `class_of`: the class by a slice's name."""

    def __init__(self, current: DesiredState | None, kind_of: Callable[[SliceSpec], str]) -> None:
        found: dict[tuple[str, float, bool], list[SliceSpec]] = {}
        self._specs: dict[str, list[SliceSpec]] = {}
        for each in current.slices if current is not None else ():
            spec = each.spec
            found.setdefault((kind_name(kind_of(spec), spec), spec.price, spec.spot), []).append(spec)
            for model in {one.model for one in each.replicas}:
                self._specs.setdefault(model, []).append(spec)
        self.class_of: dict[str, SliceClass] = {}
        for (kind, price, spot), specs in found.items():
            mark = " spot" if spot else ""
            slice_class = SliceClass(
                kind, f"{kind} at {price:g}{mark}", f"{kind} at no more{mark}", tuple(specs)
            )
            self.class_of |= dict.fromkeys((spec.name for spec in specs), slice_class)
        self._counts = {model: self._counted(specs) for model, specs in self._specs.items()}

    def specs(self, model: str) -> Sequence[SliceSpec]:
        """Return the slices on which a model may run."""
        return self._specs.get(model, ())

    def counts(self, model: str) -> Mapping[SliceClass, int]:
        """Return how many slices of each class a model may run on."""
        return self._counts.get(model, {})

    def _counted(self, specs: Sequence[SliceSpec]) -> dict[SliceClass, int]:
        counts: dict[SliceClass, int] = {}
        for spec in specs:
            slice_class = self.class_of[spec.name]
            counts[slice_class] = counts.get(slice_class, 0) + 1
        return counts


def kind_name(device_kind: str, spec: SliceSpec) -> str:
    """Return the name of slices with equal speed."""
    return f"{device_kind} {spec.share}"
