"""All extensions of this folder, put on both servers of a gateway."""

from fastapi import FastAPI

from router.grpc.rpc import RpcService
from router.management.admin import ChangeGuard
from router.management.triton.config_edges import Configure, add_model_config, model_config_methods
from router.management.triton.settings_edges import add_settings, only_asks, settings_methods
from router.management.triton.trace_settings import TraceExtension
from router.observing.tracing.triton_settings import TraceSettings
from serving.ports import Serving


def offer_extensions(
    app: FastAPI,
    rpc: RpcService,
    guard: ChangeGuard,
    serving: Serving,
    configure: Configure,
    traces: TraceSettings | None = None,
) -> None:
    """Serve them; before the servers start. What changes something over gRPC is behind the guard. `traces`:
    the settings of the trace file, None where there is none."""
    extension = TraceExtension(traces)
    add_model_config(app, serving, configure)
    add_settings(app, serving, extension)
    rpc.offer(model_config_methods(serving, configure))
    settings = settings_methods(serving, extension)
    rpc.offer({name: guard.method_that_may_ask(name, method, only_asks) for name, method in settings.items()})
