"""One compute thread, as a replica has: sums are then made in one order and figures repeat exactly."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
