"""`python -m tests.compiled.runs`: many small worlds, as JSON: what became of every request and batch."""

import hashlib
import json
import sys

from serving.compiled import is_compiled
from tests.simulation.test_any_seed import Watched, drawn

SEEDS = range(10_000, 10_200)


def main() -> None:
    ends = {}
    for seed in SEEDS:
        case = drawn(seed)
        run = Watched(case, seed)
        run.play(case.arrivals)
        ends[seed] = hashlib.sha256(repr((run.ended, run.ran_on)).encode()).hexdigest()
    json.dump({"compiled": is_compiled(), "ends": ends}, sys.stdout)


if __name__ == "__main__":
    main()
