"""`server: {forward_headers}`: which header fields may state a model's parameters.

The pattern is held against the names of parameters when settings are read, and never against what clients
send. So no client can make it slow. Triton's `--http-header-forward-pattern` is its pattern for REST, and
`--grpc-header-forward-pattern` for gRPC; here one pattern counts for both.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from router.settings.values.findings import Findings
from serving.values.specs import ServedModel

NEVER: Final = frozenset(("authorization", "proxy-authorization", "x-api-key", "cookie"))
"""Fields with secrets, which reach no model."""


def with_headers(model: ServedModel, pattern: str) -> ServedModel:
    """Return the model with its parameters marked that header fields may state. `pattern`: "" for none."""
    if not pattern:
        return model
    parameters = tuple(
        replace(each, header=each.name.lower() not in NEVER and _matches(pattern, each.name))
        for each in model.spec.parameters
    )
    return replace(model, spec=replace(model.spec, parameters=parameters))


def check_headers(findings: Findings, models: Sequence[ServedModel | None]) -> None:
    """Warn of a pattern that no parameter of a model in the file matches."""
    pattern = findings.document.at(("server", "forward_headers"))
    if not isinstance(pattern, str) or not findings.sound(("server",)) or None in models:
        return
    served = [with_headers(each, pattern) for each in models if each]
    if not any(parameter.header for each in served for parameter in each.spec.parameters):
        message = "no parameter of a model has such a name, so no header field reaches a model"
        findings.warn(("server", "forward_headers"), message)


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name, re.IGNORECASE) is not None
