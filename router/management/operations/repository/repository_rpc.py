"""The repository API over gRPC: RepositoryIndex, RepositoryModelLoad, RepositoryModelUnload."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any  # neither grpc nor the generated messages carry types

import grpc

from router.management.operations.repository.modelconfig import check_unload, read_asked
from router.management.operations.repository.refusals import NO_REPOSITORY_NAME, UNSUPPORTED, RepositoryError
from router.management.operations.repository.repository import Repository
from router.protocol.outcomes import INTERNAL_ERROR
from router.security.auth.identity import CALLER, may_use
from router.tensors.protos.files import oip

logger = logging.getLogger(__name__)

Method = Callable[[Any, Any], Awaitable[Any]]
_Answer = Callable[[Repository, Any], Awaitable[Any]]


def repository_methods(repository: Repository) -> Mapping[str, Method]:
    """Return the three methods, by name; of a request and its context each."""
    answers: Mapping[str, _Answer] = {
        "RepositoryIndex": _index,
        "RepositoryModelLoad": _load,
        "RepositoryModelUnload": _unload,
    }
    return {name: partial(_call, answer, repository) for name, answer in answers.items()}


async def _call(answer: _Answer, repository: Repository, request: Any, context: Any) -> Any:
    try:
        return await answer(repository, request)
    except RepositoryError as error:
        await context.abort(error.refusal.grpc_code, error.message)
    except Exception:  # grpc would tell the client its text, as UNKNOWN
        logger.exception("the repository API failed")
        await context.abort(grpc.StatusCode.INTERNAL, INTERNAL_ERROR)
    raise AssertionError("grpc's abort has returned")


async def _index(repository: Repository, request: Any) -> Any:
    answer = oip.RepositoryIndexResponse()
    identity = CALLER.get()
    for each in await repository.index(request.ready):
        if may_use(identity, each.name):
            answer.models.add(**each._asdict())
    return answer


async def _load(repository: Repository, request: Any) -> Any:
    _check_repository_name(request)
    name, parameters = request.model_name, {key: _value(each) for key, each in request.parameters.items()}
    await repository.load(name, read_asked(name, parameters, repository.configured(name)))
    return oip.RepositoryModelLoadResponse()


async def _unload(repository: Repository, request: Any) -> Any:
    _check_repository_name(request)
    check_unload(request.parameters)
    await repository.unload(request.model_name)
    return oip.RepositoryModelUnloadResponse()


def _check_repository_name(request: Any) -> None:
    if request.repository_name:
        raise RepositoryError(UNSUPPORTED, NO_REPOSITORY_NAME)


def _value(parameter: Any) -> object:
    kind = parameter.WhichOneof("parameter_choice")
    return getattr(parameter, kind) if kind else None
