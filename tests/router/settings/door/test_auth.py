"""`auth:` and the keys file: what they become, the one sentence for each mistake, and when a start warns."""

from math import inf
from pathlib import Path

import pytest

from router.settings import SettingsError, load_settings
from router.settings.door.auth import AuthSettings, is_loopback
from router.settings.keys import KeySpec, check_keys, instant_s, read_keys
from router.verbs.check import check
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"
AUTH = f"{MODELS}auth: {{keys: keys.yaml}}\n"
ID, HASH = "0123456789ab", "ab" * 32
KEYS = f"""\
- name: shop
  id: "{ID}"
  hash: "{HASH}"
  roles: [infer, read]
  models: [digits]
  expires: 2027-01-31
"""


def specs(
    home: Path, text: str, tenants: tuple[str, ...] | None = ("default", "gold")
) -> tuple[KeySpec, ...]:
    file = home / "keys.yaml"
    file.write_text(text)
    return read_keys(file, tenants)


def faults(home: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        specs(home, text)
    return [str(problem).replace(f"{home}/", "") for problem in caught.value.problems]


def test_without_it_no_key_is_asked_for(home: Path) -> None:
    settings = load_settings(write_gateway(home, MODELS))
    assert settings.auth is None
    assert check_keys(settings) == ((), ())


def test_it_names_a_file_beside_the_settings(home: Path) -> None:
    assert load_settings(write_gateway(home, AUTH)).auth == AuthSettings(home / "keys.yaml")
    text = f"{MODELS}auth: {{keys: /etc/keys.yaml, metrics: true}}\n"
    assert load_settings(write_gateway(home, text)).auth == AuthSettings(Path("/etc/keys.yaml"), True)


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("auth:", "2:6: auth: no keys file; got nothing, expected keys: keys.yaml, say; `penstock key new` "
         "makes that file"),
        ("auth: {}", "2:1: auth.keys: this key is required"),
        ("auth: keys.yaml", "2:7: auth: not a mapping; got 'keys.yaml', expected keys and values "
         "(key: value)"),
        ("auth: {keys: a, metric: true}", "2:17: auth.metric: unknown key; got 'metric', expected keys or "
         "metrics (did you mean metrics?)"),
        ("auth: {keys: a, metrics: 1}", "2:26: auth.metrics: not true or false; got 1, expected true or "
         "false"),
    ],
)  # fmt: skip
def test_what_would_leave_a_door_open_by_mistake_is_refused(home: Path, said: str, fault: str) -> None:
    assert gateway_faults(home, f"{MODELS}{said}\n") == [f"penstock.yaml:{fault}"]


def test_entries_become_keys(home: Path) -> None:
    shop = KeySpec("shop", ID, HASH, "default", ("infer", "read"), ("digits",), None, instant_s("2027-01-31"))
    assert specs(home, KEYS) == (shop,)
    plain = f'- {{name: a, id: "{"0" * 12}", hash: "{HASH}", roles: [admin], tenant: gold}}\n'
    assert specs(home, KEYS + plain)[1] == KeySpec("a", "0" * 12, HASH, "gold", ("admin",))
    assert specs(home, plain)[0].expires_s == inf


@pytest.mark.parametrize("text", ["", "# none yet\n", "[]\n", "---\n"])
def test_a_file_may_have_no_keys(home: Path, text: str) -> None:
    assert specs(home, text) == ()


WRITES = "hexadecimal digits in quotes, as `penstock key new` writes"


