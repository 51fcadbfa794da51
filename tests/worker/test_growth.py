"""By what loads make a process grow: imports apart, and never too little where loads run side by side."""

import pytest

from serving.worker.process.memory import Growth


class Process:
    """Holds what is said of it."""

    def __init__(self) -> None:
        self.held_bytes = 100

    def held(self) -> int:
        return self.held_bytes


def test_a_load_alone_counts_its_imports_and_its_model() -> None:
    process = Process()
    growth = Growth(process.held)
    for imports, model in ((30, 5), (0, 7)):
        process.held_bytes += 11  # between loads, by others
        with growth.load() as load:
            process.held_bytes += imports
            assert load.imported() == imports
            process.held_bytes += model
            assert load.loaded() == model
        process.held_bytes -= 20


def test_loads_beside_each_other_count_too_much_rather_than_too_little() -> None:
    process = Process()
    growth = Growth(process.held)
    with growth.load() as slow:
        slow.imported()
        process.held_bytes += 3
        with growth.load() as quick:
            quick.imported()
            process.held_bytes += 5
            assert quick.loaded() == 5
        process.held_bytes += 1
        assert slow.loaded() == 9


def test_what_comes_while_another_load_imports_is_no_models() -> None:
    process = Process()
    growth = Growth(process.held)
    with growth.load() as slow:
        slow.imported()
        process.held_bytes += 3
        with growth.load() as other:
            process.held_bytes += 200
            assert slow.loaded() == 3
            assert other.imported() == 200
            process.held_bytes += 4
            assert other.loaded() == 4


def test_a_load_that_fails_in_its_imports_imports_no_more() -> None:
    process = Process()
    growth = Growth(process.held)
    with pytest.raises(KeyError), growth.load():
        raise KeyError
    with growth.load() as load:
        load.imported()
        process.held_bytes += 2
        assert load.loaded() == 2
