"""docs/clients.md: its examples, each in its language, against a gateway that serves the tutorial's model."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.verbs.target.scaffold import scaffold
from tests.acceptance.gateway import PATIENT_MS, ROOT, START_S, GatewayProcess, serving_one

PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(sh|python|js)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = {"sh": ["bash"], "python": [sys.executable], "js": ["node", "--input-type=module", "-"]}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("clients")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        scaffold("flowers", "sklearn")
    folder = home / "flowers"
    subprocess.run([sys.executable, "train.py"], cwd=folder, check=True)
    with serving_one(folder, "flowers.joblib") as running:
        yield running


@pytest.mark.parametrize(
    ("language", "code"), BLOCKS, ids=[f"{at} {each[0]}" for at, each in enumerate(BLOCKS)]
)
def test_an_example_gets_its_answer(
    gateway: GatewayProcess, language: str, code: str, tmp_path: Path
) -> None:
    if shutil.which(PROGRAMS[language][0]) is None:
        pytest.skip(f"{PROGRAMS[language][0]} is not installed")
    patient = code.replace("200", str(PATIENT_MS)).replace("client_timeout=0.2", "client_timeout=20")
    text = patient.replace("127.0.0.1:8000", gateway.rest).replace("127.0.0.1:8001", gateway.grpc)
    text = text.replace("timeout(250)", f"timeout({PATIENT_MS})")
    ended = subprocess.run(
        PROGRAMS[language],
        input=text,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "setosa" in ended.stdout, ended.stdout + ended.stderr
