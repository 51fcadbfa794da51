"""Promises of replicas and of the Python backend: models do not clash, failures say what and where."""

import re
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from serving.worker.backends.python import PythonBackend
from serving.worker.frames.arrays import TensorError
from serving.worker.frames.orders import Loaded, LoadOrder, MeasureOrder
from serving.worker.process.garbage import Garbage
from serving.worker.process.memory import Memory
from serving.worker.process.yardstick import Yardstick
from serving.worker.replicas.replicas import (
    CLIENT_CHARS_MAX,
    Interruptions,
    LoadedReplica,
    describe,
    describe_to_client,
    load_replica,
)
from tests.runtime.recorder import model_spec, write_model

pytestmark = pytest.mark.live

GARBAGE = Garbage()
DOUBLE = "return {'Y': inputs['X'] * 2}"


def order(folder: Path, replica: int = 1) -> LoadOrder:
    return LoadOrder.of(replica, model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}), "only")


def test_folders_of_the_same_name_keep_their_own_code(tmp_path: Path) -> None:
    backend = PythonBackend(1)
    for parent, sign in (("one", "+"), ("two", "-")):
        write_model(tmp_path / parent / "m", f"return {{'Y': {sign}inputs['X'] * self.options['factor']}}")
    first, loaded = load_replica(backend, order(tmp_path / "one" / "m"), Memory(), GARBAGE)
    second, _ = load_replica(backend, order(tmp_path / "two" / "m"), Memory(), GARBAGE)
    assert loaded.load_us > 0
    assert loaded.memory_bytes >= 0
    one = np.ones((1, 1), np.float32)
    answers = [np.asarray(replica.predict({"X": one}, {})[0]["Y"]).item() for replica in (first, second)]
    assert answers == [3, -3]


def test_a_model_loads_beside_another_that_is_still_importing_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = ModuleType("torch")
    half.__spec__ = ModuleSpec("torch", None)
    monkeypatch.setattr(half.__spec__, "_initializing", True, raising=False)
    monkeypatch.setitem(sys.modules, "torch", half)
    replica, _ = load_replica(PythonBackend(1), order(write_model(tmp_path / "m", DOUBLE)), Memory(), GARBAGE)
    answer = replica.predict({"X": np.ones((1, 1), np.float32)}, {})[0]["Y"]
    assert np.asarray(answer).item() == 2


def test_warming_up_runs_the_smallest_and_the_largest_size_and_checks_the_answers(tmp_path: Path) -> None:
    folder = write_model(
        tmp_path / "m", "return {'Y': inputs['X'][:, :-8]}", "return {'X': np.ones((rows, size), np.float32)}"
    )
    load_replica(PythonBackend(1), replace(order(folder), sizes=(8, 64)), Memory(), GARBAGE)
    with pytest.raises(TensorError, match="lacks the inputs"):
        load_replica(
            PythonBackend(1), order(write_model(tmp_path / "n", "return {}", "return {}")), Memory(), GARBAGE
        )
    with pytest.raises(TensorError, match="returned the outputs"):
        load_replica(PythonBackend(1), order(write_model(tmp_path / "o", "return {}")), Memory(), GARBAGE)


