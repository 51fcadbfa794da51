"""What REST and gRPC share of the Open Inference Protocol: names, which model is meant, how long it may take.

Nothing of HTTP or of gRPC calls is in here: each edge says it in its own words.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from router.protocol.outcomes import unknown_model
from router.tensors.heading import NAME_CHARS_MAX
from router.tensors.parts.errors import RequestError, bad_input
from router.tensors.parts.wording import quoted
from router.tensors.request.parameters import LONGEST_US
from serving.ports import Call, Serving
from serving.values.specs import DEFAULT_TENANT, ModelSpec, ServedModel, find_version
from serving.values.traces import trace_context, trace_id_of
from serving.values.versions import MARK, model_of
from serving.values.vocabulary import UNKNOWN_MODEL

PLATFORMS: Final[Mapping[str, str]] = {
    "python": "penstock_python", "onnx": "onnxruntime_onnx", "openvino": "openvino_ir",
    "torch_export": "pytorch_export", "transformers": "huggingface_transformers",
    "sklearn": "sklearn_joblib", "remote": "penstock_remote",
}  # fmt: skip
"""By backend, in the protocol's form: framework and format; Triton's name where it has one."""


def platform_of(spec: ModelSpec) -> str:
    """Return the platform of the variant that answers by default."""
    return PLATFORMS[spec.variant(spec.default_variant).backend]


EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "logging",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "sequence",
    "sequence(string_id)",
    "statistics",
)
"""Of the protocol's extensions, those that are served whole."""


def extensions(shared_memory: object) -> tuple[str, ...]:
    """Return the extensions of a gateway; `shared_memory`: what serves that of clients, None for nothing."""
    return EXTENSIONS if shared_memory is None else tuple(sorted((*EXTENSIONS, "system_shared_memory")))


ReadStatistics = Callable[[str], Mapping[str, object]]
"""A served model's entry in the `model_stats` of the statistics extension, as JSON values."""

TIMEOUT_FIELD = "x-request-timeout-ms"
REQUEST_FIELD = "x-request-id"
TRACE_FIELD, STATE_FIELD = "traceparent", "tracestate"
"""https://www.w3.org/TR/trace-context/"""
TENANT_FIELD = "x-tenant"
TIER_FIELD = "x-tier"
ACCURACY_FIELD = "x-accuracy-min"
CACHE_FIELD = "cache-control"
"""HTTP header fields and gRPC metadata keys."""

MAX_AGE_S: Final = 1 << 31
"""A longer `max-age` counts as this (RFC 9111, 1.2.2)."""

_DIRECTIVE: Final = re.compile(r'([^\s,="]+)(?:\s*=\s*("[^"]*"|[^\s,"]*))?')


def find_model(serving: Serving, name: str, version: str = "") -> ServedModel:
    """Return the model of that name, or a version of it; `digits@2` is version 2 of digits, too.

    RequestError (UNKNOWN_MODEL) where there is none.
    """
    model = serving.models.get(name)
    if model is not None and not version:
        return model.pinned if MARK in name else model
    asked, _, stated = name.partition(MARK)
    version = version or stated
    if asked not in serving.models or version != (stated or version):
        raise RequestError(UNKNOWN_MODEL, unknown_model(name, serving.models))
    found = find_version(serving.models, asked, version)
    if found is None:
        there = versions_of(serving, asked)
        known = (
            f"its versions are {', '.join(there)}" if len(there) > 1 else f"the only version is {there[0]}"
        )
        sentence = f"Request for unknown model: '{asked}' version {quoted(version)[1:-1]} is not found"
        raise RequestError(UNKNOWN_MODEL, f"{sentence}; {known}")
    return found.pinned


def versions_of(serving: Serving, name: str) -> list[str]:
    """Return the versions of a model that are served, ascending; `name`: also of one of them."""
    return [*dict.fromkeys(model.spec.model_version for model in served_versions(serving, name))]


