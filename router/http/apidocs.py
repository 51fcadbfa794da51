"""What the OpenAPI document says about inference, and a page that shows the document offline."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from serving.values.vocabulary import Downgrade

_TENSOR_NAMING = {
    "name": {"type": "string"},
    "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}},
    "datatype": {
        "type": "string",
        "description": "BOOL, UINT8..UINT64, INT8..INT64, FP16, BF16, FP32, FP64 or BYTES",
    },
}

_REQUEST_BODY = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string", "description": "Returned with the answer."},
        "inputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "shape", "datatype"],
                "properties": {
                    **_TENSOR_NAMING,
                    "data": {"type": "array", "items": {}, "description": "Flat or nested, row-major."},
                    "parameters": {
                        "type": "object",
                        "properties": {"binary_data_size": {"type": "integer"}},
                    },
                },
            },
        },
        "outputs": {
            "type": "array",
            "description": "The outputs wanted; all of them where this is missing.",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "binary_data": {"type": "boolean"},
                            "classification": {"type": "integer"},
                        },
                    },
                },
            },
        },
        "parameters": {
            "type": "object",
            "description": "`timeout` (microseconds), `variant`, `tier`, `accuracy_min` (0 to 1), "
            "`binary_data_output`, and the model's own.",
        },
    },
}

_ANSWER_BODY = {
    "type": "object",
    "properties": {
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "id": {"type": "string"},
        "outputs": {
            "type": "array",
            "items": {"type": "object", "properties": {**_TENSOR_NAMING, "data": {"type": "array"}}},
        },
    },
}

_ERROR_BODY = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
}


_TIMING = {
    "schema": {"type": "string"},
    "description": "Milliseconds: `queue` for a slice, `batch` while it filled, `infer` in the model.",
}
_ANSWER_HEADERS = {
    "Server-Timing": _TIMING,
    "X-Penstock-Variant": {"schema": {"type": "string"}, "description": "The variant that answered."},
    "X-Penstock-Accuracy": {"schema": {"type": "number"}, "description": "Its measured accuracy (0 to 1)."},
    "X-Penstock-Downgrade": {
        "schema": {"type": "string", "enum": [reason.value for reason in Downgrade]},
        "description": "Why no better variant answered; missing where that is not so.",
    },
    "X-Penstock-Confidence": {
        "schema": {"type": "number"},
        "description": "Of an answer by several variants: the share of their weight that agrees on it.",
    },
    "X-Penstock-Votes": {
        "schema": {"type": "string"},
        "description": "Of such an answer: how many of how many variants took part (`2/3`).",
    },
    "X-Penstock-Query": {
        "schema": {"type": "string"},
        "description": "What feedback on the answer calls it; missing where none is taken.",
    },
    "X-Penstock-Batch-Rows": {"schema": {"type": "integer"}, "description": "Rows of the batch it was in."},
    "X-Cache": {
        "schema": {"type": "string", "enum": ["hit", "join", "miss"]},
        "description": "Kept, under way already, or computed; missing where the cache was not asked.",
    },
    "Age": {"schema": {"type": "integer"}, "description": "Seconds since a kept answer was computed."},
}
_ERROR_HEADERS = {
    "X-Penstock-Reason": {"schema": {"type": "string"}, "description": "`reason`, as in the body."}
}
_RETRY_HEADERS = {
    **_ERROR_HEADERS,
    "Server-Timing": _TIMING,
    "Retry-After": {"schema": {"type": "integer"}, "description": "When to come back, in seconds."},
    "X-Retry-After-Ms": {"schema": {"type": "integer"}, "description": "The same in milliseconds."},
}


def _error(description: str, headers: Mapping[str, object] = _ERROR_HEADERS) -> dict[str, object]:
    content = {"application/json": {"schema": _ERROR_BODY}}
    return {"description": description, "headers": headers, "content": content}


def _header(name: str, kind: str, description: str) -> dict[str, object]:
    schema = {"type": kind}
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


INFER_OPERATION: dict[str, Any] = {  # Any: FastAPI's own type for it
    "parameters": [
        _header("Inference-Header-Content-Length", "integer", "Bytes of JSON before the binary tensors."),
        _header("X-Request-Timeout-Ms", "number", "Answer within this time or give up with 504."),
        _header(
            "X-Tenant", "string", "Whose request this is; a name that is not listed counts as `default`."
        ),
        _header(
            "X-Api-Key", "string", "The API key, where the gateway asks for one; or Authorization: Bearer."
        ),
        _header("X-Tier", "string", "Which of the model's tiers; without it the tenant's, or none."),
        _header("X-Accuracy-Min", "number", "No variant answers that is less accurate (0 to 1)."),
        _header("X-Request-Id", "string", "Returned with the answer."),
        _header(
            "Cache-Control", "string", "`no-cache`, `max-age=<seconds>` of a kept answer, or `no-store`."
        ),
        _header("Content-Encoding", "string", "gzip or deflate, over the whole body."),
        _header("Accept-Encoding", "string", "gzip or deflate compresses longer answers."),
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _REQUEST_BODY},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "responses": {
        "200": {
            "description": "The outputs; octet-stream where binary ones were asked for.",
            "headers": _ANSWER_HEADERS,
            "content": {
                "application/json": {"schema": _ANSWER_BODY},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        },
        "400": _error("The request does not fit the protocol or the model."),
        "401": _error("No API key that counts, where the gateway asks for one."),
        "403": _error("The API key has no role for it, or is not for this model or tier."),
        "404": _error("No such model or version."),
        "409": _error("What a request of a sequence builds on is gone: the sequence starts again."),
        "413": _error("Over a limit of size."),
        "415": _error("Unknown Content-Encoding."),
        "429": _error("The tenant is over its share of an overloaded gateway.", _RETRY_HEADERS),
        "500": _error("The model or the gateway failed."),
        "503": _error(
            "Overload, a full queue, no replica that is ready, or the gateway is shutting down.",
            _RETRY_HEADERS,
        ),
        "504": _error("The request's deadline or its latency objective could not be met.", _RETRY_HEADERS),
    },
}

_FLAT: dict[str, Any] = {  # Any: as above
    "type": "object",
    "description": "Each input by its name; what names no input is a parameter.",
    "properties": {"id": {"type": "string"}, "parameters": {"type": "object"}},
    "additionalProperties": True,
}
GENERATE_OPERATION: dict[str, Any] = {
    "parameters": INFER_OPERATION["parameters"],
    "requestBody": {"required": True, "content": {"application/json": {"schema": _FLAT}}},
    "responses": {
        **INFER_OPERATION["responses"],
        "200": {
            "description": "Each output by its name: one object, or an event `data: {...}` for each answer.",
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "text/event-stream": {"schema": {"type": "string"}},
            },
        },
    },
}

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }}
code, summary b {{ font-family: ui-monospace, monospace }} summary {{ cursor: pointer }}
details {{ border-bottom: 1px solid #ddd; padding: .4rem 0 }}
td {{ padding-right: 1rem; vertical-align: top }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111; color: #ddd }} a {{ color: #8bf }} }}
</style></head><body><h1>{title} <small>{version}</small></h1>
<p>{summary} The machine-readable form is <a href="/openapi.json">openapi.json</a>.</p>
{operations}
</body></html>
"""


def render_docs(document: Mapping[str, Any]) -> str:
    """Return an HTML page of an OpenAPI document; no script, nothing loaded from elsewhere."""
    operations = [
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    about = document["info"]
    return _PAGE.format(
        title=escape(about["title"]),
        version=escape(about["version"]),
        summary=escape(about.get("summary", "")),
        operations="\n".join(operations),
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    rows = "".join(_rows(operation))
    title = f"<b>{method.upper()} {escape(path)}</b> {escape(operation.get('description', ''))}"
    return f"<details><summary>{title}</summary><table>{rows}</table></details>"


def _rows(operation: Mapping[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        yield _row(f"{parameter['name']} ({parameter['in']})", parameter.get("description", ""))
    for content_type, content in operation.get("requestBody", {}).get("content", {}).items():
        members = content["schema"].get("properties", {})
        yield _row(f"body: {content_type}", ", ".join(members))
    for status, response in operation.get("responses", {}).items():
        yield _row(status, response.get("description", ""))
        for name, header in response.get("headers", {}).items():
            yield _row(f"{status}: {name}", header.get("description", ""))


def _row(term: str, description: str) -> str:
    return f"<tr><td><code>{escape(str(term))}</code></td><td>{escape(str(description))}</td></tr>"
