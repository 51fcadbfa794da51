"""Every public method of tritonclient's four clients, called at a gateway: docs/protocol.md has the table.

  python -m tests.acceptance.client_surface    # prints it

`works`: the method did what it is for. `refused`: the gateway said by name that it does not serve this.
`missing`: the gateway knows no such call. `-`: the client has no such method.
"""

import asyncio
import inspect
import queue
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final  # tritonclient's modules carry no types
from uuid import uuid4

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio
from grpc.aio import AioRpcError
from tritonclient.utils import InferenceServerException

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess

CLIENTS: Final[dict[str, ModuleType]] = {
    "http": http_client,
    "http.aio": http_aio,
    "grpc": grpc_client,
    "grpc.aio": grpc_aio,
}
STREAM_S: Final = 60
NO_PATH: Final = "no such path"

SETTINGS: Final = """\
slices: [{{name: a, cores: 1}}]
admin: {{on_inference_ports: true}}
server: {{client_shm: true}}
models:
  - {{path: {root}/models/simple, slo_ms: {slo_ms}}}
  - {{path: {root}/models/identity, slo_ms: {slo_ms}}}
  - {{path: {root}/models/digits, slo_ms: {slo_ms}, default_variant: linear, variants: [linear]}}
profiles: {{folder: {root}/profiles}}
"""


