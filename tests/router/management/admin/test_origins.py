"""Which requests may come from a web page of another site: those change nothing."""

import pytest

from router.management.admin.origins import stranger

OURS = frozenset({"ops.example.com"})


def why(host: str | None, **fields: str) -> str:
    said = ({} if host is None else {"host": host}) | {
        name.replace("_", "-"): each for name, each in fields.items()
    }
    return stranger([(name.encode(), each.encode("latin-1")) for name, each in said.items()], OURS)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8004", "localhost", "LOCALHOST:8004", "a.localhost", "[::1]:8004", "10.1.2.3:80",
     "ops.example.com:8004", "Ops.Example.com"],
)  # fmt: skip
def test_addresses_loopback_names_and_stated_names_are_ours(host: str) -> None:
    assert why(host) == ""
    assert why(host, origin=f"http://{host}") == ""
    assert why(host, sec_fetch_site="same-origin") == ""
    assert why(host, sec_fetch_site="none") == ""


@pytest.mark.parametrize(
    "host",
    [None, "", "rebound.example", "rebound.example:8004", "127.0.0.1.example", "localhost.example",
     "notlocalhost", "ops.example.com.evil.example", "[::1", ":8004", "é.example"],
)  # fmt: skip
def test_other_names_are_not_even_with_their_own_origin(host: str | None) -> None:
    assert "is no name of this gateway" in why(host)
    assert "is no name of this gateway" in why(host, origin=f"http://{host}")


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", "http://localhost", "http://localhost:3000", "http://127.0.0.1:8004",
     "http://localhost:8004.evil.example", "http://[", "http://a@localhost:8004"],
)  # fmt: skip
def test_pages_of_another_host_or_port_are_refused(origin: str) -> None:
    assert why("localhost:8004", origin=origin).startswith("a page of another origin")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "unheard-of"])
def test_what_the_browser_calls_another_site_is_refused(site: str) -> None:
    assert why("localhost:8004", sec_fetch_site=site).startswith("a page of another site")


def test_of_several_fields_each_has_to_be_right() -> None:
    fields = [(b"host", b"localhost"), (b"origin", b"http://evil.example"), (b"origin", b"http://localhost")]
    assert "evil.example" in stranger(fields, OURS)
    assert stranger(fields[:1] + fields[2:], OURS) == ""
