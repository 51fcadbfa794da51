"""Load orders for backends, as the gateway makes them of a model.yaml."""

from collections.abc import Mapping
from pathlib import Path

from serving.values.specs import ParameterValue
from serving.worker.backends.chosen import ChosenBackend
from serving.worker.backends.contract import LoadedModel
from serving.worker.backends.signature import Signature, batch_max_of, specs_of
from serving.worker.frames.orders import LoadOrder


def order_of(
    backend: str,
    file: Path,
    signature: Signature,
    options: Mapping[str, ParameterValue] | None = None,
) -> LoadOrder:
    """Return the order for a model whose model.yaml states what the signature says."""
    batch_max = batch_max_of(signature)
    return LoadOrder(
        1, "m", file.parent, "v", file, tuple((options or {}).items()),
        specs_of(signature.inputs, batch_max), specs_of(signature.outputs, batch_max), (0, 0),
        batch_max=max(batch_max, 1), unbatched=batch_max == 0, backend=backend,
    )  # fmt: skip


def loaded(order: LoadOrder) -> LoadedModel:
    """Return the model that a worker would load."""
    return ChosenBackend(1).load(order)
