"""All extensions of this folder, put on both servers of a gateway."""

from fastapi import FastAPI

from router.grpc.rpc import RpcService
from router.management.admin import ChangeGuard
from router.management.triton.config_edges import Configure, add_model_config, model_config_methods
from router.management.triton.settings_edges import add_settings, only_asks, settings_methods
from serving.ports import Serving


def offer_extensions(
    app: FastAPI, rpc: RpcService, guard: ChangeGuard, serving: Serving, configure: Configure
) -> None:
    """Serve them; before the servers start. What changes something over gRPC is behind the guard."""
    add_model_config(app, serving, configure)
    add_settings(app, serving)
    rpc.offer(model_config_methods(serving, configure))
    settings = settings_methods(serving)
    rpc.offer({name: guard.method_that_may_ask(name, method, only_asks) for name, method in settings.items()})
