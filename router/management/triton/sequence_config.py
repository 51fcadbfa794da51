"""How a model serves sequences, in the words of Triton's ModelConfig (`ModelSequenceBatching`)."""

from typing import Any, Final  # Any: the generated messages carry no types

from router.tensors.protos.files import oip
from serving.values.sequences import ControlSpec, SequenceSpec
from serving.values.tensor import ANY

_FALSE_TRUE: Final = {
    "INT32": "int32_false_true",
    "FP32": "fp32_false_true",
    "BOOL": "bool_false_true",
}


def tell_sequences(batching: Any, spec: SequenceSpec) -> None:
    """Say the strategy, control inputs and state. A direct batch has `max_batch_size` rows at most."""
    batching.max_sequence_idle_microseconds = spec.idle_us
    if spec.strategy == "direct":
        batching.direct.SetInParent()
    else:
        batching.oldest.max_candidate_sequences = spec.slots
    for control in spec.controls:
        _tell_control(batching.control_input.add(name=control.name).control.add(), control)
    for state in spec.state:
        batching.state.add(
            input_name=state.input,
            output_name=state.output,
            data_type=data_type(state.datatype),
            dims=state.shape,
        )


def _tell_control(told: Any, control: ControlSpec) -> None:
    told.kind = told.Kind.Value(f"CONTROL_SEQUENCE_{control.kind.upper()}")
    if control.kind == "corrid":
        told.data_type = data_type(control.datatype)
    else:
        getattr(told, _FALSE_TRUE[control.datatype]).extend((0, 1))


def data_type(datatype: str) -> int:
    """Return the value of Triton's DataType; TYPE_INVALID for a tensor of any datatype."""
    if datatype == ANY:
        return int(oip.DataType.TYPE_INVALID)
    word = "STRING" if datatype == "BYTES" else datatype
    return int(oip.DataType.Value(f"TYPE_{word}"))
