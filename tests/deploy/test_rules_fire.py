"""deploy/prometheus: each alert fires when it should, and only then, by Prometheus' own `promtool`."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.test_rules import ALERTS, FILE, name

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here: apt-get install prometheus")

Series = dict[str, str]
MODEL, SLICE = {"model": "m"}, {"slice": "a"}
OFFERED = 'penstock_offered_requests_total{model="m",tenant="t"}'
MISSED = 'penstock_slo_violations_total{model="m",tenant="t"}'
OBJECTIVE = {'penstock_slo_objective_ratio{model="m"}': "0.99x800"}
PROFILE = 'penstock_profile_state{model="m",variant="v",slice="a",state="stale"}'
SHIFT = 'penstock_data_shift{model="m",kind="rows"}'
READY = 'penstock_model_ready{model="m"}'
SETTINGS = "penstock_config_last_reload_successful"
KEYS = "penstock_auth_last_reload_successful"
CERTIFICATE = "penstock_tls_last_reload_successful"
STALLS = "penstock_event_loop_stalls_total"
OF_PROFILE = {**MODEL, "variant": "v", **SLICE, "state": "stale"}
LAG = "penstock_event_loop_lag_seconds_bucket"
CASES: dict[str, tuple[Series, Series, dict[str, str], str]] = {
    "PenstockBurnsFast": (
        OBJECTIVE | {OFFERED: "0+600x800", MISSED: "0+120x800"},
        OBJECTIVE | {OFFERED: "0+600x800", MISSED: "0+6x800"}, MODEL, "2h",
    ),
    "PenstockBurns": (
        OBJECTIVE | {OFFERED: "0+600x800", MISSED: "0+50x800"},
        OBJECTIVE | {OFFERED: "0+600x800", MISSED: "0+30x800"}, MODEL, "8h",
    ),
    "PenstockSaturated": (
        {'penstock_slice_busy_seconds_total{slice="a"}': "0+59x800"},
        {'penstock_slice_busy_seconds_total{slice="a"}': "0+50x800"}, SLICE, "1h",
    ),
    "PenstockModelDown": (
        {READY: "1 0x10"}, {READY: "1 0 1x10"}, MODEL, "5m"
    ),
    "PenstockWorkerCrashLoop": (
        {'penstock_worker_restarts_total{slice="a"}': "0+1x20"},
        {'penstock_worker_restarts_total{slice="a"}': "0 1x20"}, SLICE, "15m",
    ),
    "PenstockLoadsFail": (
        {'penstock_model_load_failures_total{model="m"}': "0+1x40"},
        {'penstock_model_load_failures_total{model="m"}': "0 1x40"}, MODEL, "30m",
    ),
    "PenstockProfileStale": (
        {PROFILE: "1x100"}, {PROFILE: "1x30 0x70"}, OF_PROFILE, "90m"
    ),
    "PenstockCacheUseless": (
        {'penstock_cache_worth_seconds{model="m"}': "-0.001x100"},
        {'penstock_cache_worth_seconds{model="m"}': "0.001x100"}, MODEL, "90m",
    ),
    "PenstockDataShift": (
        {SHIFT: "0.3x90"}, {SHIFT: "0.3x20 0.1x70"}, {**MODEL, "kind": "rows"}, "80m"
    ),
    "PenstockStandsStill": (
        {STALLS: "0x5 1x20"}, {STALLS: "1x30"}, {}, "15m"
    ),
    "PenstockLoopLags": (
        {f'{LAG}{{instance="i",le="0.02"}}': "0+100x40", f'{LAG}{{instance="i",le="0.1"}}': "0+600x40",
         f'{LAG}{{instance="i",le="+Inf"}}': "0+600x40"},
        {f'{LAG}{{instance="i",le="0.02"}}': "0+600x40", f'{LAG}{{instance="i",le="0.1"}}': "0+600x40",
         f'{LAG}{{instance="i",le="+Inf"}}': "0+600x40"}, {"instance": "i"}, "30m",
    ),
    "PenstockEdgeRestarts": (
        {'penstock_edge_restarts_total{edge="grpc"}': "0+1x20"},
        {'penstock_edge_restarts_total{edge="grpc"}': "0 1x20"}, {"edge": "grpc"}, "15m",
    ),
    "PenstockNodeLost": (
        {'penstock_node_needed{node="n"}': "1x9", 'penstock_node_up{node="n"}': "0x9"},
        {'penstock_node_needed{node="n"}': "0x9", 'penstock_node_up{node="n"}': "0x9"}, {"node": "n"}, "5m",
    ),
    "PenstockSettingsRefused": (
        {SETTINGS: "0x5"}, {SETTINGS: "1x5"}, {}, "3m"
    ),
    "PenstockKeysRefused": (
        {KEYS: "0x5"}, {KEYS: "1x5"}, {}, "3m"
    ),
    "PenstockCertificateRefused": (
        {CERTIFICATE: "0x5"}, {CERTIFICATE: "1x5"}, {}, "3m"
    ),
    "PenstockCertificateExpires": (
        {"penstock_tls_certificate_expiry_timestamp_seconds": "500000x5"},
        {"penstock_tls_certificate_expiry_timestamp_seconds": "700000x5"}, {}, "3m",
    ),
}  # fmt: skip


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == set(map(name, ALERTS))


@pytest.mark.parametrize("rule", ALERTS, ids=name)
def test_an_alert_fires_when_it_should_and_not_otherwise(rule: dict[str, Any], tmp_path: Path) -> None:
    firing, quiet, labels, at = CASES[name(rule)]
    found = {"exp_labels": labels | rule["labels"], "exp_annotations": filled(rule["annotations"], labels)}
    cases = [case(rule, firing, at, [found]), case(rule, quiet, at, [])]
    content = {"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "rules.test.yaml").write_text(json.dumps(content))
    command = [str(PROMTOOL), "test", "rules", str(tmp_path / "rules.test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def case(rule: dict[str, Any], series: Series, at: str, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": name(rule), "exp_alerts": expected}],
    }


def filled(texts: dict[str, str], labels: dict[str, str]) -> dict[str, str]:
    """The annotations, as Prometheus writes them for these labels."""
    return {
        key: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
        for key, text in texts.items()
    }
