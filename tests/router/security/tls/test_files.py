"""The files of `server: {tls: ...}`: what is wrong with them, and until when they are valid."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from router.settings.door.certificates import (
    CERT,
    CLIENT_CA,
    DAY_S,
    KEY,
    CertificateError,
    Validity,
    inspect,
    written,
)
from router.settings.door.tls import TlsSettings
from tests.certificates import RSA, Authority


def fault(tls: TlsSettings, in_s: float = 0.0) -> tuple[str, str]:
    with pytest.raises(CertificateError) as caught:
        inspect(tls, time.time() + in_s)
    return caught.value.which, caught.value.message


def _with(tls: TlsSettings, name: str, path: Path) -> TlsSettings:
    paths = {"cert": tls.cert, "key": tls.key, "client_ca": tls.client_ca, name: path}
    cert, key = paths["cert"], paths["key"]
    assert cert is not None
    assert key is not None
    return TlsSettings(cert, key, paths["client_ca"])


def test_a_good_pair_says_until_when_it_is_valid(signed: Authority) -> None:
    validity = inspect(signed.tls(client_ca=signed.ca), time.time())
    assert validity.until_s - validity.from_s == 30 * DAY_S
    assert not validity.is_soon_over(validity.from_s)
    assert validity.is_soon_over(validity.until_s - 7 * DAY_S)


def test_a_certificate_of_one_day_is_renewed_in_its_last_hours() -> None:
    day = Validity(0.0, DAY_S)
    assert not day.is_soon_over(DAY_S / 2)
    assert day.is_soon_over(DAY_S - 3600)


def test_a_certificate_outside_its_time_is_named_with_its_date(signed: Authority) -> None:
    which, message = fault(signed.tls(), 40 * DAY_S)
    assert which == CERT
    assert written(inspect(signed.tls(), time.time()).until_s) in message
    which, message = fault(signed.tls(), -2 * DAY_S)
    assert (which, "valid only from" in message) == (CERT, True)


@pytest.mark.parametrize(("name", "which"), [("cert", CERT), ("key", KEY), ("client_ca", CLIENT_CA)])
def test_what_cannot_be_read_is_named(signed: Authority, tmp_path: Path, name: str, which: str) -> None:
    tls = signed.tls(client_ca=signed.ca)
    for path in (tmp_path / "none.pem", tmp_path):
        found = fault(_with(tls, name, path))
        assert found[0] == which
        assert str(path) in found[1]
    (tmp_path / "text.pem").write_text("no PEM")
    assert fault(_with(tls, name, tmp_path / "text.pem"))[0] == which


def test_a_key_of_another_certificate_or_with_a_password_is_refused(
    signed: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path)
    other.sign("other", kind=RSA)
    other.sign("third")
    for name in ("other", "third"):
        assert fault(replace(signed.tls(), key=tmp_path / f"{name}.key"))[0] == KEY
    which, message = fault(replace(other.tls("third"), key=other.encrypt_key("third")))
    assert which == KEY
    assert "password" in message


def test_a_damaged_certificate_is_refused(signed: Authority, tmp_path: Path) -> None:
    tls = signed.tls()
    lines = tls.cert.read_text().splitlines(keepends=True)
    broken = tmp_path / "broken.pem"
    broken.write_text("".join([*lines[:2], *lines[4:]]))
    shutil.copy(tls.key, tmp_path / "broken.key")
    assert fault(TlsSettings(broken, tmp_path / "broken.key"))[0] == CERT
