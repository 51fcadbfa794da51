"""Addresses of gateways, as operators write them."""

import pytest

from router.commandline.reading import address_of


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("gateway.example.com", "http://gateway.example.com"),
        ("10.0.0.1:8000/", "http://10.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("https://gateway:8443/", "https://gateway:8443"),
        ("unix:/run/penstock.sock", "unix:/run/penstock.sock"),
    ],
)
def test_a_bare_host_is_an_address(written: str, meant: str) -> None:
    assert address_of(written) == meant


@pytest.mark.parametrize("written", ["", "ftp://gateway", "unix:", "a gateway"])
def test_what_is_no_address_is_named_with_one_that_is(written: str) -> None:
    with pytest.raises(ValueError, match=r"is no gateway address; expected something like http://"):
        address_of(written)
