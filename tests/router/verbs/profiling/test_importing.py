"""Profiles from tables of others: forms are told apart, bad lines are named, nothing passes for measured."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from router.settings.profiles import stored_profile
from router.verbs.profiling.main import UNUSABLE, profile
from router.verbs.profiling.options import ProfileOptions
from serving.profile.curve import Point, Profile
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share, SliceSpec

H200, A100 = "gpu-nvidia-h200", "gpu-nvidia-a100-sxm4-80gb"
OWN = """\
kind,share,batch,p50_ms,p99_ms,model,variant,procs,memory_mb,load_s
gpu-nvidia-h200,mps:30,1,1.5,2,m,int8,1,100,1.5
gpu-nvidia-h200,mps:30,8,6,6,m,int8,1,120,1

gpu-nvidia-h200,mig:2g.35gb,4,9,9.5,m,int8,3,,
"""
PERF = """\
Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency
3,84.2,237,1768,21673,209,11742,17,0,35398,43984,47085,51701
1,69.2,225,2148,64,206,11781,13,0,13891,18795,19753,27782
"""
ANALYZER = """\
Model,Batch,Concurrency,Model Config Path,Instance Group,\
Satisfies Constraints,Throughput (infer/sec),p99 Latency (ms)
add_sub,1,4,add_sub_config_1,2:GPU,Yes,300,20
add_sub,1,2,add_sub_config_1,2:GPU,Yes,200,12
add_sub,8,2,add_sub_config_1,2:GPU,Yes,800,25
"""
PARVA = """\
Mig instance,Batch size,Workload Number,Throughput,Latency
1,1,1,196.762,0.005
1,2,1,300,0.007
1,1,2,125.968,0.008
7,256,5,0,0
"""


class Folder:
    """A folder with a table, and what is imported from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = ProfileStore(path / "profiles")

    def bring(self, text: str, **asked: object) -> int:
        file = self.path / "table.csv"
        file.write_text(text)
        options = ProfileOptions(imports=file, profiles=self.store.folder)
        return profile(replace(options, **asked))  # type: ignore[arg-type]

    def found(self, kind: str, model: str, variant: str, share: str) -> Profile:
        found = self.store.read(kind, model, variant, Share.parse(share))
        assert found is not None
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def times(found: Profile) -> list[tuple[int, float, float]]:
    return [(each.rows, round(each.p50_us), round(each.p99_us)) for each in found.points]


def test_a_table_of_our_own_columns(folder: Folder) -> None:
    assert folder.bring(OWN) == 0
    found = folder.found(H200, "m", "int8", "mps:30")
    assert times(found) == [(1, 1500, 2000), (8, 6000, 6000)]
    assert (found.memory_bytes, found.load_us) == (120 << 20, 1_500_000)
    assert times(folder.found(H200, "m", "int8", "mig:2g.35gb*3")) == [(4, 9000, 9500)]


def test_a_file_of_perf_analyzer_tells_the_compute_of_the_least_load(folder: Folder) -> None:
    assert folder.bring(PERF, model="inception", kind=H200, shares="whole:1", batches="4") == 0
    assert times(folder.found(H200, "inception", "default", "whole:1")) == [(4, 12_000, 24_000)]


def test_a_file_of_model_analyzer_tells_batches_and_processes(folder: Folder) -> None:
    assert folder.bring(ANALYZER, kind=H200, shares="mig:2g.35gb") == 0
    found = folder.found(H200, "add_sub", "default", "mig:2g.35gb*2")
    assert times(found) == [(1, 10_000, 12_000), (8, 20_000, 25_000)]


def test_tables_of_parvagpu_are_of_instances_and_leave_out_what_was_out_of_memory(folder: Folder) -> None:
    assert folder.bring(PARVA, kind=A100, model="resnet50") == 0
    assert times(folder.found(A100, "resnet50", "default", "mig:1g.10gb")) == [
        (1, 5082, 5082),
        (2, 6667, 6667),
    ]
    assert times(folder.found(A100, "resnet50", "default", "mig:1g.10gb*2")) == [(1, 7939, 7939)]


