"""Data of others, where there is any."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def parvagpu_files() -> dict[str, Path]:
    """ParvaGPU's A100 profiles (MunQ-Lee/ParvaGPU_SC24, MIT) by model, in the folder that PENSTOCK_DATA
    names."""
    folder = os.environ.get("PENSTOCK_DATA")
    if not folder:
        pytest.skip("PENSTOCK_DATA names no folder with data (parvagpu/prof_data/*.csv)")
    files = sorted((Path(folder) / "parvagpu" / "prof_data").glob("*.csv"))
    if not files:
        pytest.skip(f"{folder} has no parvagpu/prof_data/*.csv")
    return {file.stem: file for file in files}
