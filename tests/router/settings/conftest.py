from pathlib import Path

import pytest

from tests.router.settings.samples import write_deployment


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a valid `penstock.yaml` and its two model folders."""
    write_deployment(tmp_path)
    return tmp_path