@dataclass
class Script:
    """Which runs of a measurement are disturbed, in the place of Interruptions: no test can have the kernel
    take a core away, nor keep it from that. Runs beyond the script are calm. `seen`: (us, disturbed) of each.
    """

    disturbed: tuple[bool, ...] = ()
    seen: list[tuple[int, bool]] = field(default_factory=list)

    def __call__(self) -> "Script":
        return self

    def lengthened(self, took_us: int) -> bool:
        count = len(self.seen)
        self.seen.append((took_us, count < len(self.disturbed) and self.disturbed[count]))
        return self.seen[-1][1]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is disturbed."""
    monkeypatch.setattr("serving.worker.replicas.replicas.Interruptions", Script())


@pytest.mark.usefixtures("quiet")
def test_a_measurement_ends_with_its_repeats_or_its_budget_but_runs_once(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", "time.sleep(0.002); return {'Y': inputs['X']}")
    replica, _ = load_replica(PythonBackend(1), order(folder), Memory(), GARBAGE)

    def runs(asked: MeasureOrder) -> int:
        return len(replica.measure(asked, Memory(), Yardstick()).latencies_us)

    assert runs(MeasureOrder(1, 4, 0, 3, 10**9)) == 3
    assert runs(MeasureOrder(1, 4, 0, 100, 0)) == 1
    assert 1 <= runs(MeasureOrder(1, 4, 0, 100, 9000)) <= 4


@pytest.mark.parametrize(
    ("disturbed", "ran", "kept"),
    [
        ((), 3, 3),
        ((True, False, True, False, False), 5, 3),
        ((True,) * 8, 9, 1),
        ((*[True] * 7, False, True), 9, 1),
    ],
)
def test_runs_that_are_disturbed_are_tried_again_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disturbed: tuple[bool, ...], ran: int, kept: int
) -> None:
    script = Script(disturbed)
    monkeypatch.setattr("serving.worker.replicas.replicas.Interruptions", script)
    replica, _ = load_replica(PythonBackend(1), order(write_model(tmp_path / "m", DOUBLE)), Memory(), GARBAGE)
    found = replica.measure(MeasureOrder(1, 4, 0, 3, 10**9), Memory(), Yardstick())
    calm = [took_us for took_us, put_off in script.seen if not put_off]
    assert (len(script.seen), len(calm)) == (ran, kept)
    assert (list(found.latencies_us), found.disturbed) == (calm, False)


def test_a_measurement_without_a_calm_run_has_the_first_of_the_others_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script((True,) * 9)
    monkeypatch.setattr("serving.worker.replicas.replicas.Interruptions", script)
    replica, _ = load_replica(PythonBackend(1), order(write_model(tmp_path / "m", DOUBLE)), Memory(), GARBAGE)
    found = replica.measure(MeasureOrder(1, 4, 0, 3, 10**9), Memory(), Yardstick())
    assert len(script.seen) == 9
    assert (list(found.latencies_us), found.disturbed) == ([took_us for took_us, _ in script.seen[:3]], True)


@pytest.mark.parametrize(
    ("switches", "off_us", "took_us", "expected"),
    [
        (1, 6_000, 100_000, True),
        (1, 4_000, 100_000, False),  # less than a share that matters
        (1, 150, 1_000, False),  # a large share of a short run, but less than LENGTHENED_US
        (1, 250, 1_000, True),
        (0, 90_000, 100_000, False),  # it waited of its own accord
    ],
)
def test_a_run_is_lengthened_where_the_kernel_put_it_off_for_a_share_that_matters(
    monkeypatch: pytest.MonkeyPatch, switches: int, off_us: int, took_us: int, expected: bool
) -> None:
    used = iter([SimpleNamespace(ru_nivcsw=7), SimpleNamespace(ru_nivcsw=7 + switches)])
    ran_ns = iter([1_000, 1_000 + (took_us - off_us) * 1000])
    kernel = SimpleNamespace(getrusage=lambda _: next(used), RUSAGE_THREAD=0)
    monkeypatch.setattr("serving.worker.replicas.replicas.resource", kernel)
    monkeypatch.setattr(
        "serving.worker.replicas.replicas.time", SimpleNamespace(thread_time_ns=lambda: next(ran_ns))
    )
    assert Interruptions().lengthened(took_us) is expected


@pytest.mark.usefixtures("quiet")
def test_a_measurement_runs_the_yardstick_and_says_what_memory_a_run_takes(tmp_path: Path) -> None:
    grow = "held = np.ones(rows << 20, np.float32); return {'Y': inputs['X']}"
    folder = write_model(tmp_path / "m", grow.replace("rows", "len(inputs['X'])"))
    replica, loaded = load_replica(PythonBackend(1), order(folder), Memory(), GARBAGE)
    found = replica.measure(MeasureOrder(1, 8, 0, 3, 10**9, yardsticks=5), Memory(), Yardstick())
    assert (found.rows, len(found.latencies_us), len(found.yardsticks_us)) == (8, 3, 5)
    assert 24 << 20 <= found.activation_bytes <= 64 << 20
    assert 0 < loaded.warm_us <= loaded.load_us


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("def load(: pass", "SyntaxError"),
        ("load = 3", "AttributeError: .* has no function load"),
        ("def load(artifact, options): return 3", "AttributeError: .* has no method predict"),
        ("def load(artifact, options):\n    raise KeyError('w')", r"KeyError: 'w' \(model.py:2\)"),
    ],
)
def test_code_that_cannot_be_loaded_is_described(tmp_path: Path, code: str, complaint: str) -> None:
    (tmp_path / "model.py").write_text(code)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # whatever the model's code raises
        PythonBackend(1).load(order(tmp_path))
    assert re.search(complaint, describe(raised.value))


def test_changed_code_is_taken_with_its_revision_and_old_code_goes_with_its_last_replica(
    tmp_path: Path,
) -> None:
    backend = PythonBackend(1)
    folder = tmp_path / "m"

    def load(number: int, revision: str) -> LoadedReplica:
        asked = replace(order(folder, number), revision=revision)
        return load_replica(backend, asked, Memory(), GARBAGE)[0]

    def answer(replica: LoadedReplica) -> object:
        one = np.ones((1, 1), np.float32)
        return np.asarray(replica.predict({"X": one}, {})[0]["Y"]).item()

    def executed() -> set[str]:
        return {name for name in sys.modules if name.startswith("penstock_model_") and name.endswith("_m")}

    write_model(folder, "return {'Y': inputs['X'] * 5}")
    there = executed()
    first = load(1, "old")
    old = executed() - there
    write_model(folder, "return {'Y': inputs['X'] * 7}")  # as many bytes in the same second
    again, second = load(2, "old"), load(3, "new")
    assert [answer(each) for each in (first, again, second)] == [5, 5, 7]

    before = executed()
    backend.keep([again.order, second.order])
    assert executed() == before
    backend.keep([second.order])
    assert before - executed() == old
    assert answer(load(4, "old")) == 7  # executed anew: only the newest file is there
    backend.keep([])
    assert executed() == there


def loaded_from(folder: Path) -> Loaded:
    return load_replica(PythonBackend(1), order(folder), Memory(), Garbage())[1]


def test_what_imports_took_is_told_apart_from_what_the_model_holds(tmp_path: Path) -> None:
    grow = "held = np.ones({} << 18, np.float64)\n"  # 2 MiB each
    folder = write_model(tmp_path / "m", "return {'Y': inputs['X']}")
    code = (folder / "model.py").read_text()
    kept = f"kept = Model(options); kept.{grow.format(10)}"
    code = code.replace("return Model(options)", f"{kept.strip()}; return kept")
    (folder / "model.py").write_text(code + grow.format(20))
    # As in a worker: in a process that has run a thousand tests, what is freed meanwhile is taken off.
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        loaded = fresh.submit(loaded_from, folder).result()
    assert 38 << 20 <= loaded.import_bytes <= 44 << 20
    assert 18 << 20 <= loaded.memory_bytes <= 24 << 20


def test_a_gpus_memory_is_none_before_anything_was_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the host's: the first model there would be counted for less than it holds."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    memory = Memory("cuda:0")
    assert (memory.held_bytes(), memory.peak_bytes()) == (0, 0)


def test_a_dropped_model_is_gone_though_an_exception_of_its_import_is_kept_with_all_frames(
    tmp_path: Path,
) -> None:
    """As torch's import keeps some: they refer to the frames of whoever loaded the model."""
    folder = write_model(tmp_path / "m", "return {'Y': inputs['X']}")
    with (folder / "model.py").open("a") as code:
        code.write("import sys\ntry: import nowhere\nexcept ImportError as error: sys.kept_error = error\n")
    try:
        replica, _ = load_replica(PythonBackend(1), order(folder), Memory(), GARBAGE)
        assert sys.kept_error is not None  # type: ignore[attr-defined]
        assert replica.drop()() is None
    finally:
        del sys.kept_error  # type: ignore[attr-defined]


