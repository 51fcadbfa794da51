"""`placement:`: what the gateway does where it cannot reach its desired state."""

from pathlib import Path

import pytest

from router.settings import SettingsError, load_settings
from router.settings.machine.placement import PlacementSettings
from tests.router.settings.samples import write_gateway

MODELS = "models: [{path: models/digits}]\n"


@pytest.mark.parametrize(
    ("text", "replan"),
    [
        ("", "advise"),
        ("placement:\n", "advise"),
        ("placement: {replan: advise}\n", "advise"),
        ("placement: {replan: apply}\n", "apply"),
        ("placement: {replan: off}\n", "off"),
        ("placement: {replan: false}\n", "off"),
        ('placement: {replan: "off"}\n', "off"),
    ],
)
def test_a_section_becomes_these_settings(home: Path, text: str, replan: str) -> None:
    assert load_settings(write_gateway(home, MODELS + text)).placement == PlacementSettings(replan)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("placement: {replan: aply}\n", "placement.replan: unknown way to replan; got 'aply'"),
        ("placement: {replan: true}\n", "placement.replan: "),
        ("placement: {replans: off}\n", "did you mean replan?"),
        ("placement: off\n", "placement: "),
    ],
)
def test_what_is_wrong_is_said(home: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(write_gateway(home, MODELS + text))
    assert said in str(caught.value)
