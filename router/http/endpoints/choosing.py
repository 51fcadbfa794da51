"""Which model answers a request at an endpoint: the one that it names, or the only one that serves it."""

from router.protocol.dialects.catalogue import Endpoint
from router.protocol.oip import find_model
from router.security.auth.identity import Identity, may_use
from router.tensors.parts.errors import bad_input
from router.tensors.parts.wording import listed
from serving.ports import Serving
from serving.values.specs import ServedModel


def choose(serving: Serving, endpoint: Endpoint, name: str, identity: Identity | None) -> ServedModel:
    """Return the model of that name, or, for "", the only one that serves the endpoint and that the caller
    may use. RequestError where there is none, or where several could be meant."""
    path = endpoint.paths[0]
    able = sorted(
        model.name
        for model in serving.models.values()
        if endpoint.serves(model.spec) and may_use(identity, model.name)
    )
    if not name:
        if len(able) != 1:
            known = f"models {listed(able)} serve it: name one in 'model'" if able else "no model serves it"
            raise bad_input(f"the request to {path} names no model, and {known}")
        name = able[0]
    model = find_model(serving, name)
    if not endpoint.serves(model.spec):
        others = f"; {listed(able)} can" if able else ""
        needed = f"`endpoints: {{task: {endpoint.tasks[0]}}}` in its model.yaml"
        raise bad_input(f"model '{name}' does not serve {path}{others}: that needs {needed}")
    return model
