"""`GET /v2/models/{model}/explain`: which variant answers, how many replicas, and why, as figures."""

from collections.abc import Callable

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from router.protocol.oip import find_model
from router.verbs.explain.body import Explanation
from router.verbs.explain.words import sentences
from serving.ports import Serving
from serving.values.specs import ServedModel


def add_explain(app: FastAPI, serving: Serving, explain: Callable[[ServedModel], Explanation]) -> None:
    """Add the route to the application; `explain` reads how the model stands."""

    @app.get("/v2/models/{model}/explain", tags=["operation"])
    async def explanation(model: str, words: bool = False) -> JSONResponse:
        """Return a model's promises, the variants that may answer, the variant that does, and the figures
        behind it. It also says why the model has as many replicas as it has. `penstock explain` puts it into
        words, and so does `words=true`: then `sentences` are lines, of requests without a tier."""
        found = explain(find_model(serving, model))
        if words:
            return JSONResponse({**found, "sentences": sentences(found, found["promises"][0])})
        return JSONResponse(found)
