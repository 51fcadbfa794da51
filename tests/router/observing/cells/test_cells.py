"""Promises of what is shown of cells: to people, to load balancers and to Prometheus."""

import re
from typing import Any

from rich.console import Console

from router.observing.cells.body import CellBody, CellsBody
from router.observing.cells.envoy import envoy_config
from router.observing.cells.table import cells_table, fault_line
from router.observing.telemetry import CellsPresent
from router.observing.telemetry.families.cells import cell_families


def cell(name: str, port: int, *models: str, reason: str = "", slices: float = 4) -> CellBody:
    return {
        "name": name,
        "door": f"10.0.0.1:{port + 6}",
        "rest": f"http://10.0.0.1:{port}",
        "grpc": f"10.0.0.1:{port + 1}",
        "slices": slices,
        "work": 1.25,
        "models": [*models],
        "reason": reason,
        "trip_us": 470,
        "passed": 12345,
    }


BODY: CellsBody = {
    "name": "a",
    "version": 3,
    "decided_by": "b",
    "fault": "",
    "cells": [
        cell("a", 8000, "x", "y"),
        cell("b", 9000, "y", "1", "2", "3", "4", reason="cannot be called"),
        cell("c", 7000, slices=0),
    ],
    "homes": {"x": {"a": 1.0}, "y": {"a": 0.25, "b": 0.75}, "z.1": {"gone": 1.0}},
}


def shown(body: CellsBody) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(cells_table(body))
    return capture.get()


def test_a_row_says_where_a_cell_is_and_what_it_has() -> None:
    text = shown(BODY)
    assert re.search(r"a +http://10.0.0.1:8000 +x, y +4 +1.2 +12,345 +0.47 +here", text)
    assert re.search(r"b +http://10.0.0.1:9000 +y, 1, 2, 3 and 1 more .* cannot be called", text)
    assert re.search(r"c +http://10.0.0.1:7000 +- .* leaves", text)


def test_a_cell_that_meets_no_others_is_said() -> None:
    assert fault_line(BODY) == ""
    assert fault_line({**BODY, "fault": "cannot meet"}) == "cell a cannot meet"


def routes(config: Any) -> list[Any]:
    (listener,) = config["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    found: list[Any] = manager["route_config"]["virtual_hosts"][0]["routes"]
    return found


def clusters_of(config: Any, path: str) -> dict[str, int]:
    """Where Envoy sends a request: the first route that matches counts."""
    for route in routes(config):
        regex = route["match"].get("safe_regex", {}).get("regex")
        if regex is not None and re.fullmatch(regex, path):
            return {each["name"]: each["weight"] for each in route["route"]["weighted_clusters"]["clusters"]}
        if "prefix" in route["match"] and path.startswith(route["match"]["prefix"]):
            return {route["route"]["cluster"]: 1}
    raise AssertionError(path)


def test_envoy_sends_each_model_where_it_is() -> None:
    config = envoy_config(BODY)
    assert clusters_of(config, "/v2/models/x/infer") == {"cell-a": 1000}
    assert clusters_of(config, "/v2/models/y") == {"cell-a": 250, "cell-b": 750}
    assert clusters_of(config, "/v2/models/xx/infer") == {"any-cell": 1}
    assert clusters_of(config, "/v2/models/z.1/infer") == {"any-cell": 1}
    assert clusters_of(config, "/v2/health/ready") == {"any-cell": 1}


def test_envoy_knows_each_cell_and_all() -> None:
    clusters: Any = envoy_config(BODY)["static_resources"]["clusters"]  # type: ignore[index]
    ends = {
        each["name"]: [
            end["endpoint"]["address"]["socket_address"]["port_value"]
            for end in each["load_assignment"]["endpoints"][0]["lb_endpoints"]
        ]
        for each in clusters
    }
    assert ends == {"cell-a": [8000], "cell-b": [9000], "cell-c": [7000], "any-cell": [8000, 9000, 7000]}


def test_metrics_tell_of_cells() -> None:
    text = "".join(cell_families(CellsPresent({"b": True}, {("b", "completed"): 5}, 3, False)))
    assert 'penstock_cell_up{cell="b"} 1\n' in text
    assert 'penstock_cell_requests_total{cell="b",outcome="completed"} 5\n' in text
    assert "penstock_cell_map_version 3\n" in text
    assert "penstock_cell_meets 0\n" in text
