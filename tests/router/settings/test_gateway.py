"""`penstock.yaml`: what a valid file becomes, and the one sentence for each way to get it wrong."""

import dataclasses
import re
import time
from pathlib import Path

import pytest

from router.settings import ServerSettings, SettingsError, load_settings
from router.settings.machine.slices import default_slices, usable_cores
from router.settings.values.findings import PROBLEMS_MAX
from router.settings.values.schema import LimitsSection
from serving.values.slice_specs import SliceSpec
from serving.values.specs import BatchingSpec, Limits
from tests.router.settings.samples import (
    DIGITS,
    GATEWAY,
    TEXT,
    gateway_fault,
    gateway_faults,
    gateway_settings,
    write_accuracy,
    write_gateway,
    write_model,
)

CORES = usable_cores()


def test_a_full_file_becomes_these_settings(home: Path) -> None:
    settings = load_settings(home / "penstock.yaml")
    digits, minilm = settings.models
    assert settings.server == ServerSettings("test", "127.0.0.1", 9000, 9001, 0)
    assert settings.limits == Limits(body_bytes=8 << 20, stall_us=2_500_000)
    assert settings.slices == (SliceSpec("cpu-a", (CORES[0],)), SliceSpec("cpu-b", (), threads=2))
    assert (digits.name, digits.slo_us, digits.answering_variant) == ("digits", 40_000, "linear")
    assert (digits.variants, digits.slices) == (("cnn", "linear"), ("cpu-a",))
    assert digits.batching == BatchingSpec("static", size=32, delay_us=2000)
    assert (minilm.slo_us, minilm.answering_variant) == (250_500, "fp32")
    assert (minilm.variants, minilm.slices) == (("fp32", "int8"), ("cpu-a", "cpu-b"))
    assert minilm.batching == BatchingSpec()
    assert (settings.path, settings.profiles) == (home / "penstock.yaml", home / "profiles")
    assert settings.warnings == ()


def test_everything_but_models_has_a_default(home: Path) -> None:
    settings = load_settings(write_gateway(home, "models: [{path: models/digits}]"))
    assert (settings.server, settings.limits) == (ServerSettings(), Limits())
    names = default_slices()
    assert settings.slices == tuple(
        SliceSpec(name, (core,)) for name, core in zip(names, CORES, strict=False)
    )
    assert settings.models[0].slices == names


@pytest.mark.parametrize("slices", ["", ", slices: [cpu]"])
def test_without_slices_every_usable_core_has_one_and_a_model_may_name_them_together(
    home: Path, monkeypatch: pytest.MonkeyPatch, slices: str
) -> None:
    for module in ("gateway", "machine.slices"):
        monkeypatch.setattr(f"router.settings.{module}.usable_cores", lambda: (2, 3, 5))
    monkeypatch.setattr("router.settings.machine.slices.quota", lambda: None)
    settings = load_settings(write_gateway(home, f"models: [{{path: models/digits{slices}}}]"))
    assert {each.name: each.cores for each in settings.slices} == {
        "cpu-1": (2,),
        "cpu-2": (3,),
        "cpu-3": (5,),
    }
    assert settings.models[0].slices == ("cpu-1", "cpu-2", "cpu-3")
    assert settings.warnings == ()


@pytest.mark.parametrize(("said", "expected"), [("", True), ("triton_metrics: false", False)])
def test_metrics_have_tritons_names_unless_that_is_switched_off(
    home: Path, said: str, expected: bool
) -> None:
    settings = load_settings(write_gateway(home, f"server: {{{said}}}\nmodels: [{{path: models/digits}}]"))
    assert settings.server.triton_metrics is expected


def test_a_key_without_a_value_counts_as_not_given(home: Path) -> None:
    settings = load_settings(
        write_gateway(home, "server:\nlimits:\nslices:\nmodels: [{path: models/digits}]")
    )
    assert settings.server == ServerSettings()
    assert tuple(each.name for each in settings.slices) == default_slices()


def test_anchors_and_aliases_repeat_a_value(home: Path) -> None:
    aliased = GATEWAY.replace("slices: [cpu-a]", "slices: &where [cpu-a]") + "    slices: *where\n"
    assert load_settings(write_gateway(home, aliased)).models[1].slices == ("cpu-a",)