def inputs(module: ModuleType) -> list[Any]:
    """The inputs of `simple`, of one row."""
    made = [module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for each in made:
        each.set_data_from_numpy(np.ones((1, 16), np.int32))
    return made


class _Plugin:
    def __call__(self, request: Any) -> None:
        """Leave the request as it is."""


def _stream(client: Any, module: ModuleType) -> None:
    """Send one request through a stream, and wait for what it brings."""
    came: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(callback=lambda result, error: came.put((result, error)))
    try:
        client.async_stream_infer("simple", inputs(module))
        _, error = came.get(timeout=STREAM_S)
    finally:
        client.stop_stream()
    if error is not None:
        raise error


async def _stream_aio(client: Any, module: ModuleType) -> None:
    async def ask() -> Any:
        yield {"model_name": "simple", "inputs": inputs(module)}

    async for _, error in client.stream_infer(ask()):
        if error is not None:
            raise error


def _async_infer(client: Any, module: ModuleType) -> None:
    if module is http_client:
        client.async_infer("simple", inputs(module)).get_result()
        return
    came: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.async_infer("simple", inputs(module), lambda result, error: came.put((result, error)))
    _, error = came.get(timeout=STREAM_S)
    if error is not None:
        raise error


def _plugin(client: Any, _module: ModuleType) -> None:
    client.register_plugin(_Plugin())
    if client.plugin() is None:
        raise AssertionError("the plugin is not there")
    client.unregister_plugin()


def _body(client: Any, module: ModuleType) -> None:
    body, json_length = client.generate_request_body(inputs(module))
    if not json_length or len(body) <= json_length:
        raise AssertionError("the body has no tensors")


def _parse(client: Any, _module: ModuleType) -> None:
    result = client.parse_response_body(b'{"outputs":[]}')
    if result.get_response() != {"outputs": []}:
        raise AssertionError("the body was not parsed")


def _register(client: Any, _module: ModuleType) -> Any:
    """Register a file that is gone afterwards: the gateway keeps it open."""
    key = f"/penstock-surface-{uuid4().hex}"
    file = Path(f"/dev/shm{key}")  # noqa: S108  # where shm_open makes it
    file.write_bytes(bytes(64))
    made, forget = client.register_system_shared_memory("r", key, 64), file.unlink

    async def finish() -> None:
        try:
            await made
        finally:
            forget()

    if inspect.isawaitable(made):
        return finish()
    forget()
    return made


def _named(name: str, *given: Any) -> Callable[[Any, ModuleType], Any]:
    return lambda client, _module: getattr(client, name)(*given)


CALLS: Final[dict[str, Callable[[Any, ModuleType], Any]]] = {
    "is_server_live": _named("is_server_live"),
    "is_server_ready": _named("is_server_ready"),
    "is_model_ready": _named("is_model_ready", "simple"),
    "get_server_metadata": _named("get_server_metadata"),
    "get_model_metadata": _named("get_model_metadata", "simple"),
    "get_model_config": _named("get_model_config", "simple"),
    "get_inference_statistics": _named("get_inference_statistics"),
    "infer": lambda client, module: client.infer("simple", inputs(module)),
    "async_infer": _async_infer,
    "start_stream": _stream,
    "async_stream_infer": _stream,
    "stop_stream": _stream,
    "stream_infer": _stream_aio,
    "get_model_repository_index": _named("get_model_repository_index"),
    "load_model": _named("load_model", "identity"),
    "unload_model": _named("unload_model", "identity"),
    "get_log_settings": _named("get_log_settings"),
    "update_log_settings": _named("update_log_settings", {"log_verbose_level": 0}),
    "get_trace_settings": _named("get_trace_settings"),
    "update_trace_settings": _named("update_trace_settings", "simple", {"trace_level": ["TIMESTAMPS"]}),
    "get_system_shared_memory_status": _named("get_system_shared_memory_status"),
    "register_system_shared_memory": _register,
    "unregister_system_shared_memory": _named("unregister_system_shared_memory"),
    "get_cuda_shared_memory_status": _named("get_cuda_shared_memory_status"),
    "register_cuda_shared_memory": _named("register_cuda_shared_memory", "r", b"aGFuZGxl", 0, 64),
    "unregister_cuda_shared_memory": _named("unregister_cuda_shared_memory"),
    "generate_request_body": _body,
    "parse_response_body": _parse,
    "plugin": _plugin,
    "register_plugin": _plugin,
    "unregister_plugin": _plugin,
    "close": _named("close"),
}
"""How each method is called, in the order of the table; `close` last."""


def public(module: ModuleType) -> set[str]:
    """Return the names of a client's public methods."""
    return {name for name in dir(module.InferenceServerClient) if not name.startswith("_")}


def verdict(error: Exception | None) -> str:
    """Return what the table says of a call that ended so."""
    if error is None:
        return "works"
    return "missing" if NO_PATH in str(error) else "refused"


async def _ask(name: str, address: str) -> dict[str, str]:
    module, found = CLIENTS[name], dict[str, str]()
    client = module.InferenceServerClient(address)
    for method, call in CALLS.items():
        if method not in public(module):
            continue
        try:
            answer = call(client, module)
            if inspect.isawaitable(answer):
                await answer
            found[method] = verdict(None)
        except (InferenceServerException, AioRpcError) as error:
            found[method] = verdict(error)
    return found


def surface(gateway: GatewayProcess) -> dict[str, dict[str, str]]:
    """Return the verdict on each method, by client."""
    addresses = {name: gateway.rest if name.startswith("http") else gateway.grpc for name in CLIENTS}
    return {name: asyncio.run(_ask(name, address)) for name, address in addresses.items()}


def table(found: dict[str, dict[str, str]]) -> list[str]:
    """Return the lines of the table."""
    lines = [f"| method | {' | '.join(CLIENTS)} |", "|---" * (len(CLIENTS) + 1) + "|"]
    for method in CALLS:
        cells = [found[name].get(method, "-") for name in CLIENTS]
        lines.append(f"| `{method}` | {' | '.join(cells)} |")
    return lines


@contextmanager
def started() -> Iterator[GatewayProcess]:
    """A gateway that serves what the calls ask for, and takes changes on its ports."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "penstock.yaml"
        config.write_text(SETTINGS.format(root=ROOT, slo_ms=PATIENT_MS))
        gateway = GatewayProcess.start(config, Path(folder) / "log")
        try:
            yield gateway
        finally:
            gateway.kill()
            gateway.process.wait()


def main() -> None:
    """Print the table."""
    with started() as gateway:
        sys.stdout.write("\n".join(table(surface(gateway))) + "\n")


if __name__ == "__main__":
    main()
