"""What follows from the state of a GPU: the right workers end, the right GPU is cordoned."""

from dataclasses import replace

import pytest

from serving.policy.device_health import (
    APPLICATION_XIDS,
    DEVICE_XIDS,
    NOTED_XIDS,
    Cordon,
    EndWorkers,
    GpuReading,
    GpuStanding,
    Note,
    Placed,
    Uncordon,
    Verdict,
    Xid,
    judge,
    struck,
)

CALM = GpuReading("GPU-0", 0, "NVIDIA H200", xids=(), uncorrected=0)


def verdicts(*readings: GpuReading) -> list[list[Verdict]]:
    """What each of these readings, one after the other, leads to."""
    standing, found = GpuStanding(), []
    for reading in readings:
        standing, after = judge(standing, reading)
        found.append([*after])
    return found


def test_a_fault_of_an_application_ends_workers_and_nothing_else() -> None:
    for number, what in APPLICATION_XIDS.items():
        faulty = replace(CALM, xids=(Xid(number), Xid(number)))
        assert verdicts(CALM, faulty) == [[], [EndWorkers("GPU-0", "", f"GPU 0: XID {number}, {what}")]]


def test_a_fault_of_the_device_cordons_it_once_and_says_the_cure() -> None:
    for number, what in DEVICE_XIDS.items():
        faulty = replace(CALM, xids=(Xid(31), Xid(number)))
        reason = f"GPU 0: XID {number}, {what}; reset it with `nvidia-smi -i 0 -r`"
        assert verdicts(faulty, faulty, CALM) == [[Cordon("GPU-0", reason)], [], []]


def test_every_xid_belongs_to_one_kind_and_an_unknown_one_is_only_said() -> None:
    numbers = [*APPLICATION_XIDS, *DEVICE_XIDS, *NOTED_XIDS]
    assert len(numbers) == len(set(numbers))
    assert verdicts(replace(CALM, xids=(Xid(999),))) == [
        [Note("GPU-0", "GPU 0: XID 999, no fault that is known here")]
    ]


def test_a_gpu_off_the_bus_is_cordoned_until_it_answers() -> None:
    gone = GpuReading("GPU-0", 0, lost=True)
    first, again, back = verdicts(gone, gone, CALM)
    assert [type(each) for each in first] == [Cordon]
    assert again == []
    assert back == [Uncordon("GPU-0")]


def test_a_gpu_that_comes_back_with_a_fault_stays_cordoned() -> None:
    gone, faulty = GpuReading("GPU-0", 0, lost=True), replace(CALM, xids=(Xid(79),))
    assert [type(each) for each in verdicts(gone, faulty)[1]] == [Uncordon, Cordon]


@pytest.mark.parametrize(("xids", "kind"), [((), Note), (None, Cordon)])
def test_ecc_errors_count_where_the_driver_reports_no_faults(
    xids: tuple[Xid, ...] | None, kind: type[Verdict]
) -> None:
    first, second = replace(CALM, xids=xids, uncorrected=2), replace(CALM, xids=xids, uncorrected=3)
    assert [[type(each) for each in found] for found in verdicts(first, first, second)] == [[], [], [kind]]


def test_lowered_clocks_and_replaced_rows_are_said_once_and_harm_nothing() -> None:
    hot, row = replace(CALM, throttled=("heat",)), replace(CALM, rows_pending=True)
    assert verdicts(hot, hot, CALM, row, row) == [
        [Note("GPU-0", "GPU 0: its clocks are lowered: heat")],
        [],
        [Note("GPU-0", "GPU 0: its clocks are not lowered any more")],
        [Note("GPU-0", "GPU 0: a faulty row of its memory is replaced at the next reset")],
        [],
    ]
    assert isinstance(verdicts(replace(CALM, rows_failed=True))[0][0], Cordon)


def test_a_fault_reaches_all_clients_of_an_mps_server_but_one_mig_device_alone() -> None:
    whole, inside = EndWorkers("GPU-0", "", "x"), EndWorkers("GPU-0", "MIG-1", "x")
    shared = {
        "a": Placed("GPU-0", "", "mps"),
        "b": Placed("GPU-0", "", "mps"),
        "c": Placed("GPU-1", "", "mps"),
    }
    assert sorted(struck(whole, shared)) == ["a", "b"]
    divided = {"a": Placed("GPU-0", "MIG-1", "mig"), "b": Placed("GPU-0", "MIG-2", "mig")}
    assert [*struck(inside, divided)] == ["a"]


def test_of_slices_in_turns_only_one_alone_is_surely_struck() -> None:
    whole = EndWorkers("GPU-0", "", "x")
    alone = {"a": Placed("GPU-0", "", "time"), "b": Placed("GPU-1", "", "time")}
    assert [*struck(whole, alone)] == ["a"]
    assert [*struck(whole, alone | {"c": Placed("GPU-0", "", "time")})] == []
