"""`python -m tests.compiled.runs`: many small worlds, as JSON: what became of every request and batch."""

import hashlib
import json
import sys

from serving.compiled import is_compiled
from tests.seeds import seeds
from tests.simulation.test_any_seed import Watched, drawn


def main() -> None:
    ends = {}
    for seed in seeds(500):
        case = drawn(seed)
        run = Watched(case, seed)
        run.play(case.arrivals)
        ends[seed] = hashlib.sha256(repr((run.ended, run.ran_on)).encode()).hexdigest()
    json.dump({"compiled": is_compiled(), "ends": ends}, sys.stdout)


if __name__ == "__main__":
    main()
