"""The map of cells as a configuration of Envoy: each request goes to the gateway that answers it.

A gateway passes on what is not its own, so a map that is old costs time and no request.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from router.observing.cells.body import CellsBody

LISTEN: Final = 8080
_WEIGHTS: Final = 1000
_FILTERS: Final = "type.googleapis.com/envoy.extensions.filters."
_HTTP: Final = f"{_FILTERS}network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER: Final = f"{_FILTERS}http.router.v3.Router"

Json = dict[str, object]


def envoy_config(body: CellsBody, port: int = LISTEN) -> Json:
    """Return a static configuration: a listener, a route of each model, a cluster of each cell, one of all.

    REST is routed by its path. Envoy sends everything else to any gateway.
    """
    there = {each["name"]: each["rest"] for each in body["cells"] if each["rest"]}
    routes = [*_routes(body["homes"], there), {"match": {"prefix": "/"}, "route": {"cluster": "any-cell"}}]
    manager = {
        "@type": _HTTP,
        "stat_prefix": "penstock",
        "codec_type": "AUTO",
        "route_config": {"virtual_hosts": [{"name": "penstock", "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}],
    }
    listener = {
        "name": "penstock",
        "address": _address("0.0.0.0", port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    clusters = [_cluster(f"cell-{name}", [rest]) for name, rest in there.items()]
    return {
        "static_resources": {
            "listeners": [listener],
            "clusters": [*clusters, _cluster("any-cell", [*there.values()])],
        }
    }


def _routes(homes: Mapping[str, Mapping[str, float]], there: Mapping[str, str]) -> Iterator[Json]:
    for model, parts in homes.items():
        shares = {name: round(share * _WEIGHTS) for name, share in parts.items() if name in there}
        shares = {name: weight for name, weight in shares.items() if weight}
        if shares:
            clusters = [{"name": f"cell-{name}", "weight": weight} for name, weight in shares.items()]
            pattern = f"/v2/models/{re.escape(model)}(/.*)?"
            yield {
                "match": {"safe_regex": {"regex": pattern}},
                "route": {"weighted_clusters": {"clusters": clusters}},
            }


def _cluster(name: str, urls: list[str]) -> Json:
    endpoints = [{"endpoint": {"address": _address(*_host_and_port(url))}} for url in urls]
    return {
        "name": name,
        "type": "STRICT_DNS",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }


def _host_and_port(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def _address(host: str, port: int) -> Json:
    return {"socket_address": {"address": host, "port_value": port}}
