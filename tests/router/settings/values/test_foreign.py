"""Operators of other servers find our word for theirs."""

from pathlib import Path

import pytest

from router.settings import SettingsError, load_settings
from router.settings.values.foreign import FOREIGN
from tests.router.settings.model_file.test_models import SMALLEST
from tests.router.settings.samples import GATEWAY, model_faults, write_gateway


@pytest.mark.parametrize("key", sorted(FOREIGN))
def test_a_key_of_another_server_is_translated(tmp_path: Path, key: str) -> None:
    (fault,) = model_faults(tmp_path / "m", SMALLEST + f"{key}: 3\n")
    assert fault == f"model.yaml:5:1: {key}: unknown key; got '{key}': {FOREIGN[key]}"


def test_so_it_is_in_penstock_yaml(home: Path) -> None:
    write_gateway(home, GATEWAY + "instance_group: [{count: 2}]\n")
    with pytest.raises(SettingsError, match="it is a key of Triton; here it is `slices:` in penstock"):
        load_settings(home / "penstock.yaml")


def test_other_unknown_keys_get_the_nearest_of_ours(tmp_path: Path) -> None:
    (fault,) = model_faults(tmp_path / "m", SMALLEST + "batch_mx: 3\n")
    assert "did you mean batch_max?" in fault
