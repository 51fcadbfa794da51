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
    obstacle,
    struck,
)

CALM = GpuReading("GPU-0", 0, "NVIDIA H200", xids=(), uncorrected=0)


def verdicts(*readings: GpuReading, each_s: float = 1.0) -> list[list[Verdict]]:
    """What each of these readings, one after the other, leads to."""
    standing, found = GpuStanding(), []
    for number, reading in enumerate(readings):
        standing, after = judge(standing, reading, int(number * each_s * 1e6))
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


def kinds(found: list[list[Verdict]]) -> list[list[type[Verdict]]]:
    return [[type(each) for each in after] for after in found]


GONE = GpuReading("GPU-0", 0, lost=True)
FAULTY = replace(CALM, xids=(Xid(119),))
WAITING = Note("GPU-0", "GPU 0 reads without a fault; slices use it again after 60 s")


def test_a_gpu_off_the_bus_is_used_again_a_quiet_minute_after_it_answers() -> None:
    found = verdicts(GONE, GONE, CALM, CALM, CALM, CALM, each_s=30)
    assert kinds(found[:1]) == [[Cordon]]
    assert found[1:] == [[], [WAITING], [], [Uncordon("GPU-0")], []]


def test_a_gpu_that_comes_and_goes_is_not_used_between() -> None:
    flapping = verdicts(GONE, CALM, GONE, CALM, CALM, GONE, CALM, CALM, each_s=40)
    assert kinds(flapping) == [[Cordon], [Note], [], [Note], [], [], [Note], []]


def test_a_gpu_that_comes_back_with_a_fault_stays_cordoned_for_that_fault() -> None:
    standing = GpuStanding()
    for number, reading in enumerate((GONE, FAULTY, CALM, CALM)):
        standing, found = judge(standing, reading, 100_000_000 * number)
        assert [type(each) for each in found] == [Cordon] * (reading is GONE)
    assert standing.cordoned == "GPU 0: XID 119, GSP RPC timeout; reset it with `nvidia-smi -i 0 -r`"


def test_after_a_fault_a_gpu_that_reads_well_is_not_used_without_a_sign_of_a_reset() -> None:
    assert kinds(verdicts(FAULTY, CALM, CALM, CALM, each_s=1e6)) == [[Cordon], [], [], []]


@pytest.mark.parametrize(
    ("faulty", "after"),
    [
        (replace(FAULTY, uncorrected=2), CALM),  # its driver counts anew
        (replace(FAULTY, needs_reset=True), replace(CALM, needs_reset=False)),
    ],
)
def test_a_reset_shows_and_a_quiet_minute_later_the_gpu_is_used(
    faulty: GpuReading, after: GpuReading
) -> None:
    still = replace(faulty, xids=())
    found = verdicts(faulty, still, after, after, after, each_s=30)
    assert kinds(found) == [[Cordon], [], [Note], [], [Uncordon]]


def test_a_fault_within_the_quiet_minute_ends_it() -> None:
    found = verdicts(GONE, CALM, FAULTY, CALM, CALM, CALM, each_s=59)
    assert kinds(found) == [[Cordon], [Note], [], [], [], []]


def test_what_hinders_a_gpu_now_is_named() -> None:
    assert obstacle(CALM) == obstacle(replace(CALM, xids=(Xid(79),), needs_reset=None)) == ""
    assert obstacle(GONE) == "it has fallen off the bus"
    assert obstacle(replace(CALM, needs_reset=True)) == "its driver asks for a reset"
    assert "could not be replaced" in obstacle(replace(CALM, rows_failed=True))


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