def test_a_dropped_model_that_is_still_held_is_found_where_its_class_can_be(tmp_path: Path) -> None:
    plain = write_model(tmp_path / "m", "return {'Y': inputs['X']}")
    slots = write_model(tmp_path / "n", "return {'Y': inputs['X']}")
    for folder, (old, new) in {
        plain: ("return Model(options)", "kept.append(Model(options)); return kept[0]"),
        slots: ("padded_size = 7", "__slots__ = ('options',)"),
    }.items():
        code = (folder / "model.py").read_text()
        (folder / "model.py").write_text("kept = []\n" + code.replace(old, new))
    backend = PythonBackend(1)
    found = [load_replica(backend, order(each), Memory(), GARBAGE)[0].drop()() for each in (plain, slots)]
    assert [each is not None for each in found] == [True, False]


def test_a_thread_is_settled_though_another_is_just_importing_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # with nothing in it yet
    PythonBackend(1).settle()


def test_a_folder_without_code_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.py is not there"):
        PythonBackend(1).load(order(tmp_path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cannot open /srv/models/private/weights.bin", "cannot open weights.bin"),
        ("[Errno 2] No such file: '/home/jo/key.pem'", "[Errno 2] No such file: 'key.pem'"),
        ("1/2 of a/b, see https://example.org/a/b", "1/2 of a/b, see https://example.org/a/b"),
        ("a\nb\tc", "a b c"),
    ],
)
def test_clients_hear_what_was_raised_without_the_folders_of_this_machine(text: str, told: str) -> None:
    assert describe_to_client(ValueError(text)) == f"ValueError: {told}"


def test_clients_hear_little_of_a_long_text_and_the_operator_more() -> None:
    error = RuntimeError("x" * 10_000)
    assert len(describe_to_client(error)) == CLIENT_CHARS_MAX == 200
    assert len(describe(error)) == 900
    assert describe_to_client(error).startswith("RuntimeError: xxx")
    assert describe_to_client(error).endswith("x...")
