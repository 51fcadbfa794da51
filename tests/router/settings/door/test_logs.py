"""`logging:`: how much is said and how, and the sentence for each way to get it wrong."""

from pathlib import Path

import pytest

from router.settings import SettingsError, load_settings
from router.settings.door.logs import LogSettings
from tests.router.settings.samples import write_gateway

MODELS = "models: [{path: models/digits}]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", LogSettings("info", "text", access=False)),
        ("logging:\n", LogSettings()),
        ("logging: {level: warning}\n", LogSettings(level="warning")),
        ("logging: {level: debug, format: json, access: true}\n", LogSettings("debug", "json", access=True)),
    ],
)
def test_a_section_becomes_these_settings(home: Path, text: str, expected: LogSettings) -> None:
    assert load_settings(write_gateway(home, MODELS + text)).logging == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("logging: {level: warn}\n", "logging.level: unknown log level; got 'warn'"),
        ("logging: {format: xml}\n", "logging.format: unknown log format; got 'xml'"),
        ("logging: {acess: true}\n", "did you mean access?"),
    ],
)
def test_what_is_wrong_is_said(home: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(write_gateway(home, MODELS + text))
    assert said in str(caught.value)
