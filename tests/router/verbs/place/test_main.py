"""`penstock place`, from the command line to the exit code, with a decision made by hand."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from router.cli import app as cli
from router.commandline.key_env import KEY_ENV
from router.settings import Settings
from router.verbs.place.live.following import PlacementClient
from router.verbs.place.main import place
from router.verbs.place.options import PlaceOptions
from serving.planning.deciding import Decision, DecisionTerms, Solve, missed
from serving.planning.predicting import Advance, predict
from serving.planning.task import PlanningTask
from serving.policy.placement.terms.check import shortfalls
from serving.policy.placement.terms.moves import Verdict, moves
from serving.policy.placement.terms.plan import PlacedReplica, Placement, PlacementPlan, Slot, cost
from serving.policy.transition.steps import Transition, TransitionRefused
from serving.runtime.job import JobError
from serving.values.slice_specs import Share
from tests.router.pages import texts
from tests.router.verbs.place.deployments import deployment, four_cores

pytestmark = [pytest.mark.slow, pytest.mark.in_turn(2)]  # each simulates a second or two

NO_STEPS = Transition()
RATES = ("--rates", "digits=100,minilm=20")


@dataclass
class Deciding:
    """Decides as it is told: `cores` for each model; and keeps what it was asked."""

    cores: dict[str, int] = field(default_factory=lambda: {"digits": 1, "minilm": 2})
    taken: bool = True
    transition: Transition | TransitionRefused = NO_STEPS
    asked: list[tuple[PlanningTask, DecisionTerms]] = field(default_factory=list)

    def __call__(
        self, asked: PlanningTask, terms: DecisionTerms, _solve: Solve, advance: Advance | None = None
    ) -> Decision:
        self.asked.append((asked, terms))
        if advance is not None:
            advance("looking", 0.5)
        device = asked.problem.pools[0].devices[0].name
        found: Placement = {device: tuple(self._slot(asked, name) for name in self.cores)}
        plan = PlacementPlan(found, cost(asked.problem, found), 1.0, "by hand")
        before, after = (
            predict(asked, each, min(terms.seconds, 2.0), terms.seed) for each in (asked.current, found)
        )
        short = shortfalls(asked.problem, found)
        return Decision(
            plan=plan,
            prediction=after,
            verdict=Verdict(self.taken, "by hand"),
            moves=moves(asked.current, found),
            transition=self.transition,
            before=before,
            tightened=("minilm was given more room",),
            refused=(*short, *missed(after, terms.attainment)),
        )

    def _slot(self, asked: PlanningTask, name: str) -> Slot:
        share = Share("cores", float(self.cores[name]))
        offer = next(each for each in asked.problem.demand_of[name].offers if each.option.share == share)
        return Slot(share, (PlacedReplica(name, offer.option, offer.rows, offer.throughput),))


Run = Callable[..., Result]


@pytest.fixture
def deciding() -> Deciding:
    return Deciding()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deciding: Deciding) -> Run:
    """The verb on a deployment of two models."""
    four_cores(monkeypatch)
    path = deployment(tmp_path)
    monkeypatch.setattr("router.verbs.place.main.decide", deciding)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["place", str(path), *arguments])

    return invoke


def written(result: Result) -> dict[str, Any]:
    """The JSON on stdout."""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_good_plan_is_shown_and_the_exit_code_is_0(run: Run) -> None:
    ended = run(*RATES)
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("1 of 1 device carries 2 models with 20 % in reserve")
    assert "all models are predicted to keep their SLO" in ended.stdout
    assert "digits linear" in ended.stdout
    assert "The plan is taken: by hand." in ended.stdout
    assert "note: minilm was given more room" in ended.stdout
    assert ended.stderr == ""


def test_the_options_reach_the_decision(run: Run, deciding: Deciding) -> None:
    ended = run(
        *RATES, "--reserve", "0.5", "--attainment", "0.9", "--horizon-h", "2", "--limit-s", "3", "--seconds",
        "5", "--seed", "7", "--in-flight", "4",
    )  # fmt: skip
    assert ended.exit_code == 0, ended.output
    ((asked, terms),) = deciding.asked
    assert terms == DecisionTerms(0.9, 7200.0, 3.0, 5.0, 7, 4)
    assert asked.problem.demand_of["digits"].rate == pytest.approx(150)


def test_what_a_request_has_in_rows_counts(run: Run, deciding: Deciding) -> None:
    assert run(*RATES, "--rows", "digits=3").exit_code == 0
    assert deciding.asked[0][0].problem.demand_of["digits"].rate == pytest.approx(360)


def test_json_is_all_that_stdout_has(run: Run) -> None:
    found = written(run(*RATES, "--json"))
    assert found["holds"] is True
    assert found["models"]["digits"]["asked_rows_per_s"] == 100
    assert found["models"]["digits"]["attainment"] > 0.99
    assert found["placement"]["host"][0]["share"] == "cores:1"
    assert found["busy"]
    assert found["premises"]["asked"] == "digits 100 requests/s, minilm 20 requests/s"


def test_the_same_question_has_the_same_answer(run: Run) -> None:
    assert run(*RATES, "--json").stdout == run(*RATES, "--json").stdout


def test_a_model_that_is_not_carried_ends_with_1_and_a_sentence_on_what_would_help(run: Run) -> None:
    ended = run("--rates", "digits=4000,minilm=20")
    assert ended.exit_code == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("digits: ")
    assert "of 4,800 rows/s are carried (reserve included: 4,000 are asked)" in line
    assert "What would help: about " in line
    assert "minilm" not in line
    assert ended.stdout  # what there is can be seen


def test_a_model_that_is_predicted_to_be_late_ends_with_1(run: Run, deciding: Deciding) -> None:
    ended = run(*RATES, "--attainment", "0.99999", "--rows", "digits=8", "--reserve", "0")
    assert ended.exit_code == 1
    assert "are predicted to be answered within 25 ms, not 100 %" in ended.stderr or "missing" in ended.stderr


def test_a_plan_without_a_way_to_it_ends_with_1(run: Run, deciding: Deciding) -> None:
    deciding.transition = TransitionRefused("digits has no room on host; it takes one more device")
    ended = run(*RATES)
    assert ended.exit_code == 1
    assert ended.stderr == (
        "there is no way from what is in place to the plan: digits has no room on host; it takes one more "
        "device\n"
    )


def test_a_plan_that_is_not_taken_leaves_what_is_there(run: Run, deciding: Deciding) -> None:
    deciding.taken = False
    found = written(run(*RATES, "--json"))
    assert found["taken"] is False
    assert found["placement"] == found["before"] != found["plan"]
    assert found["models"]["minilm"]["replicas"] == 2  # as it is today


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rates", "digits"), "expected MODEL=REQUESTS_A_SECOND"),
        (("--rates", "digit=3"), "digits"),
        ((*RATES, "--svg", "nowhere/a.svg"), "there is no folder nowhere"),
        ((*RATES, "--html", "/"), "/ is a folder; expected the name of a file to write"),
        ((*RATES, "--settings", "nowhere/a.yaml"), "there is no folder nowhere"),
        ((*RATES, "--settings", "-", "--json"), "both want stdout"),
        ((*RATES, "--reserve", "-1"), "--reserve"),
        ((*RATES, "--attainment", "1"), "--attainment"),
        ((*RATES, "--attainment", "nan"), "--attainment"),
        ((*RATES, "--limit-s", "0"), "--limit-s"),
        ((*RATES, "--limit-s", "nan"), "--limit-s"),
        ((*RATES, "--in-flight", "0"), "--in-flight"),
        ((*RATES, "--rates", "digits=1"), "digits is given more than once"),
    ],
)
def test_what_cannot_be_done_is_told_with_2(run: Run, arguments: tuple[str, ...], said: str) -> None:
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert ended.stdout == ""


def test_without_settings_there_is_a_sentence_and_2(tmp_path: Path, capfd: Any) -> None:
    assert place(PlaceOptions(config=tmp_path / "absent.yaml", rates=["digits=1"])) == 2
    assert "no such file" in capfd.readouterr().err


def test_pictures_and_the_page_are_written_also_where_the_plan_does_not_hold(
    run: Run, tmp_path: Path
) -> None:
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    ended = run("--rates", "digits=4000,minilm=20", "--svg", str(svg), "--html", str(html))
    assert ended.exit_code == 1
    assert f"wrote {svg}" in ended.stderr
    assert "digits" in texts(svg.read_text())
    assert '<p class="refused">digits: ' in html.read_text()


def test_a_file_that_cannot_be_written_is_told_with_2(run: Run, tmp_path: Path) -> None:
    ended = run(*RATES, "--html", str(tmp_path / ("x" * 300)))
    assert ended.exit_code == 2
    assert "cannot be written: File name too long" in ended.stderr


def test_settings_that_carry_the_plan_out_are_written_to_a_file_or_stdout(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    assert run(*RATES, "--settings", str(file)).exit_code == 0
    text = file.read_text()
    assert text.startswith("slices:\n  - {name: cpu-1, cores: 1}")
    ended = run(*RATES, "--settings", "-")
    assert ended.stdout.endswith(text)


def test_no_settings_are_written_where_the_placement_does_not_hold(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    ended = run("--rates", "digits=4000,minilm=20", "--settings", str(file))
    assert ended.exit_code == 1
    assert "no settings are written, as the plan does not hold" in ended.stderr
    assert not file.exists()


def test_the_settings_in_use_are_never_overwritten(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    before = path.read_bytes()
    for name in (str(path), f"{tmp_path}/models/../penstock.yaml"):
        ended = run(*RATES, "--settings", name)
        assert ended.exit_code == 2
        assert "would overwrite" in ended.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (JobError("the solver was killed"), 1, "no plan was found: the solver was killed\n"),
    ],
)
def test_a_decision_that_is_not_made_is_told(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def fail(*_: object) -> Decision:
        raise error

    monkeypatch.setattr("router.verbs.place.main.decide", fail)
    ended = run(*RATES)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (code, "", said)


def test_the_command_line_has_the_verb() -> None:
    shown = CliRunner().invoke(cli, ["place", "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    for option in PlaceOptions.__dataclass_fields__:
        name = {"config": "CONFIG", "as_json": "--json", "failing": "--not"}.get(
            option, f"--{option.replace('_', '-')}"
        )
        assert name in shown.output


@dataclass
class Gateway:
    """One that runs what the settings say, and does as it is told."""

    told: list[dict[str, Any]] = field(default_factory=list)
    code: int = 0

    def reach(
        self, settings: Settings, url: str | None, key_env: str
    ) -> tuple[PlacementClient, dict[str, Any]]:
        assert key_env == KEY_ENV
        slices = [
            {"name": each.name, "cores": len(each.cores), "threads": each.threads, "on": [*each.cores]}
            for each in settings.slices
        ]
        models = {each.name: {"slices": [*each.slices]} for each in settings.models}
        return PlacementClient(url or "http://here"), {"slices": slices, "models": models}

    def carry_out(self, door: PlacementClient, body: dict[str, Any]) -> int:
        self.told.append({"url": door.url} | body)
        return self.code


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    found = Gateway()
    monkeypatch.setattr("router.verbs.place.main.reach", found.reach)
    monkeypatch.setattr("router.verbs.place.main.carry_out", found.carry_out)
    return found


@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_plan_that_is_taken_is_applied_and_ends_as_that_does(run: Run, gateway: Gateway, code: int) -> None:
    gateway.code = code
    ended = run(*RATES, "--apply", "--url", "http://there")
    assert ended.exit_code == code, ended.output
    (told,) = gateway.told
    assert told["url"] == "http://there"
    assert [(each["name"], each["cores"]) for each in told["slices"]] == [("cpu-a", 1), ("cpu-b", 2)]
    assert told["models"]["minilm"]["slices"] == ("cpu-b",)
    assert ended.stdout.startswith("1 of 1 device carries")


def test_a_plan_that_is_not_worth_its_moves_is_not_applied(
    run: Run, gateway: Gateway, deciding: Deciding
) -> None:
    deciding.taken = False
    ended = run(*RATES, "--apply")
    assert (ended.exit_code, ended.stderr) == (0, "nothing is applied: what is in place stays\n")
    assert not gateway.told


def test_a_plan_that_breaks_a_promise_is_not_applied(run: Run, gateway: Gateway) -> None:
    ended = run("--rates", "digits=4000,minilm=20", "--apply")
    assert ended.exit_code == 1
    assert ended.stderr.endswith("nothing is applied, as the plan breaks a promise\n")
    assert not gateway.told


def test_a_plan_without_a_way_to_it_is_applied_on_shared_cores(
    run: Run, gateway: Gateway, deciding: Deciding
) -> None:
    deciding.transition = TransitionRefused("digits has no room on host")
    ended = run(*RATES, "--apply")
    assert ended.exit_code == 0
    assert "old slices and new ones share them (digits has no room on host)" in ended.stdout
    assert "steps" not in gateway.told[0]


def test_a_plan_for_other_devices_is_not_applied(run: Run, gateway: Gateway, tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    path.write_text(path.read_text().replace("cores: 4", "cores: 64"))
    ended = run(*RATES, "--apply")
    assert ended.exit_code == 2
    assert "nothing is applied: a gateway has slices of whole cores of this machine's CPU" in ended.stderr


def test_a_gateway_to_apply_it_to_is_looked_for_before_anything_is_decided(
    run: Run, deciding: Deciding
) -> None:
    ended = run(*RATES, "--apply", "--url", "http://127.0.0.1:1")
    assert ended.exit_code == 2
    assert ended.stderr.startswith("--apply: no gateway answers at http://127.0.0.1:1 (")
    assert not deciding.asked
