"""`tracing:`: off without it, what it becomes, and the one sentence for each way to get it wrong."""

from pathlib import Path

import pytest

import router.settings.door.tracing as tracing_module
from router.settings import load_settings
from router.settings.door.tracing import TracingSettings
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"


def tracing(home: Path, text: str) -> TracingSettings | None:
    return load_settings(write_gateway(home, MODELS + text)).tracing


def test_nothing_is_traced_that_was_not_asked_for(home: Path) -> None:
    assert tracing(home, "") is None
    assert tracing(home, "tracing:\n") is None


@pytest.mark.parametrize(
    ("stated", "whole"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/own/path", "https://c/own/path"),
    ],
)
def test_a_collector_may_be_named_with_or_without_the_path(home: Path, stated: str, whole: str) -> None:
    assert tracing(home, f'tracing: {{otlp: "{stated}"}}') == TracingSettings(whole)


def test_a_file_is_beside_the_settings(home: Path) -> None:
    text = "tracing: {file: t.json, sample: 0.5, missed: false, service: shop}"
    assert tracing(home, text) == TracingSettings("", 0.5, False, "shop", home / "t.json")


@pytest.mark.parametrize(
    ("text", "where", "sentence"),
    [
        ("tracing: {}", "tracing", "no place for traces; got 'neither otlp nor file'"),
        (
            "tracing: {otlp: localhost}",
            "tracing.otlp",
            "not a URL; got 'localhost', expected the collector's",
        ),
        ("tracing: {otlp: 'http://c', sample: 2}", "tracing.sample", "got 2, expected 1 or less"),
        ("tracing: {file: none/t.json}", "tracing.file", "not a file that can be written"),
        ("tracing: {otlpp: x}", "tracing.otlpp", "unknown key"),
    ],
)
def test_a_mistake_is_named(home: Path, text: str, where: str, sentence: str) -> None:
    faults = gateway_faults(home, MODELS + text)
    assert [fault for fault in faults if where in fault and sentence in fault], faults


def test_packages_that_are_not_there_are_named_with_their_cure(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing_module, "find_spec", lambda _name: None)
    (fault,) = gateway_faults(home, MODELS + "tracing: {otlp: 'http://c'}")
    assert "pip install 'penstock[tracing]'" in fault
