"""Requests for a model, made from what the gateway says of it: seeded contents, ready to be sent.

Numbers fill the shapes that the metadata states (unknown dimensions after the first get COLUMNS); BYTES get
words of standard-library documentation, real text that is there wherever Python is.
"""

import argparse
import asyncio
import collections
import http.client
import inspect
import itertools
import json
import logging
import pathlib
import statistics
import struct
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.error import HTTPError, URLError

import numpy as np

from loadtests.harness.wire import post

COLUMNS = 16  # of tensors whose metadata leaves the number open
_TEXTS = (argparse, asyncio, collections, http.client, inspect, itertools, json, logging, pathlib, statistics,
          struct, subprocess, tempfile, threading, urllib.request)  # fmt: skip
_NUMPY = {
    "BOOL": "?", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1", "UINT16": "<u2",
    "UINT32": "<u4", "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "ANY": "<f4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contents:
    """What the requests of one run hold: `words` bounds the length of a text, both ends included."""

    rows: int = 1
    words: tuple[int, int] = (3, 60)
    distinct: int = 256
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """The target of the requests of one load; "" is the model's default variant and the default tenant."""

    model: str
    variant: str = ""
    tenant: str = ""

    @property
    def name(self) -> str:
        """As it is written on the command line: [TENANT/]MODEL[:VARIANT]."""
        return (self.tenant and f"{self.tenant}/") + self.model + (self.variant and f":{self.variant}")


@dataclass(frozen=True, slots=True)
class Question:
    """One inference: `headers` without Host and Content-Length, and the body."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def request(self) -> bytes:
        return post(self.path, self.body, self.headers)


# What the wire holds is JSON of the protocol's shape, read by key where it is used.
Metadata = Mapping[str, object]


def fetch_metadata(base_url: str, model: str) -> Metadata:
    """Return what the gateway says of the model; ConnectionError, in a sentence, where it says nothing."""
    url = f"{base_url}/v2/models/{model}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (http, as the caller says)
            metadata: Metadata = json.load(answer)
            return metadata
    except HTTPError as error:
        with error:
            said = error.read().decode(errors="replace")
        raise ConnectionError(f"{url} answers {error.code}: {said[:300]}") from error
    except (URLError, OSError) as error:
        raise ConnectionError(f"nobody answers at {url}: {error}") from error


def stated_slo_ms(metadata: Metadata, rows: int = 1) -> float | None:
    """Return the latency that the model promises a request of `rows` rows, or None if the server states
    none."""
    parameters = metadata.get("parameters")
    slo = parameters.get("slo_ms") if isinstance(parameters, Mapping) else None
    if not isinstance(slo, int | float):
        return None
    objective = parameters.get("objective") if isinstance(parameters, Mapping) else None
    slo_rows = objective.get("slo_rows") if isinstance(objective, Mapping) else None
    return float(slo) * (-(-rows // slo_rows) if isinstance(slo_rows, int) else 1)


def make_questions(
    target: Target, metadata: Metadata, contents: Contents, timeout_ms: float = 0
) -> list[Question]:
    """Return `contents.distinct` binary requests, the same for the same seed and Python.

    Raises ValueError if the metadata states inputs that cannot be made up.
    """
    rng = np.random.default_rng([contents.seed, *target.model.encode()])
    inputs = metadata["inputs"]
    if not isinstance(inputs, list) or not inputs:
        raise ValueError(f"the metadata of {target.model!r} names no inputs")
    words = documentation() if any(tensor["datatype"] == "BYTES" for tensor in inputs) else ()
    asked = {"binary_data_output": True} | ({"variant": target.variant} if target.variant else {})
    headers = {"Content-Type": "application/octet-stream"}
    if target.tenant:
        headers["x-tenant"] = target.tenant
    if timeout_ms:
        headers["x-request-timeout-ms"] = f"{timeout_ms:g}"
    found = []
    for _ in range(contents.distinct):
        described, raws = [], []
        for tensor in inputs:
            shape = [contents.rows, *(COLUMNS if size < 0 else size for size in tensor["shape"][1:])]
            datatype = "FP32" if tensor["datatype"] == "ANY" else tensor["datatype"]
            raws.append(_raw(datatype, shape, contents, words, rng))
            described.append({"name": tensor["name"], "shape": shape, "datatype": datatype,
                              "parameters": {"binary_data_size": len(raws[-1])}})  # fmt: skip
        header = json.dumps({"inputs": described, "parameters": asked}, separators=(",", ":")).encode()
        stated = headers | {"Inference-Header-Content-Length": str(len(header))}
        path = f"/v2/models/{target.model}/infer"
        found.append(Question(path, stated, header + b"".join(raws)))
    return found


def _raw(
    datatype: str, shape: Sequence[int], contents: Contents, words: Sequence[str], rng: np.random.Generator
) -> bytes:
    """Return the tensor's bytes: texts, or numbers from 0 to 1 (floats), 0 to 99 (integers)."""
    size = int(np.prod(shape))
    if datatype == "BYTES":
        texts = (_text(contents.words, words, rng).encode() for _ in range(size))
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    kind = _NUMPY.get(datatype)
    if kind is None:
        raise ValueError(
            f"no contents are known for datatype {datatype!r}; known: BYTES, {', '.join(_NUMPY)}"
        )
    dtype = np.dtype(kind)
    numbers = rng.random(size) if dtype.kind == "f" else rng.integers(0, 2 if kind == "?" else 100, size)
    return numbers.astype(dtype).tobytes()


def _text(bounds: tuple[int, int], words: Sequence[str], rng: np.random.Generator) -> str:
    """Return consecutive words; each count within the bounds is equally likely."""
    count = int(rng.integers(bounds[0], bounds[1] + 1))
    start = int(rng.integers(0, len(words)))
    return " ".join(words[number % len(words)] for number in range(start, start + count))


def documentation() -> list[str]:
    """Return the words of the docstrings of some modules and of what is in them, in a fixed order."""
    found: list[str] = []
    for module in _TEXTS:
        members = [module, *(getattr(module, name) for name in sorted(vars(module)))]
        for text in (member.__doc__ for member in members if callable(member) or member is module):
            if isinstance(text, str):
                found += text.split()
    return found
