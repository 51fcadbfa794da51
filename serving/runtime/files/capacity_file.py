"""Tables of what replicas carry, kept beside what was measured here: the next start need not simulate them.

A table stands for whoever asks the same of the same code, with a profile by which one replica carries about
as much as by that which it was made from: idle slices refine profiles all the time. A file that cannot be
read counts for nothing.
"""

import json
from contextlib import suppress
from hashlib import sha256
from itertools import chain, pairwise
from math import inf
from pathlib import Path
from typing import Any, Final

from serving.compiled import folder
from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.carried.guess import guess
from serving.profile.files.shared_files import alone, read_regular, replace_file

NAME: Final = "capacities.json"
KEPT: Final = 500  # tables, of some 300 bytes; the oldest go first
ALIKE: Final = 0.1
"""By how much what one replica carries may differ, as guessed from the profiles; control asks anew from there
on too (`serving.control.scaling.capacities.RENEWED`)."""


class CapacityFile:
    """All that this machine has simulated. Its methods read and write a file: not in an event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, asked: FindCapacity) -> Capacity | None:
        """Return the table that was made for this, None where there is none."""
        kept = self._tables().get(_key(asked))
        one = guess(asked.profile, asked.model).rate(1)
        try:
            if kept is None or not abs(kept["one"] - one) <= ALIKE * one:
                return None
            rates = tuple(tuple(map(float, each)) for each in kept["rates"])
            found = Capacity(tuple(map(int, kept["counts"])), tuple(map(float, kept["cvs"])), rates)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return found if _is_table(found) else None

    def write(self, asked: FindCapacity, capacity: Capacity) -> None:
        """Keep a table. OSError where it cannot be."""
        made = {
            "of": f"{asked.model.name} {asked.variant} on {asked.kind}",  # for people
            "one": guess(asked.profile, asked.model).rate(1),
            "counts": capacity.counts,
            "cvs": capacity.cvs,
            "rates": capacity.rates,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with alone(self._path.parent):  # other gateways may keep theirs here too
            tables = self._tables()
            tables.pop(_key(asked), None)
            tables[_key(asked)] = made
            latest = dict([*tables.items()][-KEPT:])
            replace_file(self._path, json.dumps(latest, indent=1))

    def _tables(self) -> dict[str, dict[str, Any]]:  # Any: JSON that anybody may have written
        with suppress(OSError, ValueError, RecursionError):  # endless brackets exhaust the parser
            found = json.loads(read_regular(self._path))
            if isinstance(found, dict):
                return {key: each for key, each in found.items() if isinstance(each, dict)}
        return {}


def _is_table(found: Capacity) -> bool:
    """Return whether rates can be read from it: a row for each CV, a rate above 0 for each count, both
    ascending."""
    counts, cvs, rates = found.counts, found.cvs, found.rates
    if not counts or not cvs or len(rates) != len(cvs) or any(len(each) != len(counts) for each in rates):
        return False
    ascending = all(low < high for each in (counts, cvs) for low, high in pairwise(each))
    numbers = (*counts, *cvs, *chain.from_iterable(rates))
    return ascending and all(0 < each < inf for each in numbers)


def _key(asked: FindCapacity) -> str:
    """Return a digest of what a table depends on, except the profile. The digest covers all of the code
    too."""
    model = asked.model
    accuracies = [model.accuracy(variant) for variant in model.variants]
    parts = (
        model.name, asked.variant, asked.kind, asked.most, model.slo_us, model.needs, model.batching,
        model.spec.batch_max, model.spec.size_hint, accuracies, folder().name,
    )  # fmt: skip
    return sha256(repr(parts).encode()).hexdigest()[:32]
