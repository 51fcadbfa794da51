"""A real gateway takes what is hostile: bytes and frames that were fuzzed, and attacks on its edges."""

from collections.abc import Iterator
from itertools import islice

import pytest

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.hostile.abuse import edges
from loadtests.hostile.abuse.bombs import Attack
from loadtests.hostile.abuse.others import watch
from loadtests.hostile.fuzz.playing import fault_of, inputs_of
from loadtests.hostile.fuzz.targets import SERVER
from tests.loadtests.patience import PATIENT_MS

pytestmark = [pytest.mark.live, pytest.mark.slow]

INPUTS = {"rest": 300, "h2": 60}
ATTACKS = {
    attack.name: attack for attack in edges.attacks() if attack.name.startswith(("gRPC: a ", "gRPC: 400"))
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with started([model_entry("simple", slo_ms=PATIENT_MS), model_entry("identity")]) as running:
        yield running


@pytest.mark.parametrize("name", SERVER)
def test_fuzzed_input_leaves_a_gateway_that_answers_right(gateway: Gateway, name: str) -> None:
    with SERVER[name][1](gateway) as target:
        for data in islice(inputs_of(target, 1), INPUTS[name]):
            fault, _, _ = fault_of(target, data)
            assert not fault or "took more than" in fault, f"{fault}: {data[:300]!r}"


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=list(ATTACKS))
def test_an_attack_on_an_edge_breaks_no_promise(gateway: Gateway, attack: Attack) -> None:
    found = watch(gateway, attack.play)
    assert not found.broken, found.said
    assert found.bad_answers == 0
    assert found.rpc.good > 0
    assert not found.rpc.unexplained
