"""`profiles:`: where they are kept, whether they may be measured anew, and one sentence for each mistake."""

from pathlib import Path

import pytest

from router.settings import Settings, load_settings
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"


def settings(home: Path, text: str) -> Settings:
    return load_settings(write_gateway(home, MODELS + text))


@pytest.mark.parametrize("text", ["", "profiles:\n", "profiles: {}\n", "profiles: {remeasure: true}\n"])
def test_they_are_beside_the_file_and_may_be_measured_anew(home: Path, text: str) -> None:
    found = settings(home, text)
    assert (found.profiles, found.remeasure) == (home / "profiles", True)


@pytest.mark.parametrize("text", ["profiles: mine\n", "profiles: {folder: mine}\n"])
def test_their_folder_may_be_named(home: Path, text: str) -> None:
    assert settings(home, text).profiles == home / "mine"


def test_to_measure_them_anew_may_be_forbidden(home: Path) -> None:
    found = settings(home, "profiles: {folder: /elsewhere, remeasure: false}\n")
    assert (found.profiles, found.remeasure) == (Path("/elsewhere"), False)


@pytest.mark.parametrize(
    ("value", "where", "sentence"),
    [
        ("[mine]", "2:11: profiles", "not a folder; got a list of 1, "
         "expected a folder such as profiles, or a mapping with folder and remeasure"),
        ("''", "2:11: profiles", "not a folder; got '', expected a folder such as profiles, "
         "or a mapping with folder and remeasure"),
        ("{remeasure: 5}", "2:23: profiles.remeasure", "not true or false; got 5, expected true or false"),
        ("{folder: ''}", "2:20: profiles.folder", "empty; got '', expected text"),
        ("{remesure: true}", "2:12: profiles.remesure", "unknown key; got 'remesure', "
         "expected folder or remeasure (did you mean remeasure?)"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(
    home: Path, value: str, where: str, sentence: str
) -> None:
    (fault,) = gateway_faults(home, f"{MODELS}profiles: {value}\n")
    assert fault == f"penstock.yaml:{where}: {sentence}"
