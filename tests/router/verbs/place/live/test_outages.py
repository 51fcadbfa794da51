"""A placement does without lost slices and failing loads, and says so in the options of the command."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli import app as cli
from router.management.operations.proposal import proposal
from router.settings import Settings, load_settings
from router.verbs.place.live.advising import Advice, AdviceTask, advise, without_document
from router.verbs.place.live.applying import Running, body
from router.verbs.place.live.outages import Outages, left, read_outages
from router.verbs.place.question.asked import PlacementTask, ask
from router.verbs.place.question.rates import RunningGateway
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.task import AskedRate
from serving.policy.placement.terms.geometry import place
from serving.policy.placement.terms.problem import Instances, Parts
from serving.simulation.traffic.traffic import Mix
from serving.values.slice_specs import Share
from tests.router.settings.rehearsed import write_profiles
from tests.router.verbs.place.deployments import GATEWAY, HOST, MODELS, deployment, four_cores
from tests.router.verbs.place.live.test_applying import plan

ONE, TWO, FOUR = (Share("cores", cores) for cores in (1.0, 2.0, 4.0))
ALIKE = "slices: [{name: cpu-a, cores: 1}, {name: cpu-b, cores: 1}]\n"


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    four_cores(monkeypatch)


def world(home: Path, gateway: str = HOST + GATEWAY) -> tuple[PlacementTask, Running]:
    asked = ask(deployment(home, gateway), ["digits=100,minilm=5"], 0.2, RunningGateway(), None)
    return asked, Running.of(asked.settings)


def shares(asked: PlacementTask, model: str) -> list[Share]:
    return [each.share for each in asked.problem.demand_of[model].options]


def test_a_lost_slice_takes_its_cores_and_its_replicas_along(tmp_path: Path) -> None:
    asked, running = left(*world(tmp_path), Outages(lost=("cpu-b",)))
    division = asked.problem.pool_of["host"].division
    assert isinstance(division, Parts)
    assert division.total == 2.0
    assert [slot.share for slot in asked.current["host"]] == [ONE]
    assert running.models == {"digits": ("cpu-a",), "minilm": ("cpu-a",)}
    assert "planned without cpu-b" in asked.notes


def test_cores_that_another_slice_has_too_are_not_lost(tmp_path: Path) -> None:
    shared = "slices: [{name: cpu-a, cores: 3}, {name: cpu-b, cores: 2, threads: 2}]\n"
    asked, _ = left(*world(tmp_path, HOST + shared + MODELS), Outages(lost=("cpu-b",)))
    division = asked.problem.pool_of["host"].division
    assert isinstance(division, Parts)
    assert division.total == 3.0


def test_a_model_gets_no_slice_of_the_share_on_which_it_does_not_load(tmp_path: Path) -> None:
    asked, running = left(*world(tmp_path), Outages(failing=(("minilm", "cpu-a"),)))
    assert {*shares(asked, "minilm")} == {TWO, FOUR}
    assert {*shares(asked, "digits")} == {ONE, TWO, FOUR}
    assert running.models["minilm"] == ("cpu-b",)
    assert "planned without minilm on cpu-a, where it does not load" in asked.notes


def test_a_model_keeps_a_share_on_which_another_slice_has_it(tmp_path: Path) -> None:
    asked, running = left(*world(tmp_path, HOST + ALIKE + MODELS), Outages(failing=(("minilm", "cpu-a"),)))
    assert ONE in shares(asked, "minilm")
    assert running.models["minilm"] == ("cpu-b",)


def test_a_share_stands_for_slices_that_are_there_no_more(tmp_path: Path) -> None:
    asked, running = left(*world(tmp_path), Outages(failing=(("minilm", "cores:4"),)))
    assert {*shares(asked, "minilm")} == {ONE, TWO}
    assert running.models["minilm"] == ("cpu-a", "cpu-b")


def test_a_planned_slice_takes_neither_a_lost_name_nor_one_on_which_its_model_fails(tmp_path: Path) -> None:
    lost = "slices: [{name: cpu-1, cores: 1}, {name: cpu-a, cores: 1}, {name: cpu-b, cores: 1}]\n"
    asked, running = world(tmp_path, HOST + lost + MODELS)
    outages = Outages(("cpu-1",), (("minilm", "cpu-a"), ("digits", "cpu-b")))
    asked, running = left(asked, running, outages)
    told, _ = body(asked, plan(asked, [(1, ["minilm"]), (1, ["digits"]), (1, ["minilm"])], False), running)
    on = {name: {*model["slices"]} for name, model in told["models"].items()}
    assert "cpu-1" not in {each["name"] for each in told["slices"]}
    assert "cpu-a" not in on["minilm"]
    assert on["digits"].isdisjoint({"cpu-b", "cpu-1"})


@pytest.mark.parametrize(
    ("outages", "said"),
    [
        (Outages(lost=("cpu-c",)), "--without: unknown slice; got 'cpu-c'"),
        (Outages(failing=(("digit", "cpu-a"),)), "--not: unknown model; got 'digit'"),
        (Outages(failing=(("digits", "cpu-c"),)), "--not: unknown slice; got 'cpu-c'"),
    ],
)
def test_a_name_that_is_not_known_is_refused(tmp_path: Path, outages: Outages, said: str) -> None:
    with pytest.raises(SimulateRequestError, match=said):
        left(*world(tmp_path), outages)


def test_with_all_cores_lost_there_is_nothing_to_plan(tmp_path: Path) -> None:
    small = HOST.replace("cores: 4", "cores: 3")
    with pytest.raises(SimulateRequestError, match="all cores of host are lost with cpu-a, cpu-b"):
        left(*world(tmp_path, small + GATEWAY), Outages(lost=("cpu-a", "cpu-b")))


def test_options_that_name_no_slice_are_refused() -> None:
    with pytest.raises(SimulateRequestError, match="got 'digits', expected MODEL@SLICE"):
        read_outages([], ["digits"])


def test_the_options_say_what_they_are_read_from() -> None:
    found = Outages(("a", "b"), (("digits", "c"), ("minilm", "cores:2")))
    assert [*found.options] == ["--without", "a,b", "--not", "digits@c,minilm@cores:2"]
    assert read_outages(["a,b"], ["digits@c, minilm@cores:2"]) == found
    assert read_outages(["a", "b", "a"], ["digits@c", "minilm@cores:2"]) == found


def task(settings: Settings, **changes: object) -> AdviceTask:
    rates = {"digits": AskedRate(100.123456, Mix((2, 3), (0.512345, 0.487655))), "minilm": AskedRate(5.0)}
    found = AdviceTask(
        without_document(settings), "cpu-b is lost", Outages(("cpu-b",)), rates, "unix:/run/a door.sock"
    )
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_command_of_an_advice_finds_the_same_placement(tmp_path: Path) -> None:
    apart = GATEWAY.replace("[cpu-a, cpu-b]", "[cpu-b]")
    settings = load_settings(deployment(tmp_path, HOST + apart))
    (found,) = advise(task(settings))
    assert isinstance(found, Advice), found
    assert found.refused == ()
    told = json.loads(found.body)
    asked = proposal(found.body, settings, range(4), lost={1, 2})
    assert {core for each in asked.settings.slices for core in each.cores}.isdisjoint({1, 2})
    first, *words = shlex.split(found.command)
    assert (first, words[-3:]) == ("penstock", ["--apply", "--url", "unix:/run/a door.sock"])
    assert words[2:8] == [
        "--rates", "digits=100.1,minilm=5", "--rows", "digits=2:0.51+3:0.49", "--without", "cpu-b",
    ]  # fmt: skip
    ended = CliRunner().invoke(cli, [*words[:-3], "--json"])
    assert ended.exit_code == 0, ended.output
    planned = json.loads(ended.stdout)["placement"]["host"]
    cores = sorted((float(each["share"].partition(":")[2]), len(each["residents"])) for each in planned)
    assert cores == sorted((float(each["cores"]), len(found.slices[each["name"]])) for each in told["slices"])


def test_there_is_no_advice_where_nothing_was_asked(tmp_path: Path) -> None:
    settings = load_settings(deployment(tmp_path, HOST + GATEWAY))
    (found,) = advise(task(settings, rates={}))
    assert found == "no model was asked for anything, so there is no load to plan for"


def test_what_cannot_be_asked_is_a_sentence(tmp_path: Path) -> None:
    settings = load_settings(deployment(tmp_path, HOST + GATEWAY))
    (found,) = advise(task(settings, outages=Outages(("cpu-c",))))
    assert isinstance(found, str)
    assert found.startswith("--without: unknown slice")


def on_gpus(home: Path, divide: str, entries: str, profiled: Sequence[str]) -> tuple[PlacementTask, Running]:
    """Two rehearsed H200s that are divided so, with these slices beside cpu-a."""
    text = (
        f"devices: [{{name: h, kind: gpu-nvidia-h200, count: 2, divide: {divide}, rehearse: true}}]\n"
        f"slices: [{{name: cpu-a, cores: 1}}, {entries}]\n"
        "models: [{path: models/digits, slo_ms: 25, slices: [g], variants: [linear], "
        "default_variant: linear}]\n"
    )
    path = deployment(home, text)
    write_profiles(home / "profiles", profiled, ("digits", "linear"))
    asked = ask(path, ["digits=100"], 0.2, RunningGateway(), None)
    return asked, Running.of(asked.settings)


def test_a_gpu_that_lost_all_of_its_slices_is_lost(tmp_path: Path) -> None:
    asked = on_gpus(tmp_path, "mps", '{name: g, device: h, share: "mps:50"}', ["mps:50"])
    found, _ = left(*asked, Outages(lost=("g-1",)))
    assert [each for each in found.problem.pool_of if each.startswith("h-")] == ["h-2"]


def test_of_a_gpu_that_lost_one_slice_the_rest_is_planned_with(tmp_path: Path) -> None:
    entry = '{name: g, device: h, share: "mps:30", count: 2}'
    found, running = left(*on_gpus(tmp_path, "mps", entry, ["mps:30"]), Outages(lost=("g-1",)))
    totals = {
        name: pool.division.total
        for name, pool in found.problem.pool_of.items()
        if name.startswith("h-") and isinstance(pool.division, Parts)
    }
    assert totals == {"h-1": 70.0, "h-2": 100.0}
    assert running.models["digits"] == ("g-2", "g-3", "g-4")


def test_of_a_gpu_that_lost_an_instance_what_fits_beside_it_is_planned_with(tmp_path: Path) -> None:
    entry = '{name: g, device: h-1, share: "mig:3g.71gb", count: 2}'
    found, _ = left(*on_gpus(tmp_path, "mig", entry, ["mig:3g.71gb"]), Outages(lost=("g-2",)))
    division = found.problem.pool_of["h-1"].division
    assert isinstance(division, Instances)
    assert "7g.141gb" not in {each.name for each in division.geometry}
    assert place(division.geometry, ["3g.71gb"])
    assert place(division.geometry, ["3g.71gb", "3g.71gb"]) is None
    assert place(division.geometry, ["2g.35gb", "2g.35gb"])
    (stays,) = found.current["h-1"]
    profile = division.profile(stays.share)
    assert profile is not None
    assert stays.start in profile.starts


def test_an_instance_that_lost_a_process_is_lost_with_all_of_them(tmp_path: Path) -> None:
    entry = '{name: g, device: h-1, share: "mig:2g.35gb", count: 2, processes: 2}'
    asked = on_gpus(tmp_path, "mig", entry, ["mig:2g.35gb*2"])
    found, running = left(*asked, Outages(lost=("g-1",)))
    assert running.models["digits"] == ("g-3", "g-4")
    assert [each.processes for each in found.current["h-1"]] == [2]
    assert {"g-1", "g-2"} <= running.away


@pytest.mark.parametrize(
    ("divide", "entry", "there"),
    [
        ("mps", '{name: g, device: h-1, share: time, count: 2}', ["h-1", "h-2"]),  # turns reserve nothing
        ("mig", '{name: g, device: h-1, share: "mps:30", count: 2}', ["h-2"]),  # what is left is not known
    ],
)  # fmt: skip
def test_where_a_lost_slice_had_no_part_of_the_planned_kind(
    tmp_path: Path, divide: str, entry: str, there: list[str]
) -> None:
    profiled = ["time:1", "mps:30", "mig:1g.18gb"]
    found, _ = left(*on_gpus(tmp_path, divide, entry, profiled), Outages(lost=("g-1",)))
    assert [each for each in found.problem.pool_of if each.startswith("h-")] == there
