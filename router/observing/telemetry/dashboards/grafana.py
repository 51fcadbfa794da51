"""A Grafana dashboard of the table of panels (its JSON model, schemaVersion 39: Grafana 10 and later)."""

from typing import Final

from router.observing.telemetry.dashboards.panels import ROWS, Panel, Query, Row

Json = dict[str, object]

TITLE, UID = "Penstock", "penstock"
SCHEMA_VERSION: Final = 39
HEIGHT, WIDTH = 8, 24
SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
MODELS: Final = "label_values(penstock_slo_objective_ratio, model)"
INSTANCES: Final = "label_values(penstock_build_info, instance)"
GOOD, BAD = "green", "red"
_ALWAYS: Final[Json] = {"color": GOOD, "value": None}


def dashboard() -> Json:
    """Return the dashboard, as Grafana provisions or imports it."""
    panels: list[Json] = []
    y = 0
    for row in ROWS:
        head, inner, y = _row(row, y, len(panels) + 1)
        if row.open:
            panels += [head, *inner]
        else:
            panels.append({**head, "panels": inner})
    return {
        "uid": UID,
        "title": TITLE,
        "tags": ["penstock", "inference"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # one cursor for all panels
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_source(), _variable("model", MODELS), _variable("instance", INSTANCES)]},
        "panels": panels,
    }


def _row(row: Row, y: int, number: int) -> tuple[Json, list[Json], int]:
    """Return a row's head, its panels, and where the next row begins. `number`: of the head."""
    head: Json = {
        "id": number * 100,
        "type": "row",
        "title": row.title,
        "collapsed": not row.open,
        "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
        "panels": [],
    }
    inner: list[Json] = []
    x, y = 0, y + 1
    for place, panel in enumerate(row.panels, start=1):
        if x + panel.width > WIDTH:
            x, y = 0, y + HEIGHT
        where = {"h": HEIGHT, "w": panel.width, "x": x, "y": y}
        inner.append({"id": number * 100 + place, "gridPos": where, **_panel(panel)})
        x += panel.width
    return head, inner, y + HEIGHT


def _panel(panel: Panel) -> Json:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": SOURCE,
        "targets": [_target(query, place) for place, query in enumerate(panel.queries)],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {
                    "fillOpacity": 20 if panel.stacked else 0,
                    "stacking": {"mode": "normal" if panel.stacked else "none"},
                    "thresholdsStyle": {"mode": "line" if _limits(panel) else "off"},
                    "showPoints": "never",
                },
                "thresholds": {"mode": "absolute", "steps": _limits(panel) or [_ALWAYS]},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }  # fmt: skip


def _limits(panel: Panel) -> list[Json]:
    """Return the steps of colours, from low to high; none where no value is bad."""
    if panel.bad_above is not None:
        return [{"color": GOOD, "value": None}, {"color": BAD, "value": panel.bad_above}]
    if panel.bad_below is not None:
        return [{"color": BAD, "value": None}, {"color": GOOD, "value": panel.bad_below}]
    return []


def _target(query: Query, place: int) -> Json:
    return {
        "refId": chr(ord("A") + place),
        "datasource": SOURCE,
        "expr": query.promql,
        "legendFormat": query.legend,
        "range": True,
    }


def _source() -> Json:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(name: str, query: str) -> Json:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # when the time range changes
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }
