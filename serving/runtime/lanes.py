"""Which requests of a model may share a batch."""

from collections.abc import Hashable

from serving.ports import Call
from serving.scheduler.requests import Request
from serving.specs import ServedModel, SizeHint
from serving.tensor import ANY

PLACES = 4096  # sizes of rows that are remembered with their buckets


class Lanes:
    """Which requests of a model may share a batch: same allowed variants, size bucket, parameters, shapes."""

    __slots__ = ("_default", "_hint", "_places", "_plain", "coming", "edition", "model")

    def __init__(self, model: ServedModel, before: "Lanes | None" = None, coming: bool = False) -> None:
        """`before`: those of the model as it was served until now. `coming`: it is new beside others that
        serve, and has had no replica yet."""
        self.model = model
        self.coming: bool = coming or (before is not None and before.coming)
        self.edition = 0  # of what goes in and comes out: rows of two never share a batch
        if before is not None:
            self.edition = before.edition + (_interface(model) != _interface(before.model))
        self._hint = model.spec.size_hint
        self._places: dict[int, tuple[int, int]] = {}  # a memo of SizeHint.place
        self._default = (model.answering_variant,)
        self._plain = all(
            tensor.datatype != ANY and -1 not in tensor.shape[1:] for tensor in model.spec.inputs
        )

    def takes(self, call: Call) -> bool:
        """Whether a call of the model as it was before may be asked of it as it is now."""
        variant = not call.variant or call.variant in self.model.variants
        return variant and _interface(call.model) == _interface(self.model)

    def choose(self, request: Request, call: Call) -> None:
        """Fill in what the request's lane depends on."""
        variants = request.variants = (call.variant,) if call.variant else self._default
        if self._hint is not None:
            request.size, request.bucket = self._places.get(call.size) or self._place(self._hint, call.size)
        shapes: Hashable = self.edition
        if not self._plain:
            shapes = (shapes, *((tensor.datatype, tensor.shape[1:]) for tensor in call.inputs))
        request.lane_key = (variants, request.bucket, call.parameters, shapes)

    def _place(self, hint: SizeHint, size: int) -> tuple[int, int]:
        if len(self._places) >= PLACES:  # clients choose the sizes
            self._places.clear()
        place = self._places[size] = hint.place(size)
        return place


def _interface(model: ServedModel) -> tuple[object, ...]:
    """What a call must know of a model to be its own."""
    spec = model.spec
    return spec.inputs, spec.outputs, spec.parameters, spec.size_hint
