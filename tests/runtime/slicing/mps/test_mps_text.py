"""What is read out of the MPS control program's words."""

import pytest

from serving.runtime.slicing.mps.mps_text import (
    Partition,
    complaint,
    log_tail,
    partition_made,
    partitions,
    percentage,
    pids,
)
from tests.runtime.slicing.smi import captured

GPU = "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65"


@pytest.mark.parametrize(
    "said",
    [
        'Unknown command "sm_partition"',
        "Server 99 not found",
        "Cannot find MPS control daemon process",
        "Not enough privilege to execute quit command",
        "Failed to fulfill the requested SM partition of 7 chunks, error CUDA_ERROR_INVALID_VALUE",
    ],
)
def test_complaints_are_told_from_answers(said: str) -> None:
    assert complaint(f"\n{said}\n") == said
    assert partition_made(said) == ""


@pytest.mark.parametrize(
    "said", ["", "25.0\n", "2G\n", "5971\n5980\n", f"Partition {GPU}/Dx4errorFailAAA created\n"]
)
def test_answers_are_no_complaints(said: str) -> None:
    assert complaint(said) == ""


def test_numbers_are_read_and_nothing_else_is_one() -> None:
    assert pids("5971\n5980\n") == (5971, 5980)
    assert pids("") == ()
    assert percentage("25.0\n") == 25
    assert percentage("") is percentage("nan") is percentage("Server not found") is None


def test_a_partitions_name_is_read_whole() -> None:
    assert partition_made(f"Partition {GPU}/Dx4/AA+= created\n") == f"{GPU}/Dx4/AA+="
    assert partition_made(f"{GPU}/Dx4AAAA\n") == f"{GPU}/Dx4AAAA"


def test_the_list_of_partitions_is_read_without_the_gpus_own_row() -> None:
    assert partitions(captured("lspart")) == (Partition("Dx4" + "A" * 33, 7, 56, True),)
    assert partitions("") == ()


def test_the_end_of_a_log_is_told_without_stamps() -> None:
    log = "[2026-11-21 14:02:51.668 Control  5878] one\n[2026-11-21 14:02:51.690 Control  5878] two\n\n"
    assert log_tail(log, 1) == "two"
    assert log_tail(log) == "one; two"
    assert log_tail("") == ""