def served_versions(serving: Serving, name: str) -> list[ServedModel]:
    """Return all served versions of a model, ascending; `name`: also of one of them."""
    wanted = model_of(name)
    return by_version(model for model in serving.models.values() if model.spec.model_name == wanted)


def by_version(models: Iterable[ServedModel]) -> list[ServedModel]:
    """Return the models in the order in which the protocol lists them: by name, then by version."""
    return sorted(models, key=lambda model: (model.spec.model_name, model.spec.version))


def told_of(read: ReadStatistics, model: ServedModel) -> dict[str, object]:
    """Return the statistics of a served model under its name and version in the protocol."""
    spec = model.spec
    return {**read(model.name), "name": spec.model_name, "version": spec.model_version}


def tenant_of(serving: Serving, stated: str) -> str:
    """Return the tenant that TENANT_FIELD names; the default one where the settings do not list it."""
    name = stated.strip()
    return name if name in serving.tenants else DEFAULT_TENANT


def check_one_row(call: Call) -> None:
    """Raise RequestError unless a request of a decoupled model has one row."""
    if call.rows != 1:
        raise bad_input(
            f"a request of the decoupled model '{call.model.name}' has one row, got {call.rows}: "
            "send a request for each"
        )


def tighten(call: Call, timeout_us: float) -> None:
    """Add a time limit that the client gave, from `call.arrived_us`; the shortest of all limits counts."""
    whole_us = max(1, math.ceil(min(timeout_us, LONGEST_US)))
    if call.timeout_us is None or whole_us < call.timeout_us:
        call.timeout_us = whole_us


def stated_timeout_us(stated: str) -> float:
    """Return what TIMEOUT_FIELD says, in microseconds, of several fields the least; RequestError unless it is
    a positive number."""
    try:
        timeouts_ms = [float(each) for each in stated.split(",")]
    except ValueError:
        timeouts_ms = [math.nan]
    if not all(0 < each < math.inf for each in timeouts_ms):  # also false for NaN
        raise bad_input(f"{TIMEOUT_FIELD} must be a positive number of milliseconds, got {quoted(stated)}")
    return min(timeouts_ms) * 1000


def control_cache(call: Call, stated: str) -> None:
    """Apply what CACHE_FIELD says of kept answers: how old an answer may be, and whether this answer may be
    kept.

    `max-age=N` takes answers of up to N seconds, `no-cache` none, `no-store` keeps none; the strictest
    counts. Other directives change nothing, as in RFC 9111, 5.2.3. Raises RequestError if N is no whole
    number.
    """
    call.max_age_us, call.store = _cache_control(stated)


@lru_cache(maxsize=64)
def _cache_control(stated: str) -> tuple[int | None, bool]:
    """Return `Call.max_age_us` and `Call.store`. They are remembered, as clients say the same with every
    request."""
    ages_us = []
    store = True
    for name, argument in _DIRECTIVE.findall(stated.lower()):
        if name == "no-store":
            store = False
        elif name == "no-cache":
            ages_us.append(0)
        elif name == "max-age":
            ages_us.append(_max_age_us(argument))
    return min(ages_us, default=None), store


def _max_age_us(argument: str) -> int:
    digits = argument.strip('"')
    if not digits.isdecimal():
        said = "a whole number of seconds, 0 or more"
        raise bad_input(f"max-age of {CACHE_FIELD} must be {said}, got {quoted(argument)}")
    leading = digits.lstrip("0")[:11]  # eleven are over MAX_AGE_S; int() refuses thousands
    return min(int(leading or 0), MAX_AGE_S) * 1_000_000


def name_request(call: Call, stated: str, trace: str, state: str) -> None:
    """Name the call as its client does: by REQUEST_FIELD, else by the protocol's `id`, which it has, else by
    the trace that TRACE_FIELD says it belongs to; that is kept, too, with STATE_FIELD."""
    if trace:
        call.trace, call.trace_state = trace_context(trace, state)
        call.name = call.name or trace_id_of(call.trace)
    if stated:
        call.name = stated[:NAME_CHARS_MAX]
