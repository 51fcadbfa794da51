"""The rules that the leader is compared with (`loadtests.virtual.cells --rule`)."""

import random

from loadtests.virtual.baselines.cell_homes import PLAN_US, Anew, Hashed
from serving.policy.cells.homes import Homes, moves
from serving.policy.cells.leading import LOOK_US, CellReport

MODELS = frozenset(f"m{at}" for at in range(60))


def reports(*names: str, work: float = 0.3) -> list[CellReport]:
    """Cells of ten slices that share the models; each model has so much work."""
    share = work / len(names)
    return [CellReport(name, 10.0, MODELS, dict.fromkeys(MODELS, share), MODELS) for name in names]


def decided(rule: Hashed | Anew, told: list[CellReport], before: Homes, now_us: int) -> Homes:
    """The homes, as none are there yet or the look is due."""
    homes = rule.decide(told, before, now_us)
    assert homes is not None
    return homes


def test_all_gateways_find_the_same_homes_by_hash_in_any_order() -> None:
    told = reports("a", "b", "c", "d")
    first = decided(Hashed(), told, {}, 0)
    random.Random(1).shuffle(told)
    assert decided(Hashed(), told, {}, 0) == first
    assert set(first) == MODELS


def test_by_hash_only_the_models_of_a_lost_cell_move() -> None:
    rule = Hashed()
    before = decided(rule, reports("a", "b", "c", "d"), {}, 0)
    after = decided(rule, reports("a", "b", "c"), before, LOOK_US)
    moved = {model for model, _ in moves(before, after)}
    assert moved == {model for model, parts in before.items() if "d" in parts}


def test_anew_plans_each_minute_and_when_a_cell_goes() -> None:
    rule = Anew()
    before = decided(rule, reports("a", "b"), {}, 0)
    assert rule.decide(reports("a", "b"), before, PLAN_US - 1) is None
    assert decided(rule, reports("a"), before, PLAN_US)
    assert rule.decide(reports("a"), before, PLAN_US + LOOK_US) is None
    assert decided(rule, reports("a"), before, 2 * PLAN_US)
