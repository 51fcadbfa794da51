"""A handler of TorchServe as a model: `penstock import --torchserve` copies this file to the model's folder.

A request's body is BODY, and what the handler answers to it is ANSWER: text as it is, all else as JSON. The
handler's own code is in the folder of the archive, beside its weights.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

HERE = Path(__file__).resolve().parent
ARCHIVE, EXAMPLE = "archive", "example"
"""Beside this file: the unpacked archive, and a body to measure with."""
MANIFEST, CONFIG = "MAR-INF/MANIFEST.json", "model-config.yaml"
DEFAULTS = "ts.torch_handler."
"""The package of the handlers that an archive may name in place of a file: `pip install torchserve`."""


class Silent:
    """Metrics that go nowhere: the gateway has its own."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_given, **_named: None


class Context:
    """What TorchServe tells a handler of its model and its requests."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any], device: str) -> None:
        kind, _, number = device.partition(":")
        self.manifest = manifest
        self.model_name = str(manifest["model"].get("modelName", folder.name))
        self.model_yaml_config: dict[str, Any] = {}
        named = folder / str(manifest["model"].get("configFile") or CONFIG)
        if named.is_file():
            self.model_yaml_config = yaml.safe_load(named.read_text("utf-8")) or {}
        self.system_properties = {
            "model_dir": str(folder), "gpu_id": int(number or 0) if kind == "cuda" else None, "batch_size": 1,
            "server_name": "Penstock", "server_version": "", "limit_max_image_pixels": True,
        }  # fmt: skip
        self.metrics = Silent()
        self.explain = False

    def get_request_header(self, _row: int, _name: str) -> None:
        """Return no header: the gateway keeps them."""

    def get_all_request_header(self, _row: int) -> dict[str, str]:
        """Return no header."""
        return {}

    def set_response_content_type(self, *_given: object) -> None:
        """Leave the content type to the gateway."""


class Model:
    """A handler that has read its weights. `example`: the body to measure with."""

    def __init__(self, handle: Callable[[list[Any], Context], Any], context: Context, example: bytes) -> None:
        self._handle, self._context, self._example = handle, context, example

    def predict(self, inputs: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  handlers take none
        """Return one answer for each body."""
        rows = [{"body": _decoded(body)} for body in inputs["BODY"][:, 0]]
        self._context.system_properties["batch_size"] = len(rows)
        found = self._handle(rows, self._context)
        if not isinstance(found, list) or len(found) != len(rows):
            raise ValueError(f"the handler answers {len(rows)} bodies with {_told(found)}; expected a list")
        answers = np.empty((len(rows), 1), object)
        answers[:, 0] = [_encoded(each) for each in found]
        return {"ANSWER": answers}

    def sample(self, rows: int, size: int) -> dict[str, Any]:  # noqa: ARG002  bodies have no size hint
        """Return the example for each row."""
        return {"BODY": np.full((rows, 1), self._example, object)}


def load(artifact: Path | None, options: Mapping[str, Any]) -> Model:
    """Return the model of an archive's folder. `options`: the "device"."""
    folder = artifact or HERE / ARCHIVE
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    context = Context(folder, manifest, str(options.get("device", "cpu")))
    name, _, function = str(manifest["model"]["handler"]).partition(":")
    sys.path.insert(0, str(folder))  # handlers import what lies beside them, by bare names
    try:
        handle = _entry(_module(folder, name), function or "handle", context)
    finally:  # another archive in this process may have files of the same names
        sys.path.remove(str(folder))
        for each, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[each]
    return Model(handle, context, (HERE / EXAMPLE).read_bytes())


def _module(folder: Path, name: str) -> Any:
    plain = name.removesuffix(".py")
    return importlib.import_module(plain if (folder / f"{plain}.py").is_file() else DEFAULTS + plain)


def _entry(module: Any, function: str, context: Context) -> Callable[[list[Any], Context], Any]:
    """Return what answers requests: a function of the module, or the method of its one class."""
    if callable(found := getattr(module, function, None)):
        ready = getattr(module, "initialize", None)
        if callable(ready):
            ready(context)
        return found  # type: ignore[no-any-return]
    classes = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise ValueError(
            f"{module.__name__} has no function {function}, and {len(classes)} classes; expected one"
        )
    made = classes[0]()
    made.initialize(context)
    return made.handle  # type: ignore[no-any-return]


def _decoded(body: bytes) -> object:
    """Return JSON as its value, as TorchServe gives it to handlers; all else as it is."""
    if body[:1] in (b"{", b"["):
        try:
            return json.loads(body)
        except ValueError:
            return body
    return body


def _encoded(answer: object) -> bytes:
    if isinstance(answer, bytes | bytearray):
        return bytes(answer)
    return answer.encode() if isinstance(answer, str) else json.dumps(answer, default=_plain).encode()


def _plain(value: Any) -> Any:
    return value.tolist()  # of numpy and torch


def _told(found: object) -> str:
    return f"a list of {len(found)}" if isinstance(found, list) else f"a {type(found).__name__}"
