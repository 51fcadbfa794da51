"""The shape of a `model.yaml`: which keys it has."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, PlainValidator

from router.settings.values.fields import (
    Count,
    Name,
    Number,
    Scalar,
    SloMs,
    Text,
    check_buckets,
    check_shape,
    known,
)
from router.settings.values.labels import LabelsKey
from router.settings.values.schema import Section
from router.settings.values.versions import VersionPolicy, read_policy
from serving.values.specs import TIME_UNITS
from serving.values.tensor import ANY, DATATYPES

PARAMETER_TYPES = ("bool", "int", "float", "string")
ONLY_VARIANT = "default"
"""The variant of a model whose model.yaml lists none: without artifact and options."""


class TensorSection(Section):
    """An input or output of a model. A size with a name is free, and the same in all tensors of a request."""

    name: Text
    datatype: Annotated[str, AfterValidator(known("datatype", (*DATATYPES, ANY)))]
    shape: Annotated[list[int | str], PlainValidator(check_shape)]

    @property
    def sizes(self) -> list[int]:
        """The shape with -1 for each name."""
        return [-1 if isinstance(side, str) else side for side in self.shape]

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each dimension, "" where it has none."""
        return tuple(side if isinstance(side, str) else "" for side in self.shape)


class InputSection(TensorSection):
    """An input; a request may leave out an optional one. `pad`: with what a batch fills up shorter rows.
    `mask`: the worker makes it, 1 where a row has values and 0 where it is filled up."""

    optional: bool = False
    pad: Number | None = None
    mask: bool = False


class OutputSection(TensorSection):
    """An output; its labels are a list, or a file. `parameter`: it is one of the answer's parameters."""

    labels: LabelsKey = None
    parameter: bool = False


class VariantSection(Section, BaseModel):  # the second so that linters know it
    """An entry of `variants:`; `deterministic` defaults to the model's. `compile`: how it runs on a GPU."""

    name: Name
    artifact: Text | None = None
    deterministic: bool | None = None
    backend: Literal["python", "onnx", "openvino", "torch_export", "transformers", "sklearn", "remote"] = (
        "python"
    )
    compile: Literal["none", "torch", "graphs"] = "none"
    options: dict[str, Scalar] = {}


class AccuracySection(Section):
    """Where a build wrote what it measured: one JSON object, variant to a share in 0..1."""

    metric: Text
    file: Text


class ValidationSection(Section):
    """Where a build wrote what its variants say of rows that none was trained on."""

    file: Text


class SizeHintSection(Section):
    """`size_hint:`; what is counted, and up to where. A text of Latin script counts each punctuation mark as
    several bytes."""

    input: Text
    unit: Literal["bytes", "text", "values"] | None = None  # bytes of BYTES, values of other datatypes
    buckets: Annotated[list[int], PlainValidator(check_buckets)]


class ParameterSection(Section):
    """A request parameter that the model reads."""

    name: Name
    type: Annotated[str, AfterValidator(known("type", PARAMETER_TYPES))]
    default: Scalar
    minimum: Number | None = None
    maximum: Number | None = None
    time_unit: Annotated[str, AfterValidator(known("time unit", tuple(TIME_UNITS)))] | None = None


class PrioritiesSection(Section):
    """The levels of a request's `priority`, 1 the first; Triton's `priority_levels`."""

    levels: Annotated[int, Field(ge=2, le=16)]
    default: Annotated[int, Field(ge=1)]


class ModelFile(Section, BaseModel):
    """`model.yaml`. Without `variants` it has ONLY_VARIANT; penstock.yaml may say `slo_ms` and `slo_rows`."""

    name: Name
    description: str = ""
    inputs: Annotated[list[InputSection], Field(min_length=1)]
    outputs: Annotated[list[OutputSection], Field(min_length=1)]
    batch_max: Annotated[int, Field(ge=0, le=65536)]
    slo_ms: SloMs | None = None
    slo_rows: Count | None = None
    deterministic: bool = False
    decoupled: bool = False
    default_variant: str | None = None
    accuracy: AccuracySection | None = None
    validation: ValidationSection | None = None
    variants: Annotated[list[VariantSection], Field(min_length=1)] = [VariantSection(name=ONLY_VARIANT)]
    size_hint: SizeHintSection | None = None
    parameters: list[ParameterSection] = []
    sequence: dict[str, object] | None = None  # of SequenceSection
    priorities: PrioritiesSection | None = None
    build: Text | None = None
    code: Text | None = None
    version_policy: Annotated[VersionPolicy | None, PlainValidator(read_policy)] = None
    endpoints: dict[str, object] | None = None
