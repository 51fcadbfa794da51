"""Which requests of a model may share a batch."""

from collections.abc import Hashable
from math import ceil

from serving.ports import Call
from serving.scheduler.waiting.requests import Request
from serving.values.objectives import ranked
from serving.values.specs import REMOTE, TIME_UNITS, Parameters, ServedModel, SizeHint, TensorSpec
from serving.values.tensor import ANY, Tensor

PLACES = 4096  # sizes of rows that are remembered with their buckets


class Lanes:
    """Which requests of a model may share a batch: same wants, size bucket, parameters, shapes. `asking`: the
    variants that another server computes."""

    __slots__ = ("_hint", "_places", "_plain", "_times", "asking", "coming", "edition", "model")

    def __init__(self, model: ServedModel, before: "Lanes | None" = None, coming: bool = False) -> None:
        """Take the lanes of the model as it was served until now (`before`). `coming`: the model is new
        beside others that serve, and has had no replica yet."""
        self.model = model
        self.coming: bool = coming or (before is not None and before.coming)
        self.edition = 0  # of what goes in and comes out: rows of two never share a batch
        if before is not None:
            self.edition = before.edition + (_interface(model) != _interface(before.model))
        self.asking = frozenset(each.name for each in model.spec.variants if each.backend == REMOTE)
        self._hint = model.spec.size_hint
        self._places: dict[int, tuple[int, int]] = {}  # a memo of SizeHint.place
        self._times = {
            each.name: (TIME_UNITS[each.time_unit], float(each.default))
            for each in model.spec.parameters
            if each.time_unit
        }
        self._plain = all(
            tensor.datatype != ANY and -1 not in tensor.shape[1:] and not tensor.optional
            for tensor in model.spec.inputs
        )

    def takes(self, call: Call) -> bool:
        """Return whether a call of the model as it was before may be asked of it as it is now: `suits`."""
        return self.model.stands_for(call.model) or suits(call, self.model)

    def describe(self, call: Call, request_id: int, now_us: int, reserve_us: int) -> Request:
        """Return the call as the scheduler sees it: no tensor in it. It is planned to be ready `reserve_us`
        before it is due."""
        arrived_us = call.arrived_us or now_us
        deadline_us = arrived_us + call.due_us - reserve_us
        request = Request(request_id, call.model.name, call.rows, arrived_us, deadline_us)
        request.parts = call.objective.parts(call.rows)
        if call.timeout_us is not None:
            request.expires_us = arrived_us + call.timeout_us
        request.tenant, request.name, request.trace = call.tenant, call.name, call.trace
        request.step = call.sequence
        if call.priority and (priorities := call.model.spec.priorities) is not None:
            request.rank = priorities.rank(call.priority)
        self.choose(request, call)
        for tensor in call.inputs:
            request.payload_bytes += len(tensor.data)
        return request

    def sketch(self, call: Call) -> Request:
        """Return only what says how long a call takes."""
        request = Request(0, call.model.name, call.rows, 0, 0)
        self.choose(request, call)
        return request

    def choose(self, request: Request, call: Call) -> None:
        """Fill in what the request's lane depends on."""
        objective = call.objective
        wants: Hashable
        if call.variant:
            wants = request.variants = (call.variant,)
        else:
            variants = wants = request.variants = objective.variants
            if len(variants) > 1:
                wants = objective.wants
                request.optimize, request.cost_max = objective.optimize, objective.cost_max
        request.tier = objective.tier
        if self._times:
            request.declared_us = self._declared_us(call.parameters)
        if self._hint is not None:
            request.size, request.bucket = self._places.get(call.size) or self._place(self._hint, call.size)
        shapes: Hashable = self.edition
        if not self._plain:
            shapes = (shapes, *map(self._shape, self.model.spec.inputs, call.inputs))
        request.kin = (request.bucket, call.parameters, shapes)
        request.lane_key = (wants, request.kin)

    @staticmethod
    def _shape(spec: TensorSpec, tensor: Tensor) -> Hashable:
        """Return what rows of a batch have in common of an input; the worker makes the rest alike."""
        return tensor.datatype if spec.pad is not None else (tensor.datatype, tensor.shape[1:])

    def _declared_us(self, parameters: Parameters) -> int:
        """Return by how much (us) the times among these parameters exceed their defaults. Profiles are
        measured with the defaults."""
        further_us = 0.0
        for name, value in parameters:
            if name in self._times:
                unit_us, default = self._times[name]
                further_us += unit_us * (float(value) - default)
        return max(ceil(further_us), 0)

    def _place(self, hint: SizeHint, size: int) -> tuple[int, int]:
        if len(self._places) >= PLACES:  # clients choose the sizes
            self._places.clear()
        place = self._places[size] = hint.place(size)
        return place


def suits(call: Call, model: ServedModel) -> bool:
    """Return whether a call may be asked of another model, by what is promised there and by the floor that
    it stated. Its objective is the other model's from then on."""
    before = call.objective
    tier = before.tier if before.tier in model.by_tier else ""
    objective = model.objective(tier, before.accuracy_min)
    names = objective.variants
    if call.variant:
        accuracy = model.accuracy(call.variant)
        floor = 0.0 if accuracy == call.model.accuracy(call.variant) else before.accuracy_min
        names = ranked({call.variant: accuracy} if call.variant in model.variants else {}, floor)
    if not names or _interface(call.model) != _interface(model):
        return False
    call.objective = objective
    return True


def _interface(model: ServedModel) -> tuple[object, ...]:
    """Return the parts of a model's spec that decide whether a call fits the model."""
    spec = model.spec
    return spec.inputs, spec.outputs, spec.parameters, spec.size_hint, spec.decoupled, spec.sequence
