"""What each key of `model.yaml` means, by the class of its section, in a sentence for the model's author."""

from collections.abc import Mapping
from typing import Final

_TENSOR: Final = {
    "name": "The tensor's name in requests and answers.",
    "datatype": "A datatype of the Open Inference Protocol, such as FP32 or BYTES.",
    "shape": "Sizes, -1 or a name for any; the first is the batch, unless batch_max is 0.",
}

MODEL_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "ModelFile": {
        "name": "The model's name in requests.",
        "version_policy": "Which numbered folders are served: {latest: 1}, without it.",
        "description": "A sentence for people.",
        "inputs": "The tensors of a request.",
        "outputs": "The tensors of an answer.",
        "batch_max": "Rows that the model can compute at once; 0: it has no batch dimension.",
        "slo_ms": "The promise in milliseconds, where penstock.yaml states none.",
        "slo_rows": "A request of more rows has `slo_ms` once for each so many rows.",
        "deterministic": "Whether equal inputs have equal answers, so that answers may be kept.",
        "decoupled": "Whether a request may have several answers, or none.",
        "default_variant": "The variant that answers where the gateway does not choose.",
        "accuracy": "Where the build wrote how accurate each variant is.",
        "validation": "Where the build wrote what its variants say of held-out rows.",
        "variants": "The model in several forms; one without it.",
        "size_hint": "By which input the gateway groups requests of like size.",
        "parameters": "Request parameters that the model reads.",
        "sequence": "How the model keeps a state for each sequence of requests.",
        "priorities": "The levels of a request's `priority`.",
        "build": "A program that makes the artifacts.",
        "code": "The Python file of the model; model.py without it.",
        "endpoints": "Which applications' endpoints the model serves, such as /v1/embeddings.",
    },
    "InputSection": {
        **_TENSOR,
        "optional": "Whether a request may leave it out.",
        "pad": "The value that fills up shorter rows: rows of unlike size share a batch.",
        "mask": "Whether the worker makes it: 1 for each value of a row, 0 where it is filled up.",
    },
    "OutputSection": {
        **_TENSOR,
        "labels": "Names of classes: a list, or a file with one a line.",
        "parameter": "Whether it is a parameter of the answer and no tensor.",
    },
    "VariantSection": {
        "name": "The variant's name; a request may pin it.",
        "artifact": "The file or folder that the variant loads.",
        "deterministic": "Whether this variant is; the model's word without it.",
        "backend": "What loads it: python code, or a runtime such as onnx or transformers.",
        "compile": "How it runs on a GPU: as it is, by torch.compile, or as CUDA graphs.",
        "options": "Options for the backend, or for `load` of a Python model.",
    },
    "AccuracySection": {
        "metric": "The name of the metric, for people.",
        "file": "A JSON file with one object: variant to accuracy, 0 to 1.",
    },
    "ValidationSection": {"file": "The file with what each variant says of each held-out row."},
    "SizeHintSection": {
        "input": "The input; its size counts.",
        "unit": "What is counted: bytes, a text's likely tokens, or the values of a row.",
        "buckets": "Upper bounds of the groups in that unit, or the largest size alone.",
    },
    "ParameterSection": {
        "name": "The parameter's name in requests.",
        "type": "bool, int, float or string.",
        "default": "Its value where a request states none.",
        "minimum": "The least value.",
        "maximum": "The largest value.",
        "time_unit": "The unit, of a parameter that is a time.",
    },
    "PrioritiesSection": {
        "levels": "How many levels there are; 1 goes first.",
        "default": "The level of a request that states none.",
    },
    "SequenceSection": {
        "strategy": "direct: a sequence has a fixed row of batches; oldest: it may be in any row.",
        "slots": "Sequences at once.",
        "idle_s": "Seconds until an idle sequence is forgotten.",
        "controls": "Inputs by which the model learns of start, end, ready and identity.",
        "state": "Outputs of one request that are inputs of the next.",
    },
    "ControlSection": {
        "kind": "What it tells: start, end, ready or corrid, the sequence's identity.",
        "name": "The input's name.",
        "datatype": "The input's datatype.",
    },
    "StateSection": {
        "input": "The input that gets the state.",
        "output": "The output that is the next state.",
        "datatype": "The state's datatype.",
        "shape": "The state's shape, without the batch dimension.",
    },
    "EndpointsSection": {
        "task": "What the model does: embed, rerank or classify.",
        "input": "The input that gets the text.",
        "query": "The input that gets the query.",
        "document": "The input that gets the document.",
        "output": "The output that has vectors or scores.",
        "activation": "What makes scores of the output.",
        "tokenizer": "The tokenizer's file, or several paths to try.",
        "tokens_max": "Tokens that the model takes of a text.",
        "dimensions": "Shorter lengths to which a vector may be cut.",
    },
}
