"""What a settings file says that is not simulated and may change the figures, in words: it is never silent.

The table of docs/scheduling.md ("What of penstock.yaml is simulated") says of every key what becomes of it.
"""

from collections.abc import Iterator, Sequence

from router.settings import Settings
from serving.simulation.devices.losses import Loss
from serving.values.specs import ServedModel


def left_out(settings: Settings, models: Sequence[ServedModel], losses: Sequence[Loss] = ()) -> Iterator[str]:
    """Yield phrases on settings of the simulated `models` that the simulation does not follow, beside these
    `losses`."""
    kept = [model.name for model in models if model.cache]
    if settings.cache is not None and kept:
        yield f"cache of {', '.join(kept)}: every request is computed"
    for model in models:
        if model.selection is not None:
            yield (
                f"the {model.selection.policy} of {model.name}: each request is computed once, by a variant "
                "that may answer it"
            )
    if stateful := [model.name for model in models if model.spec.sequence is not None]:
        yield f"sequences of {', '.join(stateful)}: each request stands for itself"
    if apart := [model.name for model in models if model.isolate == "always"]:
        yield f"isolate of {', '.join(apart)}: models of a slice share one process, and compute in turn"
    used = {name for model in models for name in model.slices}
    gone = {each.slice for each in losses} | {each.slice.rpartition(".")[0] for each in losses}
    lent = [each.name for each in settings.slices if each.spot and each.name in used - gone]
    if lent:
        yield f"spot of {', '.join(lent)}: none is taken away (--spot has it so)"
