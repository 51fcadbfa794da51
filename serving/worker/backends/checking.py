"""What backends check before they load: that there is an artifact, and that it has the tensors of
model.yaml."""

from collections.abc import Mapping
from pathlib import Path

from serving.worker.frames.orders import LoadOrder


def artifact_of(order: LoadOrder, expected: str) -> Path:
    """Return the artifact. Raises FileNotFoundError if the variant names none; `expected`: what it should."""
    if order.artifact is None:
        raise FileNotFoundError(f"variant {order.variant} has no artifact; expected {expected}")
    return order.artifact


def check_tensors(order: LoadOrder, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Hold model.yaml against the file. `inputs`, `outputs`: the file's datatypes by name.

    Raises ValueError for a name or a datatype that differs, and for an input that model.yaml lacks: one of
    the two is mistaken. An output that model.yaml lacks is not asked for.
    """
    for what, specs, types in (("input", order.inputs, inputs), ("output", order.outputs, outputs)):
        for spec in specs:
            if spec.name not in types:
                raise ValueError(
                    f"model.yaml names the {what} {spec.name!r}; {order.artifact} has {', '.join(types)}"
                )
            if types[spec.name] != spec.datatype:
                raise ValueError(
                    f"{what} {spec.name!r} is {spec.datatype} in model.yaml, "
                    f"and {types[spec.name]} in {order.artifact}"
                )
    if unnamed := [name for name in inputs if name not in {spec.name for spec in order.inputs}]:
        raise ValueError(f"model.yaml lacks the inputs {', '.join(unnamed)} of {order.artifact}")
