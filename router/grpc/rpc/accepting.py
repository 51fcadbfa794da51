"""A grpc.aio server whose calls are taken by what they ask for, so that no `:path` can end it.

grpc.aio takes all calls in one task, which reads each `:path` as UTF-8: the first that is not ends the task,
and with it the server (grpcio 1.85.1, `_server_main_loop`). The calls that wait in the C core then end as
CANCELLED. Here the core itself tells the methods apart, by their bytes; each method has a task of its own.
All other paths share one, which needs none of them: it answers UNIMPLEMENTED.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any  # grpc carries no types

from grpc._cython import cygrpc
from grpc.aio import _server

UNKNOWN = ""
"""In place of a path that no method has."""


class AcceptingServer(_server.Server):  # type: ignore[misc]  # grpc has no types
    """`handlers`: by the path of each method."""

    def __init__(
        self, options: Sequence[tuple[str, int]], interceptors: Sequence[Any], handlers: Mapping[str, Any]
    ) -> None:
        # Without the other's __init__: it makes a core of its own, which only a shutdown would free.
        self._loop = cygrpc.get_working_loop()
        self._server = _Core(self._loop, None, (), interceptors, tuple(options), None)
        self._server.serve(handlers, tuple(interceptors))


class _Core(cygrpc.AioServer):  # type: ignore[misc]
    """Its main task waits for those that take calls, and ends where one of them does."""

    _tasks: set[asyncio.Task[None]]
    _handlers: Mapping[str, Any]

    def serve(self, handlers: Mapping[str, Any], interceptors: tuple[Any, ...]) -> None:
        """Serve these handlers; call this before the start."""
        self._tasks, self._handlers, self._chain = set(), handlers, interceptors
        self.add_registered_method_handlers(dict(handlers))

    def resolve_handler(self, details: Any) -> Any:
        """Return what grpc calls to find a method's handler; None where there is none."""
        return self._handlers.get(details.method)

    def _make_request_call_future(self, path: bytes | None) -> asyncio.Task[None]:
        """Return a task that takes the calls of a path, in place of grpc's, which takes one call. `path`
        None: the paths that no method has."""
        return asyncio.get_running_loop().create_task(self._take(path))

    async def _take(self, path: bytes | None) -> None:
        """Take all calls of a path, until the core takes none: then grpc's own exception ends it."""
        name = UNKNOWN if path is None else path.decode()
        while True:
            coming = self._request_call() if path is None else self._request_registered_call(path)
            self._begin(name, await coming)

    def _begin(self, name: str, state: Any) -> None:
        loop = asyncio.get_running_loop()
        answer = cygrpc._handle_rpc(name, self, self._chain, state, loop, False)  # noqa: SLF001
        task = loop.create_task(cygrpc._schedule_rpc_coro(answer, state, loop, name))  # noqa: SLF001
        self._tasks.add(task)  # a loop holds tasks weakly
        task.add_done_callback(self._tasks.discard)
