"""One compute thread, as a replica has: sums are then made in one order and figures repeat exactly."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    import torch  # here: it takes seconds, also in runs that collect this folder but play none of its tests

    torch.set_num_threads(1)
