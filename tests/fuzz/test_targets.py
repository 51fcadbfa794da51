"""Promises of what reads bytes of others: seeds are taken as their names say, their inputs do no harm."""

from dataclasses import replace
from itertools import islice

import pytest

from loadtests.hostile.fuzz.playing import CORPUS, fault_of, inputs_of, seeds_of
from loadtests.hostile.fuzz.targets import IN_PROCESS, SERVER

INPUTS = {"settings": 20, "model": 60, "capacities": 60, "http": 600, "worker": 600}
OTHERS = 1000
GENEROUS = 20.0  # times the bound of a run: here others compute beside it


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_PROCESS)
def test_seeds_are_taken_as_they_say_and_inputs_made_of_them_do_no_harm(name: str) -> None:
    with IN_PROCESS[name][1]() as opened:
        target = replace(opened, stall_ms=opened.stall_ms * GENEROUS)
        for seed, data in seeds_of(name).items():
            fault, accepted, _ = fault_of(target, data)
            assert (seed, fault) == (seed, "")
            assert accepted == seed.startswith("good-") or seed.startswith("once-"), seed
        for data in islice(inputs_of(target, 1), INPUTS.get(name, OTHERS)):
            assert fault_of(target, data)[0] == "", f"{len(data)} bytes: {data[:500]!r}"


def test_there_is_a_small_corpus_of_each_target_and_of_no_other() -> None:
    files = [each for each in CORPUS.glob("*/*") if each.is_file()]
    assert {each.parent.name for each in files} == IN_PROCESS.keys() | SERVER.keys()
    assert all(each.name.startswith(("good-", "bad-", "once-")) for each in files)
    assert max(each.stat().st_size for each in files) < 16_000
    assert sum(each.stat().st_size for each in files) < 300_000