@pytest.mark.skipif("PENSTOCK_DATA" not in os.environ, reason="PENSTOCK_DATA names no folder of data")
def test_all_tables_of_parvagpus_release(folder: Folder) -> None:
    tables = sorted(Path(os.environ["PENSTOCK_DATA"], "parvagpu", "prof_data").glob("*.csv"))
    assert len(tables) == 11
    for table in tables:
        assert profile(ProfileOptions(imports=table, kind=A100, profiles=folder.store.folder)) == 0
        found = folder.store.read_set(A100, table.stem, "default")
        assert found is not None
        assert 20 <= len(found.profiles) <= 25  # some do not fit at all
        assert all(each.imported for each in found.profiles)


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        (OWN.replace("1.5,2,m", "soon,2,m"), {}, "table.csv:2: p50_ms is no number; got 'soon'"),
        (OWN.replace("mps:30,8", "mps:30,1"), {}, "table.csv:3: batches of 1 rows are told twice, also at"),
        (OWN.replace("6,6,m", "6,5,m"), {}, "table.csv:3: p50 is 6000 us and p99 5000 us"),
        (OWN.replace("mig:2g.35gb", "half"), {}, "table.csv:5: a share is KIND:AMOUNT"),
        (OWN.replace("p99_ms", "p99ms"), {}, "table.csv:1: unknown column; got 'p99ms'"),
        (OWN.replace(",m,int8", ",../m,int8"), {}, "table.csv:2: no name of a model; got '../m'"),
        (OWN.replace(",1,100,1.5", ",1,100"), {}, "table.csv:2: 9 values; expected 10"),
        (OWN.replace("gpu-nvidia-h200,mps", "../x,mps"), {}, "table.csv:2: no kind of device; got '../x'"),
        (PERF, {"kind": H200, "shares": "whole:1"}, "table.csv:3: the table does not say how many rows"),
        (PERF, {"kind": H200, "batches": "4"}, "table.csv:3: the table does not say on which share"),
        (PERF, {"shares": "whole:1", "batches": "4"}, "table.csv:3: no kind of device; got ''"),
        (PARVA, {}, "table.csv:2: no MIG instance of 1 slices is known of no kind; say --kind"),
        (ANALYZER.replace("p99 Latency (ms)", "p90"), {"kind": H200}, "no column p99 Latency (ms)"),
        ("a,b\n1,2\n", {}, "table.csv:1: an unknown table; got the columns a, b"),
        ("", {}, "no lines below the first"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_nothing_is_kept(
    folder: Folder, capsys: pytest.CaptureFixture[str], text: str, asked: dict[str, object], expected: str
) -> None:
    assert folder.bring(text, **asked) == UNUSABLE
    assert expected in capsys.readouterr().err
    assert not folder.store.folder.exists()


def test_an_imported_profile_never_passes_for_a_measured_one(folder: Folder) -> None:
    share = Share.parse("mps:30")
    measured = Profile("m", "int8", H200, (Point(0, 1, 7, 7, 1),), share=share)
    assert folder.bring(OWN) == 0
    imported = folder.found(H200, "m", "int8", "mps:30")
    assert (imported.imported, imported.measured, imported.origin.imported) == (True, False, "table.csv")
    rehearsed = SliceSpec("s", (), device="h", part=share, kind=H200, rehearsed=True)
    assert stored_profile(folder.store, rehearsed, "m", "int8") == imported
    assert stored_profile(folder.store, replace(rehearsed, rehearsed=False), "m", "int8") is None
    folder.store.write_local(measured)
    assert times(folder.found(H200, "m", "int8", "mps:30")) == [(1, 7, 0)]


def test_an_import_leaves_what_was_measured_unless_it_is_told_to(folder: Folder) -> None:
    share = Share.parse("mps:30")
    folder.store.write(Profile("m", "int8", H200, (Point(0, 1, 7, 7, 1),), share=share))
    assert folder.bring(OWN) == 0
    assert folder.found(H200, "m", "int8", "mps:30").measured
    assert folder.found(H200, "m", "int8", "mig:2g.35gb*3").imported
    assert folder.bring(OWN, again=True) == 0
    assert folder.found(H200, "m", "int8", "mps:30").imported
