"""`batching:`: each policy takes its own keys, and a key of another says whose it is."""

from pathlib import Path

import pytest

from router.settings.schema import POLICY_KEYS, BatchingSection
from serving.policy.batching.catalogue import POLICIES, create_policy
from serving.specs import BatchingSpec
from tests.router.settings.samples import gateway_fault, gateway_faults, gateway_settings

BATCHING = "{policy: static, size: 32, delay_ms: 2}"
VALUES = {"size": "4", "delay_ms": "1.5", "mode": "consolidate", "admission": "false"}


def batching(home: Path, text: str) -> BatchingSpec:
    return gateway_settings(home, BATCHING, text).models[0].batching


def test_every_policy_says_which_keys_are_its_own() -> None:
    assert POLICY_KEYS.keys() == POLICIES.keys()
    assert {key for keys in POLICY_KEYS.values() for key in keys} | {
        "policy"
    } == BatchingSection.model_fields.keys()


@pytest.mark.parametrize("text", ["{}", "{policy: slo}", "{policy: slo, mode: latency}", "{mode: latency}"])
def test_the_default_is_the_slo_policy_in_latency_mode(home: Path, text: str) -> None:
    assert batching(home, text) == BatchingSpec() == BatchingSpec(policy="slo", mode="latency")


@pytest.mark.parametrize("policy", POLICY_KEYS)
def test_a_policy_takes_all_its_own_keys_and_can_be_made_from_them(home: Path, policy: str) -> None:
    keys = POLICY_KEYS[policy]
    spec = batching(home, f"{{policy: {policy}, {', '.join(f'{key}: {VALUES[key]}' for key in keys)}}}")
    assert spec == BatchingSpec(
        policy=policy,
        mode="consolidate" if "mode" in keys else "latency",
        admission="admission" not in keys,
        size=4 if "size" in keys else None,
        delay_us=1500 if "delay_ms" in keys else 0,
    )
    assert create_policy(spec, 40_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{size: 32}",
            "12:16: models[0].batching.size: no key of policy slo, which is the default; got 32, "
            "expected policy: static or aimd beside it",
        ),
        (
            "{policy: slo, delay_ms: 2}",
            "12:29: models[0].batching.delay_ms: no key of policy slo; got 2, "
            "expected policy: static or aimd beside it",
        ),
        (
            "{policy: slo, size: 65}",
            "12:29: models[0].batching.size: no key of policy slo; got 65, "
            "expected policy: static or aimd beside it",
        ),
        (
            "{policy: static, mode: consolidate}",
            "12:32: models[0].batching.mode: no key of policy static; got 'consolidate', "
            "expected policy: slo beside it",
        ),
        (
            "{mode: consolidat}",
            "12:22: models[0].batching.mode: unknown batching mode; got 'consolidat', "
            "expected latency or consolidate (did you mean consolidate?)",
        ),
        (
            "{policy: adaptive}",
            "12:24: models[0].batching.policy: unknown batching policy; got 'adaptive', "
            "expected static, slo or aimd",
        ),
        (
            "{policy: static, sise: 3}",
            "12:32: models[0].batching.sise: unknown key; got 'sise', "
            "expected policy, mode, admission, size or delay_ms (did you mean size?)",
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
