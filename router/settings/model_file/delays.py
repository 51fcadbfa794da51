"""Request parameters by which a client says how long a batch takes: `time_unit` in model.yaml."""

from dataclasses import replace
from typing import Final

from serving.values.specs import TIME_UNITS, Limits, ParameterSpec, ServedModel

SHARE: Final = 0.5
"""Of `limits.stall_s`: a batch that is later than predicted by the whole of it is given up with its worker,
and the machine may add some."""
_KEY: Final = f"{SHARE:.0%} of limits.stall_s"


def bounded(model: ServedModel, limits: Limits) -> ServedModel:
    """Return the model with parameters that make no batch so late that it is given up. `limits`: the
    gateway's."""
    parameters = tuple(_bounded(each, SHARE * limits.stall_us) for each in model.spec.parameters)
    return replace(model, spec=replace(model.spec, parameters=parameters))


def _bounded(spec: ParameterSpec, most_us: float) -> ParameterSpec:
    if not spec.time_unit:
        return spec
    most = most_us / TIME_UNITS[spec.time_unit]
    if spec.maximum is not None and spec.maximum <= most:
        return spec
    return replace(spec, maximum=most, bounded_by=_KEY)
