"""What the extensions share on REST and gRPC: which model is meant, and how each says no."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any  # neither grpc nor the generated messages carry types

import grpc
import orjson
from fastapi.responses import Response

from router.grpc.rpc import RpcMethod
from router.management.operations.repository.refusals import RepositoryError
from router.protocol.oip import find_model
from router.protocol.outcomes import ANSWERS, INTERNAL_ERROR, worded
from router.security.auth.identity import CALLER, may_use
from router.tensors.parts.errors import RequestError
from router.tensors.parts.wording import quoted
from serving.ports import Serving
from serving.values.specs import ServedModel
from serving.values.vocabulary import FORBIDDEN

logger = logging.getLogger(__name__)


def find_usable(serving: Serving, name: str, version: str = "") -> ServedModel:
    """Return the model that a gRPC call names. RequestError if it may not be used."""
    if not may_use(CALLER.get(), name):
        raise RequestError(FORBIDDEN, f"the API key may not use model {quoted(name)}")
    return find_model(serving, name, version)


def json_of(value: object) -> Response:
    """Return an answer of this JSON."""
    return Response(orjson.dumps(value), media_type="application/json")


def rpc_method(answer: Callable[[Any], Awaitable[Any]]) -> RpcMethod:
    """Return the method that answers a message so, and ends the call for what is refused."""
    return partial(_call, answer)


async def _call(answer: Callable[[Any], Awaitable[Any]], request: Any, context: Any) -> Any:
    try:
        return await answer(request)
    except RequestError as error:
        await context.abort(ANSWERS[error.outcome].grpc_code, worded(error.outcome, error.message))
    except RepositoryError as error:
        await context.abort(error.refusal.grpc_code, error.message)
    except Exception:  # grpc would tell the client its text, as UNKNOWN
        logger.exception("an extension failed")
        await context.abort(grpc.StatusCode.INTERNAL, INTERNAL_ERROR)
    raise AssertionError("grpc's abort has returned")
