"""`batching:`: each policy takes its own keys, and a key of another says whose it is."""

from pathlib import Path

import pytest

from router.settings.values.problems import one_of, unknown_name
from router.settings.values.schema import BatchingSection
from serving.policy.batching.catalogue import POLICIES, create_policy
from serving.values.specs import BatchingSpec
from tests.router.settings.samples import gateway_fault, gateway_faults, gateway_settings

BATCHING = "{policy: static, size: 32, delay_ms: 2}"
VALUES = {"size": "4", "delay_ms": "1.5", "admission": "false", "weight": "2.5"}


def takers(key: str) -> str:
    return one_of([name for name, entry in POLICIES.items() if key in entry.keys])


def batching(home: Path, text: str) -> BatchingSpec:
    return gateway_settings(home, BATCHING, text).models[0].batching


def test_every_key_but_the_policy_is_some_policy_s_own() -> None:
    keys = {key for entry in POLICIES.values() for key in entry.keys}
    assert keys | {"policy"} == BatchingSection.model_fields.keys()


@pytest.mark.parametrize("text", ["{}", "{policy: slo}"])
def test_the_default_is_the_slo_policy_in_its_default_mode(home: Path, text: str) -> None:
    assert batching(home, text) == BatchingSpec() == BatchingSpec(policy="slo", mode="")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_takes_all_its_own_keys_and_modes_and_can_be_made_from_them(home: Path, policy: str) -> None:
    entry = POLICIES[policy]
    for mode in entry.modes or ("",):
        values = VALUES | {"policy": policy, "mode": mode}
        text = ", ".join(f"{key}: {values[key]}" for key in ("policy", *entry.keys))
        spec = batching(home, f"{{{text}}}")
        assert spec == BatchingSpec(
            policy=policy,
            mode=mode,
            admission="admission" not in entry.keys,
            size=4 if "size" in entry.keys else None,
            delay_us=1500 if "delay_ms" in entry.keys else 0,
            weight=2.5 if "weight" in entry.keys else 1.0,
        )
        assert create_policy(spec, 40_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{size: 32}",
            "12:16: models[0].batching.size: no key of policy slo, which is the default; got 32, "
            f"expected policy: {takers('size')} beside it",
        ),
        (
            "{policy: slo, delay_ms: 2}",
            "12:29: models[0].batching.delay_ms: no key of policy slo; got 2, "
            f"expected policy: {takers('delay_ms')} beside it",
        ),
        (
            "{policy: slo, size: 65}",
            "12:29: models[0].batching.size: no key of policy slo; got 65, "
            f"expected policy: {takers('size')} beside it",
        ),
        (
            "{policy: static, mode: consolidate}",
            "12:32: models[0].batching.mode: no key of policy static; got 'consolidate', "
            f"expected policy: {takers('mode')} beside it",
        ),
        (
            "{mode: consolidat}",
            "12:22: models[0].batching.mode: no mode of policy slo; got 'consolidat', "
            "expected latency or consolidate (did you mean consolidate?)",
        ),
        (
            "{policy: slo, mode: frontrun}",
            "12:35: models[0].batching.mode: no mode of policy slo; got 'frontrun', "
            "expected latency or consolidate",
        ),
        (
            "{policy: aimt}",
            f"12:24: models[0].batching.policy: {unknown_name('unknown batching policy', 'aimt', POLICIES)}",
        ),
        (
            "{policy: dybatch, weight: 0}",
            "12:41: models[0].batching.weight: too small; got 0, expected 0.001 or more",
        ),
        (
            "{policy: static, sise: 3}",
            "12:32: models[0].batching.sise: unknown key; got 'sise', "
            "expected policy, mode, admission, size, delay_ms or weight (did you mean size?)",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_remedy(home: Path, text: str, expected: str) -> None:
    assert gateway_fault(home, BATCHING, text) == f"penstock.yaml:{expected}"


def test_every_key_of_another_policy_is_named(home: Path) -> None:
    text = "models: [{path: models/digits, batching: {size: 3, delay_ms: 1}}]"
    assert [fault.split(": ")[1] for fault in gateway_faults(home, text)] == [
        "models[0].batching.size",
        "models[0].batching.delay_ms",
    ]
