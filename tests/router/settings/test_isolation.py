"""`isolate:` of a model: what it becomes, what `check` says of it, and one sentence for each mistake."""

from pathlib import Path

import pytest

from router.settings import load_settings
from router.verbs.plan import plan_lines
from serving.values.specs import ISOLATE
from tests.router.settings.samples import TEXT, gateway_faults, write_gateway, write_model

ONE = "slices: [{name: a, cores: 1}]\n"
LIMITED = "slices: [{name: a, cores: 1, memory_mb: 100}]\n"


def models(isolate: str, beside: bool = True) -> str:
    other = "  - {path: models/other}\n" if beside else ""
    return f"models:\n  - {{path: models/digits, isolate: {isolate}}}\n{other}"


@pytest.fixture
def house(home: Path) -> Path:
    write_model(home / "models" / "other", TEXT)
    return home


@pytest.mark.parametrize("isolate", ISOLATE)
def test_each_word_becomes_the_models(house: Path, isolate: str) -> None:
    read = load_settings(write_gateway(house, ONE + models(isolate)))
    assert [each.isolate for each in read.models] == [isolate, "auto"]


@pytest.mark.parametrize(
    ("isolate", "beside", "said"),
    [
        ("auto", True, []),
        ("never", True, ["  isolate: never; whatever it does, it shares its slices' processes"]),
        ("always", True, ["  isolate: a process of its own on a, on the same cores as the slice's"]),
        ("always", False, ["  isolate: always, as it is alone on its slices"]),
    ],
)
def test_check_says_where_it_has_a_process_of_its_own(
    house: Path, isolate: str, beside: bool, said: list[str]
) -> None:
    lines = plan_lines(load_settings(write_gateway(house, ONE + models(isolate, beside))))
    assert [line for line in lines if "isolate" in line] == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            ONE + models("alway"),
            "unknown isolation; got 'alway', expected auto, always or never (did you mean always?)",
        ),
        (
            ONE + models("true"),
            "not text; got true, expected text; quote what YAML would take for another type",
        ),
        (
            LIMITED + models("always"),
            "a has memory_mb, within which one process holds all models of the slice; expected slices "
            "without memory_mb for digits, or isolate: auto or never",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(house: Path, text: str, said: str) -> None:
    assert gateway_faults(house, text) == [f"penstock.yaml:3:36: models[0].isolate: {said}"]
