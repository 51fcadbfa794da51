"""Which request targets the fast path answers: `/v2/models/{model}[/versions/N]/infer`.

Everything it does not know (an unknown version or model, `//`, a trailing slash) belongs to
the ASGI application, which answers it or says why not; so this needs no error of its own.
"""

from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from serving.values.specs import ServedModel
from serving.values.versions import MARK


class InferPaths:
    """Request target, as bytes on the wire, to the model that it calls; `serve` says which there are."""

    __slots__ = ("_by_path",)

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._by_path: dict[bytes, ServedModel] = {}
        self.serve(models)

    def serve(self, models: Mapping[str, ServedModel]) -> None:
        """Serve these models from now on, and no others.

        A version that gets another name is served under both for a moment; the model's own name counts.
        """
        by_path: dict[bytes, ServedModel] = {}
        for name, model in sorted(models.items(), key=lambda item: MARK in item[0]):
            spec, home = model.spec, f"/v2/models/{model.spec.model_name}"
            by_path[f"/v2/models/{name}/infer".encode()] = model
            by_path.setdefault(f"{home}/versions/{spec.model_version}/infer".encode(), model.pinned)
        self._by_path = by_path

    def find(self, target: bytes) -> ServedModel | None:
        """Return the model of an infer target, query string and percent-encoding allowed; else None."""
        model = self._by_path.get(target)
        if model is not None or (b"?" not in target and b"%" not in target):
            return model
        return self._by_path.get(unquote_to_bytes(target.partition(b"?")[0]))
