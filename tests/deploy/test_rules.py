"""deploy/prometheus: each rule parses, asks for what a gateway exports, and names a cure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser
import pytest
import yaml

from tests.deploy.files import COMPOSE, ROOT, SERVICES
from tests.router.observing.test_telemetry_documented import exported

FILE = ROOT / "deploy" / "prometheus" / "penstock.rules.yaml"
GROUPS: list[Mapping[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))["groups"]
RULES: list[Mapping[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
SERIES = re.compile(r"(penstock[\w:]+)(?:\{([^}]*)\})?")


def name(rule: Mapping[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def base(series: str) -> str:
    """The metric that a series is of: a histogram has several."""
    return re.sub(r"_(bucket|sum|count)$", "", series)


def asked(query: str) -> Iterator[tuple[str, str]]:
    """The series of a query, each with its matchers."""
    yield from SERIES.findall(query)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_rule_asks_for_what_there_is(rule: Mapping[str, Any]) -> None:
    promql_parser.parse(rule["expr"])
    known = exported()
    for series, matchers in asked(rule["expr"]):
        if series not in RECORDED:
            _, labels = known[base(series)]
            assert set(re.findall(r"(\w+) ?[=!]", matchers)) <= labels, series


@pytest.mark.parametrize("rule", ALERTS, ids=name)
def test_an_alert_says_what_is_wrong_and_what_helps(rule: Mapping[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"].keys() == {"summary", "cure"}
    told = " ".join(rule["annotations"].values())
    labels = set(re.findall(r"\$labels\.(\w+)", told))
    known = exported()
    kept = [known[base(series)][1] for series, _ in asked(rule["expr"]) if series not in RECORDED]
    assert labels <= frozenset({"instance"}).union({"model"} if ":" in rule["expr"] else (), *kept), labels
    for page in re.findall(r"docs/[\w-]+\.md", told):
        assert (ROOT / page).is_file()


def test_names_are_used_once_and_docs_list_every_alert() -> None:
    names = [name(rule) for rule in RULES]
    assert len(names) == len(set(names))
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert [each for each in map(name, ALERTS) if f"`{each}`" not in page] == []


def test_compose_starts_prometheus_with_the_rules() -> None:
    config = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])
    (mounted,) = [each for each in SERVICES["prometheus"]["configs"] if each["source"] == "rules"]
    assert config["rule_files"] == [mounted["target"]]
    assert (ROOT / COMPOSE["configs"]["rules"]["file"]).samefile(FILE)
