"""A model whose batches a test holds up until something has happened, however long that takes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.gateway import ROOT

LIMITS = "limits: {stall_s: 100}"
"""For penstock.yaml: a batch that is held up is no reason to replace its worker."""
WAIT = """\
        while Path(__file__).with_name("hold").exists():
            time.sleep(0.005)
"""


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