@pytest.mark.parametrize(
    ("old", "new", "where", "sentence"),
    [
        ("name: shop", "name: a/b", "1:9: [0].name", "not a name; got 'a/b', expected letters, digits, '.', "
         "'_' and '-', first a letter or digit"),
        (f'"{ID}"', ID[:-1], "2:7: [0].id", f"not the id of a key; expected 12 {WRITES}"),
        (f'"{ID}"', "123456789012", "2:7: [0].id", f"not the id of a key; expected 12 {WRITES}"),
        (HASH, "pk_x", "3:9: [0].hash", f"not the hash of a key; expected 64 {WRITES}"),
        ("[infer, read]", "[infer, reed]", "4:10: [0].roles",
         "unknown role; got 'reed', expected infer, read or admin (did you mean read?)"),
        ("[infer, read]", "infer", "4:10: [0].roles",
         "not a list of names; got 'infer', expected a list with at least one name, such as [a, b]"),
        ("  roles: [infer, read]\n", "", "1:3: [0].roles", "this key is required"),
        ("[infer, read]", "[admin]", "5:11: [0].models",
         "a key of role admin changes all of the gateway; expected no models here, or infer or read as role"),
        ("2027-01-31", "2027-02-31", "6:12: [0].expires",
         "not an instant; got '2027-02-31', expected a date such as 2027-01-31, or 2027-01-31T18:00Z"),
        ("  models:", "  tenant: golf\n  models:", "5:11: [0].tenant",
         "a tenant that `tenants:` of penstock.yaml does not list; "
         "got 'golf', expected default or gold (did you mean gold?)"),
        (KEYS, KEYS * 2, "7:9: [1].name", "'shop' is that of entry [0] too; expected another name"),
        (KEYS, f"keys: {ID}\n", "1:1", "not a list of keys; expected entries that begin with '- name: '"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(
    home: Path, old: str, new: str, where: str, sentence: str
) -> None:
    assert old in KEYS
    assert faults(home, KEYS.replace(old, new, 1))[0] == f"keys.yaml:{where}: {sentence}"


def test_a_file_that_is_not_there_says_what_makes_it(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"keys\.yaml:1:1: no such file; `penstock key new` makes it"):
        check_keys(load_settings(write_gateway(home, AUTH)))


@pytest.mark.parametrize(
    ("text", "unix_s"),
    [
        ("1970-01-02", 86_400.0),
        ("1970-01-01T00:01", 60.0),
        ("1970-01-01T01:00+01:00", 0.0),
        ("1970-01-01T00:00:10Z", 10.0),
    ],
)
def test_an_instant_is_utc_where_it_names_no_zone(text: str, unix_s: float) -> None:
    assert instant_s(text) == unix_s


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("", False), ("10.0.0.7", False), ("gateway.internal", False)],
)  # fmt: skip
def test_only_this_machines_own_addresses_need_no_warning(home: Path, host: str, own: bool) -> None:
    assert is_loopback(host) is own
    if not host:
        return
    server = f"server: {{host: '{host}'}}\n"
    warnings = [str(each) for each in load_settings(write_gateway(home, MODELS + server)).warnings]
    assert len(warnings) == (not own)
    for each in warnings:
        assert (
            f"penstock.yaml:2:16: server.host: the gateway listens on '{host}' without keys: whoever" in each
        )
    assert not load_settings(write_gateway(home, AUTH + server)).warnings


def warned(home: Path, text: str) -> list[tuple[str, bool]]:
    """Where the file's warnings are, and whether each names a change of the models."""
    found = load_settings(write_gateway(home, MODELS + text)).warnings
    return [(each.where, "unload" in each.message) for each in found]


def test_a_warning_says_what_each_door_lets_callers_do(home: Path) -> None:
    """Of the admin door too; the inference ports change something only where they are to."""
    assert warned(home, "admin: {host: 0.0.0.0}\n") == [("admin.host", True)]
    assert warned(home, "admin: {host: '::1'}\n") == []
    assert warned(home, "admin: {socket: door}\n") == []
    assert warned(home, "admin: {host: 0.0.0.0}\nauth: {keys: keys.yaml}\n") == []
    everywhere = "server: {host: 0.0.0.0}\n"
    assert warned(home, everywhere) == [("server.host", False)]
    assert warned(home, f"{everywhere}admin: {{on_inference_ports: true}}\n") == [("server.host", True)]
    both = f"{everywhere}admin: {{host: 0.0.0.0}}\n"
    assert warned(home, both) == [("server.host", False), ("admin.host", True)]


def test_check_reads_the_keys_and_says_what_they_are_for(home: Path) -> None:
    path = write_gateway(home, AUTH)
    (home / "keys.yaml").write_text(KEYS.replace("[digits]", "[digits, digit]\n  tiers: [gold]"))
    found = check(path, lambda _: lambda *_: None)
    assert found.sound
    assert [str(each).replace(f"{home}/", "") for each in found.warnings] == [
        "keys.yaml:5:20: [0].models[1]: not one of the models that are served; got 'digit', expected digits "
        "(did you mean digits?)",
        "keys.yaml:6:11: [0].tiers[0]: not one of the tiers that are served; got 'gold', expected nothing",
    ]
    assert found.plan[-1] == f"keys: 1 key, in {home}/keys.yaml; health probes and metrics need none"
    (home / "keys.yaml").write_text("- name: 5\n")
    assert not check(path, lambda _: lambda *_: None).sound
    (home / "keys.yaml").write_text("")
    (warning,) = check(path, lambda _: lambda *_: None).warnings
    assert "there is no key: all but health probes is refused" in warning.message
