"""Whatever an editor does to a valid file: settings, or problems with places inside the file."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.settings import SettingsError, load_model, load_settings
from tests.router.settings.samples import DIGITS, GATEWAY, TEXT, write_deployment, write_gateway
from tests.seeds import drawn

SHARED = GATEWAY + "tenants:\n  - {name: shop, weight: 2.5}\n  - {name: jobs, priority: -1}\n"
SHARED += "recording: {folder: recordings, file_mb: 0.5, files: 2}\n"
SHARED += "cache: {memory_mb: 0.5, ttl_s: 2, shared: true}\n"
SHARED += "devices: [{name: a, cores: 2, count: 2}, {name: b, kind: gpu-nvidia-h200, divide: mig}]\n"
SHARED += (
    "prices: [{on_demand: 0.05, spot: 0.02}]\nscaling: {policy: hpa, target: 0.6, cost_max_per_hour: 9}\n"
)
SHARED += "tiers:\n  - {name: best, tolerance: 0}\n"
SHARED += "  - {name: low, accuracy_min: 0.0, optimize: cheapest, slo_ms: 5}\n"
for old, new in (
    ("    default_variant: linear\n", "    tolerance: 0.99\n    percentile: 95\n"),
    ("[cnn, linear]\n", "[cnn, linear]\n    tiers: {low: {cost_max: 3}}\n"),
    (
        "    tiers",
        "    selection: {policy: exp3, members: [cnn, linear], output: SCORES, keep_s: 5}\n    tiers",
    ),
    ("cores: 1}", "cores: 1, price: 0.7}"),
    ("priority: -1", "tier: low"),
    ("  - {name: cpu-b, threads: 2}\n", "  - {name: cpu-b, threads: 2, count: 3, spot: true}\n"),
    ("- path: models/minilm\n", "- {path: models/minilm, slices: [cpu-b], replicas: {min: 0, max: 2}}\n"),
):
    SHARED = SHARED.replace(old, new, 1)
LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")

tokens = st.sampled_from(
    ["", " ", "  ", "\t", "\n", "\r", ":", ": ", "- ", "-", ",", "[", "]", "{", "}", "&a ", "*a",
     "<<: ", "? ", "|\n", "!!int ", "!x ", "'", '"', "#", ">\n", "---\n", "...\n", "%YAML 9\n",
     "null", "true", "no", ".nan", "-.inf", "1e999", "0x_", "9" * 5000, "9" * 400, "-1", "0", "1.5",
     "2024-99-99", "12:30", "=", "\x00", "\x85", "\u2028", "\ufeff", '"\\ud800"', '"\\0"',
     '"\\UFFFFFFFF"', "\U0001f600", "\U00018cd6", "\xe9", "a/../..", "/", "[[[["]
)  # fmt: skip
edits = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.one_of(tokens, st.text(max_size=3))), max_size=4
)


def mutated(text: str, changes: list[tuple[float, int, str]]) -> str:
    """Each change replaces some characters at a share of the text's length."""
    for share, count, token in changes:
        start = int(share * len(text))
        text = text[:start] + token + text[start + count :]
    return text


def assert_loads_or_explains(load: Callable[[Path], object], path: Path, home: Path) -> None:
    try:
        load(path)
    except SettingsError as error:
        problems = error.problems
    else:
        return
    assert problems
    for problem in problems:
        text = Path(problem.file).read_bytes().decode("utf-8-sig")
        # JSON knows one line break, YAML several.
        lines = text.split("\n") if problem.file.endswith(".json") else LINE_BREAK.split(text)
        assert Path(problem.file).is_relative_to(home)
        assert 1 <= problem.line <= len(lines), problem
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1, problem
        assert str(problem).isprintable(), problem


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("deployment")
    write_deployment(home)
    return home


@pytest.mark.slow
@settings(max_examples=drawn(300), deadline=None)
@example(changes=[(0.18, 10, '"\\ud800"')])
@given(changes=edits)
def test_an_edited_penstock_yaml_loads_or_is_explained(
    shared_home: Path, changes: list[tuple[float, int, str]]
) -> None:
    text = mutated(SHARED, changes).encode("utf-8", "ignore").decode()
    assert_loads_or_explains(load_settings, write_gateway(shared_home, text), shared_home)


@pytest.mark.slow
@settings(max_examples=drawn(300), deadline=None)
@given(name=st.sampled_from(["digits", "minilm"]), changes=edits)
def test_an_edited_model_yaml_loads_or_is_explained(
    shared_home: Path, name: str, changes: list[tuple[float, int, str]]
) -> None:
    folder = shared_home / "models" / name
    original = {"digits": DIGITS, "minilm": TEXT}[name]
    text = mutated(original, changes).encode("utf-8", "ignore")
    (folder / "model.yaml").write_bytes(text)
    try:
        assert_loads_or_explains(load_model, folder, shared_home)
    finally:
        (folder / "model.yaml").write_text(original)


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from(["all", "cnn", "cpu-a", "models/digits", "", "x"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)
scalars = [match.span(1) for match in re.finditer(r": ([\w./-]+|\[[^\]]*\]|\{[^{}]*\})", SHARED)]


def in_flow_style(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(in_flow_style, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {in_flow_style(each)}' for key, each in value.items())}}}"
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
    return json.dumps(value)


@pytest.mark.slow
@settings(max_examples=drawn(300), deadline=None)
@given(span=st.sampled_from(scalars), value=values)
def test_a_value_of_any_type_in_any_place_loads_or_is_explained(
    shared_home: Path, span: tuple[int, int], value: object
) -> None:
    text = SHARED[: span[0]] + in_flow_style(value) + SHARED[span[1] :]
    assert_loads_or_explains(load_settings, write_gateway(shared_home, text), shared_home)


VALIDATED = DIGITS + "validation: {file: build/validation.json}\n"
VALIDATION = {"labels": [1, 2], "predictions": {"linear": [1, 2], "cnn": [2, 2]}}
answers: st.SearchStrategy[object] = st.recursive(
    st.sampled_from([None, True, -1, 0, 2**70, 0.5, "1", [1, 2], [1, None], {"cnn": [1, 2]}, {"x": []}]),
    lambda inner: st.dictionaries(st.sampled_from(["labels", "predictions", "cnn"]), inner, max_size=3),
    max_leaves=3,
)


@pytest.mark.slow
@settings(max_examples=drawn(150), deadline=None)
@given(changes=edits, value=st.none() | answers, key=st.sampled_from(["labels", "predictions", ""]))
def test_edited_validation_data_loads_or_is_explained(
    shared_home: Path, changes: list[tuple[float, int, str]], value: object, key: str
) -> None:
    home = shared_home / "validated"
    folder = home / "models" / "digits"
    if not home.exists():
        home.mkdir()
        write_deployment(home)
        (folder / "model.yaml").write_text(VALIDATED)
    table = value if not key else VALIDATION if value is None else {**VALIDATION, key: value}
    text = mutated(json.dumps(table), changes).encode("utf-8", "ignore")
    (folder / "build" / "validation.json").write_bytes(text)
    assert_loads_or_explains(load_model, folder, home)
