"""What the tests of TLS share: certificates, made once."""

import pytest

from tests.certificates import Authority, authority


@pytest.fixture(scope="session")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority with the certificates `server` and `app1`, which no test changes."""
    return authority(tmp_path_factory.mktemp("certificates"))
