"""deploy/grafana: the dashboard is the one of the table; each query parses, and asks for what there is."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from router.observing.telemetry.dashboards.grafana import WIDTH, dashboard
from router.observing.telemetry.dashboards.panels import ROWS, Panel
from tests.deploy.files import COMPOSE, ROOT, SERVICES
from tests.router.observing.test_telemetry_documented import exported

FILE = ROOT / "deploy" / "grafana" / "penstock.json"
PANELS = [panel for row in ROWS for panel in row.panels]
SERIES = re.compile(r"\b((?:penstock|process)_\w+)(?:\{([^}]*)\})?")
OF_TARGETS = {"instance", "job"}
"""Labels that Prometheus itself adds."""


def title(panel: Panel) -> str:
    return panel.title


def drawn(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All panels, also those of rows that are closed."""
    for each in panels:
        if each["type"] != "row":
            yield each
        yield from drawn(each.get("panels", []))


def test_the_file_is_what_the_command_prints() -> None:
    assert json.loads(FILE.read_text("utf-8")) == dashboard(), (
        "penstock dashboard > deploy/grafana/penstock.json"
    )


@pytest.mark.parametrize("panel", PANELS, ids=title)
def test_a_panel_asks_for_what_a_gateway_exports(panel: Panel) -> None:
    known = exported()
    for query in panel.queries:
        promql_parser.parse(query.promql.replace("$__rate_interval", "1m"))
        asked = SERIES.findall(query.promql)
        assert asked
        labels = frozenset[str](OF_TARGETS)
        for series, matchers in asked:
            if series.startswith("process_"):
                continue
            kind, has = known[re.sub(r"_(bucket|sum|count)$", "", series) if series not in known else series]
            assert set(re.findall(r"(\w+) ?[=!]", matchers)) <= has | OF_TARGETS, series
            labels |= has | ({"le"} if kind == "histogram" else set())
        grouped = {
            each.strip() for found in re.findall(r"by \(([^)]*)\)", query.promql) for each in found.split(",")
        }
        assert grouped <= labels | {"le"}
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= grouped | labels


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own() -> None:
    found = dashboard()["panels"]
    assert isinstance(found, list)
    panels = list(drawn(found))
    assert len({each["id"] for each in panels}) == len(panels) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for each in panels:
        place = each["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, each["title"]
        taken |= cells


def test_compose_starts_grafana_with_the_dashboard_and_its_source() -> None:
    mounted = {each["source"]: each["target"] for each in SERVICES["grafana"]["configs"]}
    assert (ROOT / COMPOSE["configs"]["dashboard"]["file"]).samefile(FILE)
    providers = yaml.safe_load(COMPOSE["configs"]["dashboards"]["content"])["providers"]
    assert mounted["dashboard"].startswith(providers[0]["options"]["path"])
    (source,) = yaml.safe_load(COMPOSE["configs"]["datasources"]["content"])["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
