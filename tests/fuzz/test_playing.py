"""Promises of the fuzzer: what is a fault is found, written down and worded alike; inputs repeat."""

import random
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from loadtests.hostile.fuzz.mutating import BYTES_MAX, CHANGES, Mutator
from loadtests.hostile.fuzz.playing import Fault, Target, fault_of, inputs_of, play, seeds_of
from tests.architecture.source_rules import ROOT

FOREVER = float("inf")


class Clock:
    """Processor time that passes by so much whenever it is read."""

    def __init__(self, *steps_ms: float) -> None:
        self._steps_ms = list(steps_ms)
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += int(self._steps_ms.pop(0) * 1e6) if self._steps_ms else 0
        return self.now_ns


def raising(error: Exception) -> Callable[[bytes], bool]:
    def played(data: bytes) -> bool:
        raise error

    return played


def test_an_input_is_accepted_refused_or_a_fault() -> None:
    assert fault_of(Target("json", lambda data: data == b"good"), b"good")[:2] == ("", True)
    assert fault_of(Target("json", lambda data: data == b"good"), b"bad")[:2] == ("", False)
    assert fault_of(Target("json", raising(Fault("two answers"))), b"")[0] == "two answers"
    fault = fault_of(Target("json", raising(IndexError("5"))), b"")[0]
    assert fault.startswith("IndexError at tests/fuzz/test_playing.py:")
    assert fault == fault_of(Target("json", raising(IndexError("6"))), b"other")[0]


def test_a_stall_is_believed_once_it_comes_twice() -> None:
    once, twice = Clock(0, 80, 0, 1), Clock(0, 80, 0, 80)
    assert fault_of(Target("json", bool, spent_ns=once), b"x")[0] == ""
    assert fault_of(Target("json", bool, spent_ns=twice), b"x")[0] == "one input took more than 50 ms"
    long = Target("json", bool, spent_ns=Clock(0, 80, 0, 80), stall_ms_per_kb=40)
    assert fault_of(long, bytes(1024))[0] == ""


def test_an_input_that_takes_much_memory_is_a_fault() -> None:
    grown: list[bytes] = []

    def grow(data: bytes) -> bool:
        grown.append(b"x" * 300_000_000)
        return True

    assert "64 MB of memory" in fault_of(Target("json", grow), b"")[0]
    assert grown


@pytest.mark.slow
def test_a_fault_is_written_down_and_its_replay_finds_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = play(Target("json", raising(IndexError())), 50, 1, FOREVER, tmp_path)
    assert found.inputs == 50
    assert [*found.faults.values()] == [50]
    assert len(found.files) == 2, "of a fault that comes often the first inputs are enough"
    said = capsys.readouterr().out
    for place, data in zip(found.files, seeds_of("json").values(), strict=False):
        assert place.read_bytes() == data
        assert f"python -m loadtests.hostile.fuzz --replay {place}" in said


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), [("good-numbers", "accepted, "), ("bad-shape", "refused, ")])
def test_the_command_plays_one_file(name: str, said: str) -> None:
    command = [
        sys.executable,
        "-m",
        "loadtests.hostile.fuzz",
        "--replay",
        f"loadtests/hostile/fuzz/corpus/json/{name}",
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith(said)


@pytest.mark.slow
def test_the_command_plays_inputs_and_says_how_many() -> None:
    command = [sys.executable, "-m", "loadtests.hostile.fuzz", "--inputs", "300", "--targets", "json,redis"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("300 inputs, 0 kinds of faults\n")


def test_the_same_seed_makes_the_same_inputs_and_another_makes_others() -> None:
    target = Target("redis", bool, (b"word",), mend=lambda data: data[::-1])
    one, same, other = (list(islice(inputs_of(target, seed), 300)) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert one[: len(seeds_of("redis"))] == [*seeds_of("redis").values()]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_change_takes_any_bytes_and_changes_some(change: Callable[[Mutator, bytes], bytes]) -> None:
    mutator = Mutator([b"", b'{"a": 12}', bytes(range(256))], [b"word", b"12"], random.Random(3))
    made = [change(mutator, data) for data in mutator.seeds for _ in range(50)]
    assert any(each not in mutator.seeds for each in made)


def test_inputs_have_a_bound() -> None:
    mutator = Mutator([bytes(BYTES_MAX)], [bytes(100)], random.Random(1))
    assert max(len(mutator.next()) for _ in range(200)) == BYTES_MAX
