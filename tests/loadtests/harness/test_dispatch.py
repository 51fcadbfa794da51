"""What a run keeps of the answers, for who reads them afterwards."""

import numpy as np
import pytest

from loadtests.harness.dispatch import Dispatcher, Load
from loadtests.harness.dispatch import Server as Address
from tests.loadtests.server import BODIES, PATIENCE_S, request, serving

pytestmark = pytest.mark.live

KINDS = ("ok", "pieces", "last", "failing", "surplus", "close", "garbage")


async def test_complete_answers_are_kept_as_they_came_by_the_number_of_their_arrival() -> None:
    loads = [Load(np.arange(2) / 100, [request(kind)]) for kind in KINDS]
    kept: dict[int, bytes] = {}
    async with serving() as server:
        address = Address("127.0.0.1", server.port, patience_s=PATIENCE_S)
        record, _ = await Dispatcher(loads, address, kept).run()
    complete = {number for number, load in enumerate(record.loads) if KINDS[load] not in ("close", "garbage")}
    assert kept.keys() == complete
    for number in complete:
        kind = KINDS[record.loads[number]]
        assert kept[number] == BODIES["ok" if kind == "surplus" else kind]
