"""`tenants:`: what a list becomes, and the one sentence for each way to get it wrong."""

import re
from pathlib import Path

import pytest

from router.settings import load_settings
from router.settings.values.schema import TENANT_COUNT_MAX
from serving.values.objectives import RateSpec
from serving.values.specs import DEFAULT_TENANT, TenantSpec
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"
TENANTS = "tenants:\n  - {name: shop, weight: 3}\n  - {name: jobs, priority: -1}\n"


def tenants(home: Path, text: str) -> tuple[TenantSpec, ...]:
    return load_settings(write_gateway(home, MODELS + text)).tenants


def test_a_list_becomes_these_tenants_in_its_order(home: Path) -> None:
    assert tenants(home, TENANTS) == (TenantSpec("shop", 3.0, 0), TenantSpec("jobs", 1.0, -1))


@pytest.mark.parametrize("text", ["", "tenants:\n", "tenants: []\n"])
def test_without_a_list_there_are_none(home: Path, text: str) -> None:
    assert tenants(home, text) == ()


def test_the_default_tenant_may_be_given_its_own_weight(home: Path) -> None:
    assert tenants(home, "tenants: [{name: default, weight: 0.5}]") == (TenantSpec(DEFAULT_TENANT, 0.5),)


NAME, WEIGHT, PRIORITY = "3:12: tenants[0].name", "3:26: tenants[0].weight", "4:28: tenants[1].priority"
SHOP = "{name: shop, weight: 3}"
FROM = "'.', '_' and '-', first a letter or digit"


@pytest.mark.parametrize(
    ("old", "new", "where", "sentence"),
    [
        ("weight: 3", "weight: 0", WEIGHT, "too small; got 0, expected 0.001 or more"),
        ("weight: 3", "weight: -1", WEIGHT, "too small; got -1, expected 0.001 or more"),
        ("weight: 3", "weight: .inf", WEIGHT, "not a finite number; got inf, expected a finite number"),
        ("weight: 3", "weight: much", WEIGHT, "not a number; got 'much', expected a number"),
        ("weight: 3", "wight: 3", "3:18: tenants[0].wight", "unknown key; got 'wight', "
         "expected name, weight, priority, tier or rate (did you mean weight?)"),
        ("priority: -1", "priority: 1.5", PRIORITY, "not a whole number; got 1.5, expected a whole number"),
        ("priority: -1", "priority: 1001", PRIORITY, "too large; got 1001, expected 1000 or less"),
        ("name: jobs", "name: shop", "4:12: tenants[1].name",
         "'shop' is listed twice; list each tenant once"),
        ("name: shop", "name: a/b", NAME, f"not a name; got 'a/b', expected letters, digits, {FROM}"),
        ("name: shop", "name: 5", NAME, "not text; got 5, "
         "expected text; quote what YAML would take for another type"),
        ("name: shop", f"name: {'x' * 65}", NAME, f"too long; got '{'x' * 56}..., "
         "expected at most 64 characters"),
        (SHOP, "{weight: 3}", "3:5: tenants[0].name", "this key is required"),
        (SHOP, "shop", "3:5: tenants[0]", "not a mapping; got 'shop', expected keys and values (key: value)"),
        ("tenants:", "tenant:", "2:1: tenant", "unknown key; got 'tenant', "
         "expected server, admin, limits, slices, models, devices, prices, scaling, placement, mig, tenants, "
         "tiers, profiles, recording, repository, cache, logging, workers, tracing, auth, nodes or cells "
         "(did you mean tenants?)"),
        (TENANTS, "tenants: {shop: 3}", "2:10: tenants", "not a list; got a mapping, "
         "expected a list: [a, b], or lines that begin with '- '"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(
    home: Path, old: str, new: str, where: str, sentence: str
) -> None:
    assert old in TENANTS
    (fault,) = gateway_faults(home, MODELS + TENANTS.replace(old, new, 1))
    assert fault == f"penstock.yaml:{where}: {sentence}"


def test_a_rate_bounds_what_it_names(home: Path) -> None:
    text = "tenants: [{name: shop, rate: {requests_per_s: 2.5, rows_per_s: 40, burst_s: 3, concurrent: 8}}]"
    assert tenants(home, text)[0].rate == RateSpec(2.5, 40, 3, 8)
    assert tenants(home, "tenants: [{name: shop, rate: {concurrent: 8}}]")[0].rate == RateSpec(concurrent=8)


NO_LIMIT = "there is no limit in it; expected requests_per_s, rows_per_s or concurrent"


@pytest.mark.parametrize(
    ("rate", "where", "sentence"),
    [
        ("{}", "rate", NO_LIMIT),
        ("{burst_s: 2}", "rate", NO_LIMIT),
        ("{burst_s: 2, concurrent: 1}", "rate.burst_s",
         "a burst needs a rate; expected requests_per_s or rows_per_s beside it"),
        ("{requests_per_s: 0}", "rate.requests_per_s", "too small; got 0, expected 0.001 or more"),
        ("{concurrent: 1.5}", "rate.concurrent", "not a whole number; got 1.5, expected a whole number"),
        ("{request_per_s: 1}", "rate.request_per_s", "unknown key; got 'request_per_s', expected "
         "requests_per_s, rows_per_s, burst_s or concurrent (did you mean requests_per_s?)"),
    ],
)  # fmt: skip
def test_a_faulty_rate_is_named_with_its_place(home: Path, rate: str, where: str, sentence: str) -> None:
    (fault,) = gateway_faults(home, f"{MODELS}tenants: [{{name: shop, rate: {rate}}}]")
    assert re.fullmatch(rf"penstock\.yaml:2:\d+: tenants\[0\]\.{re.escape(where)}: (.*)", fault)
    assert fault.endswith(sentence)


def test_there_are_at_most_as_many_as_metrics_can_bear(home: Path) -> None:
    names = [f"t{number}" for number in range(TENANT_COUNT_MAX + 1)]
    listed = [f"{{name: {name}}}" for name in names]
    assert len(tenants(home, f"tenants: [{', '.join(listed[:-1])}]")) == TENANT_COUNT_MAX == 64
    (fault,) = gateway_faults(home, f"{MODELS}tenants: [{', '.join(listed)}]")
    assert fault == "penstock.yaml:2:10: tenants: too many; got a list of 65, expected at most 64 entries"
