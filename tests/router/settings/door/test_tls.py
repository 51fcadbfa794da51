"""`server: {tls: ...}`: what it becomes, and the sentence with its place for each mistake."""

import shutil
from pathlib import Path

import pytest

from router.settings import SettingsError, load_settings
from router.settings.door.certificates import DAY_S, Validity
from router.settings.door.tls import TlsSettings
from router.settings.tls_check import check_tls
from router.verbs.check import check
from tests.certificates import Authority, authority
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"
TLS = "server: {tls: {cert: tls/server.pem, key: tls/server.key}}\n"
ASKS = TLS.replace("}}", ", client_ca: tls/ca.pem}}")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def folder(signed: Authority, home: Path) -> Path:
    """A folder `tls` beside the settings."""
    return Path(shutil.copytree(signed.folder, home / "tls"))


def test_paths_are_beside_the_settings_and_every_port_is_https(home: Path) -> None:
    settings = load_settings(write_gateway(home, MODELS + TLS))
    assert settings.server.tls == TlsSettings(home / "tls" / "server.pem", home / "tls" / "server.key")
    assert settings.server.address == "https://127.0.0.1:8000"
    assert settings.admin.address == "https://127.0.0.1:8004"
    text = f"{MODELS}{TLS}admin: {{socket: door.sock}}\n"
    assert load_settings(write_gateway(home, text)).admin.address == f"unix:{home}/door.sock"


def test_a_certificate_of_clients_is_required_unless_it_is_only_asked_for(home: Path) -> None:
    def requires(text: str) -> bool:
        tls = load_settings(write_gateway(home, MODELS + text)).server.tls
        assert tls is not None
        return tls.requires

    assert requires(ASKS)
    assert not requires(ASKS.replace("}}", ", client_cert: ask}}"))
    assert not requires(TLS)


def test_where_each_client_needs_a_certificate_no_key_is_missed(home: Path) -> None:
    def warned(tls: str) -> bool:
        text = MODELS + tls.replace("server: {", "server: {host: 0.0.0.0, ")
        return any("without keys" in str(each) for each in load_settings(write_gateway(home, text)).warnings)

    assert [warned(TLS), warned(ASKS)] == [True, False]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("key: tls/server.key", "", "2:10: server.tls.key: this key is required"),
        ("key: tls/server.key", "key: tls/server.key, client_cert: ask",
         "2:72: server.tls.client_cert: nothing says which certificates of clients count; "
         "expected client_ca, the authorities that sign clients' certificates"),
        ("key: tls", "kay: x, key: tls", "2:38: server.tls.kay: unknown key; got 'kay', "
         "expected cert, key, client_ca or client_cert (did you mean key?)"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(home: Path, old: str, new: str, fault: str) -> None:
    assert gateway_faults(home, MODELS + TLS.replace(old, new)) == [f"penstock.yaml:{fault}"]


def test_check_and_the_start_name_the_file_at_fault(home: Path, folder: Path) -> None:
    path = write_gateway(home, MODELS + ASKS)
    assert check_tls(load_settings(path)) == ()
    assert not check(path, lambda _: lambda *_: None).errors
    (folder / "server.key").unlink()
    with pytest.raises(SettingsError) as caught:
        check_tls(load_settings(path))
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{home}/penstock.yaml:2:43: server.tls.key: {folder}/server.key: no such")
    assert check(path, lambda _: lambda *_: None).errors == (problem,)


def test_a_certificate_that_ends_soon_and_one_that_nothing_looks_at_are_warnings(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(write_gateway(home, MODELS + ASKS.replace("}}", ", client_cert: ask}}")))
    (warning,) = check_tls(settings)
    assert "client_ca" in warning.where
    monkeypatch.setattr("router.settings.tls_check.inspect", lambda *_: Validity(0, DAY_S))
    assert [each.where.rpartition(".")[2] for each in check_tls(settings)] == ["cert", "client_ca"]
