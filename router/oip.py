"""What REST and gRPC share of the Open Inference Protocol: names, which model is meant, how long it may take.

Nothing of HTTP or of gRPC calls is in here: each edge says it in its own words.
"""

import math

from router.outcomes import unknown_model
from router.tensors.decoded import MODEL_VERSION
from router.tensors.errors import RequestError, bad_input
from router.tensors.parameters import LONGEST_US
from router.tensors.wording import quoted
from serving.ports import Call, Serving
from serving.specs import DEFAULT_TENANT, ServedModel
from serving.vocabulary import UNKNOWN_MODEL

PLATFORM = "penstock_torch"

EXTENSIONS = ("binary_tensor_data", "parameters")
"""Of the protocol's extensions, those that are served whole."""

TIMEOUT_FIELD = "x-request-timeout-ms"
TENANT_FIELD = "x-tenant"
"""HTTP header fields and gRPC metadata keys."""


def find_model(serving: Serving, name: str, version: str) -> ServedModel:
    """The model of that name and version; RequestError (UNKNOWN_MODEL) where there is none."""
    model = serving.models.get(name)
    if model is None:
        raise RequestError(UNKNOWN_MODEL, unknown_model(name, serving.models))
    if version != MODEL_VERSION:
        sentence = f"Request for unknown model: '{name}' version {quoted(version)[1:-1]} is not found"
        raise RequestError(UNKNOWN_MODEL, f"{sentence}; the only version is {MODEL_VERSION}")
    return model


def tenant_of(serving: Serving, stated: str) -> str:
    """The tenant that TENANT_FIELD names; the default one where the settings do not list it."""
    name = stated.strip()
    return name if name in serving.tenants else DEFAULT_TENANT


def tighten(call: Call, timeout_us: float) -> None:
    """One more time limit that the client gave, from `call.arrived_us`; the shortest of all counts."""
    whole_us = max(1, math.ceil(min(timeout_us, LONGEST_US)))
    if call.timeout_us is None or whole_us < call.timeout_us:
        call.timeout_us = whole_us


def stated_timeout_us(stated: str) -> float:
    """What TIMEOUT_FIELD says, in microseconds; RequestError unless it is a positive number."""
    try:
        timeout_ms = float(stated)
    except ValueError:
        timeout_ms = math.nan
    if not 0 < timeout_ms < math.inf:  # also false for NaN
        raise bad_input(f"{TIMEOUT_FIELD} must be a positive number of milliseconds, got {quoted(stated)}")
    return timeout_ms * 1000
