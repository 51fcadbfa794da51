"""What an edit changes of what is promised is said once, in words, and only what changes."""

from dataclasses import replace
from pathlib import Path

import pytest

from router.management.operations.differences import differences
from router.settings import Settings, load_settings
from router.settings.machine.slices import default_slices
from serving.control.commands import ServeModel
from serving.values.objectives import Needs, ScalingSpec
from tests.control.test_control import only
from tests.control.test_moves import A, kinds, model, wanted
from tests.control.test_moves import World as Moves
from tests.router.management.operations.worlds import World
from tests.router.settings.samples import write_accuracy, write_deployment, write_gateway

TEXT = """\
tiers:
  - {name: best, tolerance: 0}
  - {name: low, slo_ms: 80, optimize: cheapest}
models:
  - {path: models/digits, accuracy_min: 0.96, tiers: {low: {accuracy_min: 0.9}}}
  - {path: models/minilm}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_deployment(tmp_path)
    write_accuracy(tmp_path / "models" / "digits", {"linear": 0.964, "cnn": 0.9912})
    return tmp_path


def read(home: Path, old: str = "", new: str = "") -> Settings:
    assert old in TEXT
    return load_settings(write_gateway(home, TEXT.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", []),
        ("accuracy_min: 0.96", "accuracy_min: 0.97", ["digits: accuracy_min 0.96 -> 0.97"]),
        ("accuracy_min: 0.96", "tolerance: 0.25",
         ["digits: accuracy_min 0.96 -> none, tolerance none -> 0.25"]),
        ("accuracy_min: 0.96", "accuracy_min: 0.96, percentile: 99.9, optimize: balanced",
         ["digits: percentile none -> 99.9, optimize none -> balanced"]),
        ("accuracy_min: 0.96, ", "", ["digits: accuracy_min 0.96 -> none"]),
        ("tolerance: 0}", "tolerance: 0.01}", ["tier best's tolerance 0 -> 0.01"]),
        ("slo_ms: 80", "slo_ms: 80, slo_rows: 8", ["tier low's slo_rows none -> 8"]),
        ("slo_ms: 80", "slo_ms: 80.5, percentile: 90",
         ["tier low's slo_ms 80 -> 80.5", "tier low's percentile none -> 90"]),
        ("{accuracy_min: 0.9}", "{accuracy_min: 0.95}", ["digits: tier low's accuracy_min 0.9 -> 0.95"]),
        ("{accuracy_min: 0.9}", "{accuracy_min: 0.9, slo_ms: 70}", ["digits: tier low's slo_ms 80 -> 70"]),
        ("  - {name: best, tolerance: 0}\n", "", ["tier best is removed"]),
        ("  - {name: best", "  - {name: new}\n  - {name: best", ["tier new is added"]),
        ("0.9}}", "0.9}}, selection: {policy: exp4, members: [linear, cnn]}", ["digits: selection"]),
    ],
)  # fmt: skip
def test_what_is_promised_otherwise_is_said(home: Path, old: str, new: str, said: list[str]) -> None:
    before = read(home)
    assert [*differences(before, read(home, old, new))] == said


def test_another_price_is_said_with_the_slice(home: Path) -> None:
    before, after = (read(home, "models:\n", f"slices: [{{name: a{price}}}, {{name: b}}]\nmodels:\n")
                     for price in ("", ", price: 0.7"))  # fmt: skip
    assert [*differences(before, after)] == ["a's price 0 -> 0.7"]
    names = ", ".join(default_slices())
    assert [*differences(after, read(home))] == [
        f"slices are {names}", f"digits: slices {names}", f"minilm: slices {names}"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "auto", "replicas one on each slice -> 1 to one on each slice"),
        ("auto", "{min: 0, max: 2}", "replicas 1 to one on each slice -> 0 to 2"),
        ("{min: 1, max: 2}", "2", "replicas 1 to 2 -> 2"),
        ("2", "", "replicas 2 -> one on each slice"),
        ("auto", "{priority: 2}", "replicas 1 to one on each slice -> 1 to one on each slice, priority 2"),
    ],
)
def test_another_number_of_replicas_is_said(home: Path, old: str, new: str, said: str) -> None:
    before, after = (
        read(home, "minilm}\n", f"minilm, replicas: {each}}}\nslices: [{{name: a, count: 2}}]\n")
        for each in (old, new)
    )
    assert [*differences(before, after)] == [f"minilm: {said}"]


def test_slices_that_become_spot_are_said(home: Path) -> None:
    before, after = (read(home, "models:\n", f"slices: [{{name: a{spot}}}]\nmodels:\n")
                     for spot in ("", ", spot: true"))  # fmt: skip
    assert [*differences(before, after)] == ["a is spot now"]
    assert [*differences(after, before)] == ["a is on demand now"]


def test_another_answering_variant_is_said_where_one_alone_answers(home: Path) -> None:
    alone = read(home, "accuracy_min: 0.96", "default_variant: linear")
    assert [*differences(alone, read(home, "accuracy_min: 0.96, ", ""))] == ["digits: linear -> cnn answers"]
    assert [*differences(alone, read(home))] == ["digits: accuracy_min none -> 0.96"]


async def test_an_edit_of_scaling_is_in_force_and_said(tmp_path: Path) -> None:
    world = World(tmp_path)
    model = "slices: [a], slo_ms: 40"
    await world.edit(model, f"{model}, replicas: 1")
    await world.edit("repository:", "scaling: {policy: hpa, target: 0.6}\nrepository:")
    assert not world.watch.refused
    assert world.current.settings.scaling == ScalingSpec("hpa", 0.6)
    assert world.said[-2].endswith("was edited: scaling policy slo -> hpa; scaling target none -> 0.6")
    await world.edit("policy: hpa, target: 0.6", "cost_max_per_hour: 2")
    assert "no slice has a price, so there is nothing to limit" in world.watch.refused[0]
    await world.edit("{name: a}", "{name: a, price: 1}")
    assert world.current.settings.scaling == ScalingSpec(cost_max=2.0)
    assert "scaling cost_max_per_hour none -> 2" in world.said[-2]


async def test_an_edit_of_needs_is_in_force_and_the_files_are_the_same_revision(tmp_path: Path) -> None:
    world = World(tmp_path)
    write_accuracy(tmp_path / "models" / "digits", {"linear": 0.964, "cnn": 0.9912})
    await world.edit("slo_ms: 40", "slo_ms: 40, cache: false")
    before = world.served["digits"]
    await world.edit("slo_ms: 40", "slo_ms: 40, accuracy_min: 0.96")
    after = world.served["digits"]
    assert (before.own.variants, after.own.variants) == (("cnn",), ("cnn", "linear"))
    assert after.revision == before.revision != ""
    assert world.said[-2].endswith("was edited: digits: accuracy_min none -> 0.96")


async def test_an_edit_whose_floor_is_out_of_reach_is_refused_with_the_figures(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.edit("slo_ms: 40", "slo_ms: 40, accuracy_min: 0.999")
    assert "digits reaches at most 0.964 (linear); 0.999 cannot be met" in world.watch.refused[0]
    assert world.served["digits"].own.accuracy_min == 0.0


async def test_what_a_client_loaded_has_the_tiers_of_the_file_and_follows_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add_folder("spare")
    await world.edit("models:\n", "tiers: [{name: slow, slo_ms: 700}]\nmodels:\n")
    await world.repository.load("spare")
    assert world.served["spare"].by_tier["slow"].slo_us == 700_000
    await world.edit("slo_ms: 700", "slo_ms: 800")
    assert world.served["spare"].by_tier["slow"].slo_us == 800_000
    assert world.said[-2].endswith("tier slow's slo_ms 700 -> 800")


async def test_who_adds_a_tier_of_a_tenant_needs_a_restart_but_not_for_the_tier(tmp_path: Path) -> None:
    world = World(tmp_path)
    tenants = "tenants: [{name: x, tier: slow}]\n"
    await world.edit("models:\n", f"tiers: [{{name: slow, slo_ms: 700}}]\n{tenants}models:\n")
    (reason,) = world.watch.refused
    assert ": tenants: cannot be changed while the gateway runs" in reason


def test_other_needs_and_tiers_are_served_at_once_and_nothing_is_loaded() -> None:
    moves = Moves([A], model("m", "a"))
    promised = replace(model("m", "a"), needs=Needs(tolerance=0.1), tiers=(Needs("t", optimize="cheapest"),))
    done = moves.want(wanted([A], promised))
    assert kinds(done) == ["ServeModel", "Route"]
    assert only(done, ServeModel)[0].model.by_tier["t"].optimize == "cheapest"
