"""A served model in the words of Triton's ModelConfig, from its model.yaml and its entry in penstock.yaml.

Field names and JSON form: `model_config.proto` as Triton writes it. It prints fields without a value too, and
64-bit integers as JSON numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final  # Any: the generated messages carry no types

from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]

from router.management.triton.sequence_config import data_type, tell_sequences
from router.protocol.oip import platform_of
from router.tensors.protos.files import oip
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits, ServedModel
from serving.values.versions import ONLY

_WHOLE: Final = frozenset(
    (
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT64,
    )
)


def model_config(
    model: ServedModel,
    limits: Limits,
    slices: Mapping[str, SliceSpec],
    *,
    keeps: bool,
    versions: Sequence[str] = (ONLY,),
) -> Any:
    """Return the ModelConfig. `slices`: those of the gateway, by name. `keeps`: whether it keeps answers.
    `versions`: of the model, that are served."""
    spec = model.spec
    config = oip.ModelConfig(
        name=spec.model_name,
        platform=platform_of(spec),
        backend=spec.variant(spec.default_variant).backend,
        max_batch_size=0 if spec.unbatched else spec.batch_max,
    )
    if len(versions) > 1:
        config.version_policy.specific.versions.extend(map(int, versions))
    else:
        config.version_policy.latest.num_versions = 1
    for tensor in spec.inputs:
        config.input.add(
            name=tensor.name,
            data_type=data_type(tensor.datatype),
            dims=tensor.shape[1:],
            optional=tensor.optional,
        )
    for tensor in (each for each in spec.outputs if not each.parameter):
        config.output.add(
            name=tensor.name,
            data_type=data_type(tensor.datatype),
            dims=tensor.shape[1:],
            label_filename=tensor.labels.file if tensor.labels is not None else "",
        )
    if spec.sequence is not None:
        tell_sequences(config.sequence_batching, spec.sequence)
    elif not spec.unbatched:
        _tell_batching(config.dynamic_batching, model, limits)
    for number, group in enumerate(_instances(model, slices)):
        config.instance_group.add(name=f"{spec.name}_{number}", **group)
    config.model_transaction_policy.decoupled = spec.decoupled
    config.response_cache.enable = keeps and model.cache
    for name, value in _parameters(model).items():
        config.parameters[name].string_value = value
    return config


def as_json(config: Any) -> dict[str, Any]:
    """Return the configuration as Triton's JSON says it."""
    values: dict[str, Any] = MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _write_numbers(config.DESCRIPTOR, values)
    return values


def _tell_batching(batching: Any, model: ServedModel, limits: Limits) -> None:
    """Say what the gateway does: it forms batches of any size, unless the entry states one."""
    stated = model.batching
    if stated.size is not None:
        batching.preferred_batch_size.append(stated.size)
    batching.max_queue_delay_microseconds = stated.delay_us
    batching.default_queue_policy.allow_timeout_override = True  # a client's timeout always counts
    batching.default_queue_policy.max_queue_size = limits.queue_requests
    if (priorities := model.spec.priorities) is not None:
        batching.priority_levels = priorities.levels
        batching.default_priority_level = priorities.default


def _instances(model: ServedModel, slices: Mapping[str, SliceSpec]) -> list[dict[str, Any]]:
    """Return a group for each kind of device and each GPU: on how many slices the model may run there."""
    counts: dict[str, int] = {}
    for name in model.slices:
        if name in slices:
            device = slices[name].device
            counts[device] = counts.get(device, 0) + 1
    return [_instance_group(device, count) for device, count in counts.items()]


def _instance_group(device: str, count: int) -> dict[str, Any]:
    kind = oip.ModelInstanceGroup
    if device == "cpu":
        return {"kind": kind.KIND_CPU, "count": count}
    number = device.rpartition(":")[2]
    gpus: Sequence[int] = (int(number),) if number.isdecimal() else ()
    return {"kind": kind.KIND_GPU, "count": count, "gpus": gpus}


def _parameters(model: ServedModel) -> dict[str, str]:
    """Return the parameters that Triton has no field for."""
    return {
        "batching_policy": model.batching.policy,
        "slo_ms": f"{model.slo_us / 1000:g}",
        "default_variant": model.answering_variant,
        "variants": ",".join(model.variants),
    }


def _write_numbers(descriptor: Any, values: dict[str, Any]) -> None:
    """Turn 64-bit integers, which protobuf writes as JSON strings, into numbers."""
    for field in descriptor.fields:
        value = values.get(field.name)
        if value is None:
            continue
        if field.cpp_type in _WHOLE:
            values[field.name] = [int(each) for each in value] if isinstance(value, list) else int(value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if isinstance(value, list) else (value,):
                _write_numbers(field.message_type, each)
