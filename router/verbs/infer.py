"""`penstock infer`: one request, in as few words as it takes, and its answer."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import typer

from router.commandline.reading import RefusedError, UnreachableError, read_json

WAIT_S: Final = 120.0
SHOWN: Final = 8
"""Values of an output that a line shows."""


class DataError(Exception):
    """What is to be sent is no request for the model; the text says what would be one."""


def infer(model: str, data: str | None, url: str, as_json: bool, key_env: str) -> int:
    """Send one request and print the answer. Return 0, 1 if the gateway refuses it, or 2 if none can be sent.

    `data`: see `request_of`; None sends what the gateway has as an example.
    """
    path = f"/v2/models/{quote(model, safe='')}"
    try:
        body = read_json(url, f"{path}/example", key_env) if data is None else None
        if data is not None:
            body = request_of(_text(data), _object(read_json(url, path, key_env)))
        started = time.perf_counter()
        answer = _object(read_json(url, f"{path}/infer", key_env, json.dumps(body).encode(), WAIT_S))
        took_ms = (time.perf_counter() - started) * 1000
    except DataError as error:
        typer.echo(str(error), err=True)
        return 2
    except RefusedError as error:
        typer.echo(error.said or str(error), err=True)
        return 1
    except UnreachableError as error:
        typer.echo(str(error), err=True)
        return 2
    if as_json:
        typer.echo(json.dumps(answer))
        return 0
    for output in answer.get("outputs", []):
        typer.echo(_line(output))
    typer.echo(f"answered in {took_ms:.1f} ms, connecting included")
    return 0


def request_of(text: str, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body of a request: JSON of the protocol as it is; values by input, as {"x": [[1, 2]]}; or,
    of a model with one input, its values alone, or any text that is no JSON. Where the batch dimension is
    missing, it is one row.

    Raises DataError if the values are none of the model's.
    """
    inputs = {each["name"]: each for each in metadata["inputs"]}
    try:
        given = json.loads(text)
    except ValueError:
        given = text
    if isinstance(given, dict) and "inputs" in given and "inputs" not in inputs:
        return given
    if not isinstance(given, dict):
        if len(inputs) > 1:
            raise DataError(f"the model has several inputs; expected values by name: {_form(inputs)}")
        given = {next(iter(inputs)): given}
    if unknown := [name for name in given if name not in inputs]:
        raise DataError(f"unknown input {unknown[0]!r}; expected {_form(inputs)}")
    return {"inputs": [_tensor(inputs[name], values) for name, values in given.items()]}


def _tensor(told: Mapping[str, Any], values: Any) -> Mapping[str, Any]:
    shape = list(_shape(values, told["name"]))
    if told["datatype"] == "BYTES" and told["shape"][1:] == [1] and len(shape) < 2:
        shape.append(1)  # each text is a row
    if len(shape) == len(told["shape"]) - 1:
        shape = [1, *shape]
    flat = list(_flat(values))
    if prod(shape) != len(flat):
        raise DataError(f"{told['name']!r} has rows of unlike length; expected shape {told['shape']}")
    return {"name": told["name"], "datatype": told["datatype"], "shape": shape, "data": flat}


def _shape(values: Any, name: str) -> Iterator[int]:
    while isinstance(values, list):
        if not values:
            raise DataError(f"{name!r} has an empty list; expected values")
        yield len(values)
        values = values[0]


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for each in values:
            yield from _flat(each)
    else:
        yield values


def _form(inputs: Mapping[str, Any]) -> str:
    told = (f'"{name}": {each["datatype"]} {each["shape"]}' for name, each in inputs.items())
    return f"{{{', '.join(told)}}}"


def _line(output: Mapping[str, Any]) -> str:
    data = output.get("data", [])
    more = f", ... {len(data) - SHOWN} more" if len(data) > SHOWN else ""
    shown = ", ".join(f"{each:.6g}" if isinstance(each, float) else json.dumps(each) for each in data[:SHOWN])
    return f"{output['name']}  {output['datatype']} {output['shape']}: {shown}{more}"


def _text(data: str) -> str:
    """Return the text itself, or that of a file (@FILE) or of standard input (-)."""
    try:
        if data == "-":
            return sys.stdin.read()
        return Path(data[1:]).read_text("utf-8") if data.startswith("@") else data
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise DataError(f"{data[1:]} cannot be read: {reason}") from None


def _object(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}
