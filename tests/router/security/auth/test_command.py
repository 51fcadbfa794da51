"""`penstock key`: what it prints, what it writes, and that the file keeps all else."""

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli import app
from router.security.auth.keys import KeyFile
from router.settings.keys import KeySpec, instant_s, read_keys
from tests.router.settings.samples import write_deployment

SETTINGS = "auth: {keys: keys.yaml}\ntenants: [{name: gold}]\nmodels: [{path: models/digits}]\n"


class Desk:
    """A deployment that asks for keys, and the command."""

    def __init__(self, home: Path) -> None:
        self.config = write_deployment(home, SETTINGS)
        self.file = home / "keys.yaml"

    def run(self, *words: str) -> tuple[int, str, str]:
        ended = CliRunner().invoke(app, ["key", *words, "--config", str(self.config)])
        return ended.exit_code, ended.stdout, ended.stderr

    def new(self, *words: str) -> str:
        code, out, err = self.run("new", *words)
        assert code == 0, err
        return out.strip()

    def specs(self) -> tuple[KeySpec, ...]:
        return read_keys(self.file, None)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_new_key_is_printed_once_and_the_file_has_its_hash(desk: Desk) -> None:
    words = "--name app1 --tenant gold --roles infer,read --models digits --tiers cheap --expires 2027-01-31"
    key = desk.new(*words.split())
    (spec,) = desk.specs()
    assert (spec.name, spec.tenant, spec.roles) == ("app1", "gold", ("infer", "read"))
    assert (spec.models, spec.tiers, spec.expires_s) == (("digits",), ("cheap",), instant_s("2027-01-31"))
    known = KeyFile([spec]).find(key.encode())
    assert known is not None
    assert known.identity.name == "app1"
    assert key.rpartition("_")[2] not in desk.file.read_text()
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o600


def test_the_least_that_is_said_gives_the_least(desk: Desk) -> None:
    desk.new("--name", "a")
    (spec,) = desk.specs()
    assert (spec.tenant, spec.roles, spec.models, spec.tiers) == ("default", ("infer",), None, None)


def test_entries_are_added_and_taken_out_and_all_else_stays(desk: Desk) -> None:
    desk.new("--name", "a")
    text = "# who calls us\n" + desk.file.read_text().replace('name: "a"', "name: a # the shop") + "# the end"
    desk.file.write_text(text)
    desk.file.chmod(0o640)
    desk.new("--name", "b")
    added = desk.file.read_text()
    assert added.startswith(f"{text}\n- name: ")
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o640
    assert desk.run("revoke", "a")[0] == 0
    assert [each.name for each in desk.specs()] == ["b"]
    assert desk.file.read_text().startswith("# who calls us\n# the end\n- name: ")
    assert desk.run("revoke", "b")[0] == 0
    assert desk.file.read_text() == "# who calls us\n# the end\n"
    assert desk.specs() == ()
    desk.new("--name", "c")
    assert [each.name for each in desk.specs()] == ["c"]
    assert os.listdir(desk.file.parent).count("keys.yaml") == len([*desk.file.parent.glob("*keys.yaml*")])


def test_an_entry_for_a_certificate_is_added_listed_and_taken_out(desk: Desk) -> None:
    code, out, _ = desk.run("new", "--name", "app", "--certificate", "URI:spiffe://example.com/app")
    assert (code, out) == (0, "")
    (spec,) = desk.specs()
    assert (spec.name, spec.id, spec.hash, spec.certificate) == (
        "app",
        "",
        "",
        "URI:spiffe://example.com/app",
    )
    assert "URI:spiffe://example.com/app" in desk.run("list")[1]
    assert desk.run("revoke", "app")[0] == 0
    assert desk.specs() == ()


def test_keys_are_listed_without_what_makes_them(desk: Desk) -> None:
    secrets = [
        desk.new("--name", "a"),
        desk.new("--name", "boss", "--roles", "admin", "--expires", "2027-01-31"),
    ]
    code, out, _ = desk.run("list")
    assert code == 0
    head, *rows = [line.split() for line in out.splitlines()]
    assert head == ["NAME", "ID", "TENANT", "ROLES", "MODELS", "TIERS", "EXPIRES"]
    ids = [each.id for each in desk.specs()]
    assert rows == [
        ["a", ids[0], "default", "infer", "all", "all", "never"],
        ["boss", ids[1], "default", "admin", "all", "all", "2027-01-31T00:00:00+00:00"],
    ]
    assert not [each for each in secrets if each.rpartition("_")[2] in out]
    assert not [each for each in desk.specs() if each.hash in out]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("new --name a", "has a key a; expected another name, or `penstock key revoke a`"),
        (
            "new --name b --roles infer,reed",
            "roles: unknown role; got 'reed', expected infer, read or admin",
        ),
        ("new --name b --tenant golf", "got 'golf', expected gold or default (did you mean gold?)"),
        ("new --name b/c", "not a name; got 'b/c', expected letters, digits"),
        ("new --name b --expires soon", "not an instant; got 'soon', expected a date such as 2027-01-31"),
        ("new --name b --roles admin --models digits", "expected no models here, or infer or read as role"),
        ("new --name b --certificate app1", "no name of a certificate; got 'app1', expected DNS:"),
        ("revoke b", "no key of that name; got 'b', expected a"),
    ],
)
def test_what_cannot_be_is_said_and_the_file_stays(desk: Desk, words: str, sentence: str) -> None:
    desk.new("--name", "a")
    before = desk.file.read_text()
    code, out, err = desk.run(*words.split())
    assert (code, out, sentence in err) == (1, "", True), err
    assert desk.file.read_text() == before


@pytest.mark.parametrize("text", ["[]\n", "  - {name: x, id: ID, hash: HASH, roles: [infer]}\n"])
def test_a_file_of_another_form_is_left_alone(desk: Desk, text: str) -> None:
    text = text.replace("ID", f'"{"0" * 12}"').replace("HASH", f'"{"0" * 64}"')
    desk.file.write_text(text)
    code, _, err = desk.run("new", "--name", "a")
    assert code == 1
    assert err
    assert desk.file.read_text() == text


def test_a_file_without_settings_may_be_named(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "others.yaml"
    desk.new("--name", "a", "--tenant", "anybody", "--keys", str(other))
    assert read_keys(other, None)[0].tenant == "anybody"
    desk.config.write_text("models: [{path: models/digits}]\n")
    code, _, err = desk.run("list")
    assert code == 1
    assert "has no `auth:`; expected `auth: {keys: keys.yaml}` there, or --keys FILE" in err


def test_a_link_to_the_file_stays_one(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    desk.file.symlink_to("kept/keys.yaml")
    (tmp_path / "kept" / "keys.yaml").write_text("")
    desk.new("--name", "a")
    assert desk.file.is_symlink()
    assert [each.name for each in desk.specs()] == ["a"]
