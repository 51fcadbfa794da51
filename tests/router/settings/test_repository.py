"""`repository:`: where models lie that may be loaded by name, and what is wrong with it, with its place."""

from pathlib import Path

import pytest

from router.settings import SettingsError, load_model, load_settings
from router.settings.gateway import read_served, read_server
from router.settings.repository import RepositorySettings, find_folders, serve_alone
from serving.values.slice_specs import SliceSpec
from tests.router.settings.samples import DIGITS, GATEWAY, gateway_faults, write_gateway, write_model

MODELS = "models: [{path: models/digits}]\n"


def repository(home: Path, text: str) -> RepositorySettings:
    return load_settings(write_gateway(home, MODELS + text)).repository


@pytest.mark.parametrize("text", ["", "repository:\n", "repository: {}"])
def test_without_it_only_models_that_are_named_can_be_loaded(home: Path, text: str) -> None:
    assert repository(home, text) == RepositorySettings((), True)


def test_its_folders_are_beside_the_file_or_anywhere(home: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    found = repository(home, f"repository: {{folders: [models, {tmp_path}/more/], control: false}}")
    assert found == RepositorySettings((home / "models", tmp_path / "more"), False)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{folders: [modles]}", "2:24: repository.folders[0]: no such folder; got 'HOME/modles', expected a "
         "folder that holds model folders (did you mean HOME/models?)"),
        ("{folders: [penstock.yaml]}", "2:24: repository.folders[0]: not a folder; got 'HOME/penstock.yaml', "
         "expected a folder that holds model folders"),
        ("{folders: models}", "2:23: repository.folders: not a list of names; got 'models', expected a list "
         "with at least one name, such as [a, b]"),
        ("{control: maybe}", "2:23: repository.control: not true or false; got 'maybe', "
         "expected true or false"),
        ("{folder: [models]}", "2:14: repository.folder: unknown key; got 'folder', expected folders "
         "or control (did you mean folders?)"),
        ("true", "2:13: repository: not a mapping; got true, expected keys and values (key: value)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(home: Path, text: str, fault: str) -> None:
    (found,) = gateway_faults(home, f"{MODELS}repository: {text}\n")
    assert found == f"penstock.yaml:{fault}".replace("HOME/", "")


def test_folders_go_by_their_models_names_and_the_first_of_one_name_counts(home: Path) -> None:
    other = home / "other"
    (other / "mine").mkdir(parents=True)
    (other / "mine" / "model.yaml").write_text("name: digits\n")
    (other / "broken").mkdir()
    (other / "broken" / "model.yaml").write_text("name: [\n")
    (other / "empty").mkdir()
    (other / "file").touch()
    folders = (other, home / "models", home / "gone")
    assert list(find_folders(folders)) == [
        ("broken", other / "broken"),
        ("digits", other / "mine"),
        ("minilm", home / "models" / "minilm"),
    ]


def test_a_model_alone_has_its_own_objective_all_variants_and_all_slices(home: Path) -> None:
    spec = load_model(home / "models" / "digits")
    served = serve_alone(spec, [SliceSpec("x", (0,)), SliceSpec("y", (1,))])
    assert (served.slo_us, served.variants, served.slices) == (25_000, ("linear", "cnn"), ("x", "y"))
    assert not served.cache, "nobody has asked for it"
    assert serve_alone(spec, [SliceSpec("x", (0,))], cache=True).cache  # linear is deterministic
    assert not served.default_variant


def test_an_entry_is_read_again_as_the_file_said_with_the_model_folder_of_now(home: Path) -> None:
    settings = load_settings(write_gateway(home, GATEWAY))
    assert settings.document is not None
    assert read_served(settings.document, 0) == [settings.models[0]]
    file = home / "models" / "digits" / "model.yaml"
    file.write_text(file.read_text().replace("batch_max: 64", "batch_max: 48"))
    write_gateway(home, "nothing: [")  # what the file says now does not matter
    (again,) = read_served(settings.document, 0)
    assert (again.spec.batch_max, again.slo_us, again.slices) == (48, 40_000, ("cpu-a",))
    file.write_text(file.read_text().replace("batch_max: 48", "batch_max: 16"))
    with pytest.raises(SettingsError, match=r"penstock.yaml:12:38: models\[0\].batching.size: too large"):
        read_served(settings.document, 0)
    file.write_text(file.read_text().replace("batch_max: 16", "batch_max: x"))
    with pytest.raises(SettingsError, match=r"model.yaml:5:12: batch_max: not a whole number"):
        read_served(settings.document, 0)


def test_the_server_is_what_the_file_said(home: Path) -> None:
    settings = load_settings(write_gateway(home, GATEWAY))
    assert settings.document is not None
    assert read_server(settings.document) == settings.server


def test_a_model_alone_has_to_say_its_own_slo(home: Path) -> None:
    folder = write_model(home / "models" / "digits", DIGITS.replace("slo_ms: 25\n", ""))
    with pytest.raises(SettingsError, match="slo_ms: how soon is digits to answer"):
        serve_alone(load_model(folder), [SliceSpec("x", (0,))])