def test_paths_are_relative_to_the_file_and_results_absolute(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    settings = load_settings(Path("../penstock.yaml"))
    assert settings.path == home / "penstock.yaml"
    assert settings.models[0].spec.folder == home / "models" / "digits"


def test_a_single_listed_variant_answers_without_being_named_again(home: Path) -> None:
    settings = load_settings(write_gateway(home, "models: [{path: models/digits, variants: [linear]}]"))
    assert settings.models[0].answering_variant == "linear"


def test_every_limit_has_exactly_one_key() -> None:
    units = {"_mb": "_bytes", "_kb": "_bytes"}
    fields = set()
    for key in LimitsSection.model_fields:
        suffix = key[-3:]
        fields.add(key[:-3] + units[suffix] if suffix in units else key)
    assert fields - {"stall_s"} | {"stall_us"} == {field.name for field in dataclasses.fields(Limits)}
    assert len(fields) == len(LimitsSection.model_fields)


def test_a_limit_named_to_a_client_is_a_key_of_the_settings() -> None:
    root = Path(__file__).parents[3]
    sources = [path.read_text() for folder in ("router", "serving") for path in (root / folder).rglob("*.py")]
    named = {name for text in sources for name in re.findall(r"\(limits\.(\w+)\)", text)}
    assert "body_mb" in named
    assert named <= LimitsSection.model_fields.keys()


def test_every_limit_is_taken_in_its_own_unit(home: Path) -> None:
    given = ", ".join(f"{key}: 7" for key in LimitsSection.model_fields)
    limits = load_settings(
        write_gateway(home, f"limits: {{{given}}}\nmodels: [{{path: models/digits}}]")
    ).limits
    seconds = {
        "idle_connection_s",
        "slow_client_s",
        "grpc_age_s",
        "startup_s",
        "drain_grace_s",
        "drain_s",
        "sweep_s",
    }
    sizes = {
        "body_bytes": 20,
        "json_bytes": 20,
        "tensor_bytes": 20,
        "held_bytes": 20,
        "infer_stream_bytes": 20,
        "header_bytes": 10,
        "write_buffer_bytes": 10,
    }
    for field in dataclasses.fields(Limits):
        value = getattr(limits, field.name)
        expected = {"stall_us": 7_000_000}.get(field.name, 7 << sizes.get(field.name, 0))
        assert value == expected, field.name
        assert type(value) is (float if field.name in seconds else int), field.name


@pytest.mark.parametrize(
    ("usable_mb", "given", "place"),
    [
        (1024, "", ""),
        (1024, "limits: {held_mb: 448}\ncache: {memory_mb: 64}\n", ""),
        (1024, "limits: {held_mb: 500}\ncache: {memory_mb: 64}\n", "1:19: limits.held_mb"),
        (1024, "cache: {memory_mb: 600}\n", "1:20: cache.memory_mb"),
        (0, "limits: {held_mb: 100000}\n", ""),
    ],
)
def test_what_clients_and_the_cache_may_hold_should_fit(
    home: Path, monkeypatch: pytest.MonkeyPatch, usable_mb: int, given: str, place: str
) -> None:
    monkeypatch.setattr("router.settings.gateway.usable_memory_bytes", lambda: usable_mb << 20)
    settings = load_settings(write_gateway(home, f"{given}models: [{{path: models/digits}}]"))
    found = [str(each).partition(": clients may make")[0] for each in settings.warnings]
    assert [each.partition("penstock.yaml:")[2] for each in found] == ([place] if place else [])
    if not given:
        assert settings.limits.held_bytes == (1024 << 20) // 6


@pytest.mark.parametrize(
    ("usable_mb", "given", "warning"),
    [
        (1024, "", ""),
        (0, "grpc_call_count: 8192", ""),
        (1024, "grpc_call_count: 8, body_mb: 128", ""),
        (1024, "body_mb: 32", ""),
        (1024, "body_mb: 65", "1:19: limits.body_mb: clients may make gRPC hold 8192 (grpc_call_count) "),
        (
            1024,
            "held_mb: 9, grpc_call_count: 17",
            "1:39: limits.grpc_call_count: clients may make gRPC hold 17 ",
        ),
    ],
)
def test_a_stated_number_of_large_messages_should_fit(
    home: Path, monkeypatch: pytest.MonkeyPatch, usable_mb: int, given: str, warning: str
) -> None:
    monkeypatch.setattr("router.settings.gateway.usable_memory_bytes", lambda: usable_mb << 20)
    text = f"limits: {{{given}}}\nmodels: [{{path: models/digits}}]\nserver: {{grpc: "
    assert load_settings(write_gateway(home, text + "ngh2}")).warnings == ()  # its account has them
    settings = load_settings(write_gateway(home, text + "grpcio}"))
    found = [str(each).partition("penstock.yaml:")[2] for each in settings.warnings]
    assert len(found) == bool(warning)
    for each in found:
        assert each.startswith(warning)
        assert "expected at most" in each


def test_limits_given_as_their_defaults_change_nothing(home: Path) -> None:
    text = "limits: {body_mb: 64, header_kb: 64, tensor_mb: 64, write_buffer_kb: 1024, stall_s: 5}"
    assert load_settings(write_gateway(home, f"{text}\nmodels: [{{path: models/digits}}]")).limits == Limits()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("slo_ms: 40", "slo_ms: fifty", "8:13: models[0].slo_ms: not a number; got 'fifty', expected"),
        ("slo_ms: 40", "slo_ms: true", "8:13: models[0].slo_ms: not a number; got true, expected a number"),
        ("slo_ms: 40", "slo_ms: -1", "8:13: models[0].slo_ms: too small; got -1, expected 0.001 or more"),
        ("slo_ms: 40", "slo_ms: 0", "8:13: models[0].slo_ms: too small; got 0, expected 0.001 or more"),
        ("slo_ms: 40", "slo_ms: .nan", "not a finite number; got nan, expected a finite number"),
        ("slo_ms: 40", "slo_ms: .inf", "got inf, expected"),
        ("slo_ms: 40", "slo: 40", "8:5: models[0].slo: unknown key; got 'slo', expected slo_ms, slo_rows, "),
        ("slo_ms: 40", "slo: 40", "(did you mean slo_ms?)"),
        ("rest_port: 9000", "rest_port: 70000", "1:50: server.rest_port: too large; got 70000"),
        ("rest_port: 9000", "rest_port: 80.5", "not a whole number; got 80.5, expected a whole number"),
        ("grpc_port: 9001", "grpc_port: 9000", "server.grpc_port: the same port as rest_port; got 9000"),
        ("limits: {body_mb", "limits: {body_bytes", "2:10: limits.body_bytes: unknown key; got 'body_bytes'"),
        ("limits: {body_mb", "limits: {body_bytes", "(did you mean body_mb?)"),
        ("limits: {body_mb: 8", "limits: {body_mb: 0", "limits.body_mb: too small; got 0, expected 0.001"),
        ("limits: {body_mb: 8, stall_s: 2.5}", "limits: 5", "2:9: limits: not a mapping; got 5, expected"),
        ("{name: cpu-b,", "{name: cpu-a,", "5:12: slices[1].name: 'cpu-a' is used twice"),
        ("{name: cpu-b,", "{name: cpu/b,", "slices[1].name: not a name; got 'cpu/b', expected letters"),
        ("cores: 1", "cores: 0", "4:26: slices[0].cores: no cores; got 0, expected a count"),
        ("cores: 1", "cores: [0, 0]", "slices[0].cores: a core is listed twice"),
        ("cores: 1", "cores: [4095]", "4:26: slices[0].cores: no such core here; got 4095"),
        ("threads: 2", "threads: two", "slices[1].threads: not a whole number; got 'two'"),
        ("slices: [cpu-a]", "slices: [cpu-aa]", "9:14: models[0].slices[0]: unknown slice; got 'cpu-aa', "),
        ("slices: [cpu-a]", "slices: [cpu-aa]", "expected cpu-a or cpu-b (did you mean cpu-a?)"),
        ("slices: [cpu-a]", "slices: []", "models[0].slices: not a list of names; got an empty list"),
        ("slices: [cpu-a]", "slices: [cpu-a, cpu-a]", "models[0].slices: 'cpu-a' is listed twice"),
        ("[cnn, linear]", "[cn, linear]", "models[0].variants[0]: unknown variant; got 'cn'"),
        ("[cnn, linear]", "cnn", "models[0].variants: not a list of variants; got 'cnn', expected all, or"),
        ("[cnn, linear]", "[cnn]", "models[0].default_variant: a variant that is not served; got 'linear'"),
        ("variant: linear", "variant: liner", "unknown variant; got 'liner', expected linear or cnn"),
        ("size: 32", "size: 65", "12:38: models[0].batching.size: too large; got 65, expected at most the"),
        ("delay_ms: 2", "delay_ms: 40", "batching.delay_ms: too long; got 40, expected less than the"),
        ("policy: static", "policy: statik", "unknown batching policy; got 'statik', expected"),
        ("models/digits", "models/digit", "7:11: models[0].path: no such folder; got "),
        ("models/digits", "models/digit", "(did you mean models/digits?)"),
        ("models/digits", "models", "'models' is no model folder: it has no model.yaml"),
        ("models/digits", '"models/\\0"', "models[0].path: no such folder"),
        ("models/digits", "m" * 5000, "models[0].path: too long; got 'mmm"),
        ("models/digits", "m" * 300, "models[0].path: no such folder"),
        ("models/minilm", "models/digits", "13:11: models[1].path: models[0] has the same name, 'digits'"),
        ("path: models/minilm", "slo_ms: 5", "13:5: models[1].path: this key is required"),
        ("    slo_ms: 40", "    slo_ms: 40\n    slo_ms: 4", "9:5: models[0].slo_ms: the key 'slo_ms' is"),
        ("slo_ms: 40", "slo_ms: !!python/name:os x", "8:13: models[0].slo_ms: cannot read 'x' as the"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(home: Path, old: str, new: str, expected: str) -> None:
    fault = gateway_fault(home, old, new)
    assert fault.startswith("penstock.yaml:")
    assert expected in fault


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(home: Path) -> None:
    text = (
        GATEWAY.replace("rest_port: 9000", "rest_port: x")
        .replace("name: cpu-b", "nam: cpu-b")
        .replace("slo_ms: 40", "slo_ms: fifty")
        .replace("size: 32", "size: 65")
        .replace("models/minilm", "models/minilmm")
    )
    faults = gateway_faults(home, text)
    places = [tuple(map(int, fault.split(":")[1:3])) for fault in faults]
    wheres = [fault.split(": ")[1] for fault in faults]
    assert places == sorted(places)
    assert wheres == ["server.rest_port", "slices[1].name", "slices[1].nam", "models[0].slo_ms",
                      "models[0].batching.size", "models[1].path"]  # fmt: skip


def test_one_mistake_is_not_followed_by_others_that_it_explains(home: Path) -> None:
    assert len(gateway_faults(home, GATEWAY.replace("threads: 2", "threads: x"))) == 1
    assert len(gateway_faults(home, GATEWAY.replace("[cnn, linear]", "5"))) == 1
    unnamed = gateway_faults(home, GATEWAY.replace("name: cpu-a", "name: !x cpu-a"))
    assert len(unnamed) == 1
    assert "slices[0].name: cannot read 'cpu-a' as the YAML type '!x'" in unnamed[0]


def test_a_faulty_model_is_reported_at_its_own_file(home: Path) -> None:
    write_model(home / "models" / "digits", DIGITS.replace("batch_max: 64", "batch_max: many"))
    (fault,) = gateway_faults(home, GATEWAY)
    assert fault.startswith("models/digits/model.yaml:5:12: batch_max: not a whole number; got 'many'")


def test_a_model_default_left_out_of_its_variants_needs_a_new_default(home: Path) -> None:
    text = DIGITS.replace("  - {name: cnn,", "  - {name: mlp}\n  - {name: cnn,")
    write_model(home / "models" / "digits", text)
    (fault,) = gateway_faults(home, "models: [{path: models/digits, variants: [linear, mlp]}]")
    assert "models[0].variants: the model's default 'cnn' is not listed" in fault
    assert "default_variant: linear or mlp" in fault


def test_port_zero_may_be_given_to_all_servers(home: Path) -> None:
    text = "server: {rest_port: 0, grpc_port: 0, metrics_port: 0}\nmodels: [{path: models/digits}]"
    assert load_settings(write_gateway(home, text)).server.rest_port == 0


def test_a_given_port_may_not_be_the_default_of_another_server(home: Path) -> None:
    (fault,) = gateway_faults(home, "server: {rest_port: 8001}\nmodels: [{path: models/digits}]")
    assert "server.grpc_port: the same port as rest_port; got 8001" in fault


def test_explicit_cores_may_not_overlap(home: Path) -> None:
    last = CORES[-1]
    slices = f"slices: [{{name: a, cores: [{last}]}}, {{name: b, cores: [{last}]}}]"
    (fault,) = gateway_faults(home, f"{slices}\nmodels: [{{path: models/digits}}]")
    assert f"slices[1].cores: core {last} is slice 'a''s already" in fault


def test_more_counted_cores_than_there_are_is_a_warning(home: Path) -> None:
    count = len(CORES) + 1
    settings = gateway_settings(home, "cores: 1", f"cores: {count}")
    assert settings.slices[0].cores == CORES
    assert f"ask for {count} cores by count, but only {len(CORES)} are free here" in str(settings.warnings[0])


def test_an_unused_slice_and_too_many_threads_are_warnings(home: Path) -> None:
    settings = gateway_settings(home, "cores: 1", "cores: 1, threads: 3")
    assert "slices[0].threads: 3 threads on 1" in str(settings.warnings[0])
    settings = gateway_settings(home, "  - path: models/minilm\n", "")
    assert "slices[1]: no model uses the slice 'cpu-b'" in str(settings.warnings[0])


def test_warnings_travel_with_errors(home: Path) -> None:
    text = GATEWAY.replace("cores: 1", "cores: 1, threads: 3").replace("slo_ms: 40", "slo_ms: x")
    with pytest.raises(SettingsError) as caught:
        load_settings(write_gateway(home, text))
    assert [each.where for each in caught.value.problems] == ["models[0].slo_ms"]
    assert [each.where for each in caught.value.warnings] == ["slices[0].threads"]


def test_the_sample_file_is_valid(tmp_path: Path) -> None:
    sample = Path(__file__).parents[3] / "penstock.yaml"
    for name in ("simple", "mlp", "identity", "minilm", "digits"):
        folder = write_model(tmp_path / "models" / name, DIGITS.replace("name: digits", f"name: {name}"))
        for variant in ("linear", "cnn"):
            (folder / "build" / f"{variant}.safetensors").touch()
        write_accuracy(folder, {"linear": 0.96, "cnn": 0.98})
    settings = load_settings(write_gateway(tmp_path, sample.read_text()))
    slices = {model.name: model.slices for model in settings.models}
    assert slices.pop("minilm") == ("cpu-b",)
    assert slices == dict.fromkeys(("digits", "simple", "mlp", "identity"), ("cpu-a",))
    assert settings.server == ServerSettings()
    assert all("cores by count" in str(each) for each in settings.warnings)


def test_the_slo_is_said_once_and_penstock_yaml_has_the_last_word(home: Path) -> None:
    write_model(home / "models" / "minilm", TEXT.replace("slo_ms: 250.5\n", ""))
    file = write_gateway(home, "models: [{path: models/minilm, slo_ms: 70}, {path: models/digits}]")
    assert [model.slo_us for model in load_settings(file).models] == [70_000, 25_000]
    assert gateway_faults(home, "models: [{path: models/minilm}, {path: models/digits, slo_ms: 3}]") == [
        "penstock.yaml:1:10: models[0].slo_ms: how soon is 'minilm' to answer? Neither this entry nor its "
        "model.yaml says; expected slo_ms: 100, say, in one of them"
    ]


@pytest.mark.parametrize(
    "entry",
    ["{path: models/digits}", "{path: models/digits, slo_ms: x, fast: 1}", "{path: models/digit}", "digits"],
)
def test_a_small_file_that_repeats_an_entry_is_judged_in_little_time(home: Path, entry: str) -> None:
    file = write_gateway(home, f"models: [&a {entry}{', *a' * 999}]\n")
    began_s = time.process_time()
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    assert time.process_time() - began_s < 1  # it was 2.5
    assert len(caught.value.problems) == PROBLEMS_MAX + 1
    assert any("the rest was not read" in each.message for each in caught.value.problems)
