"""A model whose batches a test holds up until something has happened, however long that takes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.profile.curve import Point, Profile
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share, SliceSpec
from tests.acceptance.gateway import ROOT

LIMITS = "limits: {stall_s: 100}"
"""For penstock.yaml: a batch that is held up is no reason to replace its worker."""
WAIT = """\
        while Path(__file__).with_name("hold").exists():
            time.sleep(0.005)
"""


ECHO = '{"OUTPUT0": inputs["INPUT0"], "OUTPUT1": inputs["INPUT1"]}'
SIMPLE = f"""\
import time
from pathlib import Path

import numpy as np


class Model:
    def predict(self, inputs, parameters):
        return {ECHO}

    def sample(self, rows, size):
        return {{name: np.zeros((rows, 16), np.int32) for name in ("INPUT0", "INPUT1")}}


def load(artifact, options):
    if Path(__file__).with_name("broken").exists():
        raise RuntimeError("its weights are not there")
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.02)
    return Model()
"""
"""Its loads fail while a file `broken` is beside it, and last while it is `held`."""


def simple_to_hold(folder: Path, predict: str = ECHO) -> Path:
    """A model by the folder's name, of the form of `simple`. `predict`: what it returns."""
    shutil.copytree(ROOT / "models" / "simple", folder)
    text = (folder / "model.yaml").read_text()
    (folder / "model.yaml").write_text(text.replace("name: simple", f"name: {folder.name}"))
    (folder / "model.py").write_text(SIMPLE.replace(ECHO, predict))
    return folder


def write_core_profiles(folder: Path, *models: str) -> None:
    """As measured on one core: a row takes 4 ms, and each batch 1 ms more."""
    points = tuple(Point(0, rows, 1000.0 + 4000 * rows, 1100.0 + 4400 * rows, 30) for rows in (1, 2, 4, 8))
    kind, share = device_kind(SliceSpec("", ())), Share("cores", 1.0)
    for model in models:
        ProfileStore(folder).write(Profile(model, "default", kind, points, share=share))


def identity_to_hold(folder: Path) -> Path:
    """A copy of `identity`, whose batches are held up while it is `held`."""
    shutil.copytree(ROOT / "models" / "identity", folder)
    insert_wait(folder, '        return {"OUTPUT0"', WAIT)
    return folder


def insert_wait(folder: Path, before: str, wait: str) -> None:
    """Put lines into a model's code; those of `WAIT` need `time` and `Path` there."""
    path = folder / "model.py"
    code = path.read_text()
    assert code.count(before) == 1
    path.write_text(code.replace(before, wait + before))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """No batch of the model ends meanwhile."""
    hold = folder / "hold"
    hold.touch()
    try:
        yield
    finally:
        hold.unlink(missing_ok=True)
