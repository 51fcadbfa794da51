"""Models come and go under load: by Triton's clients, and by edits of penstock.yaml."""

import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any  # tritonclient carries no types

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess, await_true
from tests.acceptance.holding import LIMITS, WAIT, held, insert_wait

pytestmark = pytest.mark.slow

RATE = 40.0
"""Requests a second of a stream: far below what the machine carries, so that every loss is a fault."""
SOME = 20
"""Answers that a stream has before and after what it is there for."""

CONFIG = f"""
slices: [{{name: a}}]
models:
  - {{path: repo/simple, slo_ms: {PATIENT_MS}, cache: false}}
  - {{path: repo/steady, slo_ms: {PATIENT_MS}, cache: false}}
repository: {{folders: [repo]}}
admin: {{on_inference_ports: true}}
cache:
{LIMITS}
"""


class Home:
    """A penstock.yaml and a repository of copies of `simple`, served by a gateway."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "penstock.yaml"
        self.repo = folder / "repo"
        for name in ("simple", "steady", "spare"):
            self.copy(name)
        self.config.write_text(CONFIG)

    def copy(self, name: str) -> None:
        shutil.copytree(ROOT / "models" / "simple", self.repo / name, dirs_exist_ok=True)
        self.change(name, "model.yaml", "name: simple", f"name: {name}")
        self.change(name, "model.yaml", "slo_ms: 25\n", f"slo_ms: {PATIENT_MS}\n")

    def change(self, model: str, file: str, old: str, new: str) -> None:
        path = self.repo / model / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def edit(self, old: str, new: str) -> None:
        text = self.config.read_text()
        assert old in text
        self.write(text.replace(old, new))

    def write(self, text: str) -> None:
        """As editors do: a new file takes the old one's place."""
        scratch = self.config.with_suffix(".new")
        scratch.write_text(text)
        scratch.rename(self.config)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, GatewayProcess]]:
    folder = tmp_path_factory.mktemp("repository")
    home = Home(folder)
    started = GatewayProcess.start(home.config, folder / "log")
    yield home, started
    assert started.stop() == 0, started.output
    raised = started.output.count(" raised while it was loaded: ")  # by models that are broken on purpose
    assert started.output.count("Traceback") == raised, started.output


@pytest.fixture
def home(shared: tuple[Home, GatewayProcess]) -> Home:
    return shared[0]


@pytest.fixture
def gateway(shared: tuple[Home, GatewayProcess]) -> Iterator[GatewayProcess]:
    """The gateway, with file and models as at its start before and after each test."""
    home, running = shared
    with grpc_client.InferenceServerClient(running.grpc) as client:
        assert ready(client) == {"simple", "steady"}
        yield running
        for name in ("simple", "steady", "spare"):
            home.copy(name)
        if home.config.read_text() != CONFIG:
            for ms in (30000, PATIENT_MS):  # so what is in force is what was written last
                put_in_force(home, running, ms)
        await_true(lambda: not refused_change(running), running)
        client.load_model("simple")
        client.unload_model("spare")


def put_in_force(home: Home, running: GatewayProcess, ms: int) -> None:
    home.write(CONFIG.replace(f"steady, slo_ms: {PATIENT_MS}", f"steady, slo_ms: {ms}"))
    await_true(lambda: slo_ms(running, "steady") == ms, running)


def question() -> bytes:
    numbers = list(range(16))
    inputs = [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": numbers}
        for name in ("INPUT0", "INPUT1")
    ]
    return json.dumps({"inputs": inputs}).encode()


def answer_of(gateway: GatewayProcess, model: str) -> tuple[int, object]:
    """Status, and the last of OUTPUT0: 30 as the sample is; or the error."""
    status, body = gateway.post(f"/v2/models/{model}/infer", question())
    told = json.loads(body)
    return status, told["outputs"][0]["data"][15] if status == 200 else told["error"]


Answer = tuple[int, object]


class Stream:
    """What was asked so far, in that order, and what came of it."""

    def __init__(self) -> None:
        self.asked: list[Future[Answer]] = []

    @property
    def answers(self) -> list[Answer]:
        return [each.result() for each in self.asked]

    @property
    def failures(self) -> Counter[Answer]:
        return Counter(each for each in self.answers if each[0] != 200)

    def await_more(self, count: int) -> None:
        """Until so many are answered that are asked from now on."""
        first = len(self.asked)
        end = time.monotonic() + TALK_S
        while len(self.asked) < first + count:
            assert time.monotonic() < end
            time.sleep(0.01)
        wait(self.asked[first : first + count])


@contextmanager
def stream(gateway: GatewayProcess, model: str) -> Iterator[Stream]:
    """Requests at RATE while it is open, whatever becomes of them."""
    found = Stream()
    stop = threading.Event()

    def send() -> None:
        began = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            while not stop.wait(max(0.0, began + len(found.asked) / RATE - time.monotonic())):
                found.asked.append(pool.submit(answer_of, gateway, model))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        found.await_more(SOME)
        yield found
        found.await_more(SOME)
    finally:
        stop.set()
        sending.join()


def states(client: Any) -> dict[str, str]:
    """The index by HTTP's client (JSON) or gRPC's (a message)."""
    index = client.get_model_repository_index()
    if isinstance(index, list):
        return {each["name"]: each.get("state", "") for each in index}
    return {each.name: each.state for each in index.models}


def ready(client: Any) -> set[str]:
    return {name for name, state in states(client).items() if state == "READY"}


def slo_ms(gateway: GatewayProcess, model: str) -> float:
    status, body = gateway.get(f"/v2/models/{model}")
    return float(json.loads(body)["parameters"]["slo_ms"]) if status == 200 else 0.0


def refused_change(gateway: GatewayProcess) -> list[str]:
    found: list[str] = json.loads(gateway.get("/v2/status")[1])["move"]["refused"]
    return found


@pytest.mark.parametrize("door", ["http", "grpc", "admin"])
def test_a_model_comes_and_goes_and_no_request_of_another_fails(gateway: GatewayProcess, door: str) -> None:
    kinds: dict[str, Any] = {"http": http_client, "grpc": grpc_client, "admin": http_client}
    address = {"http": gateway.rest, "grpc": gateway.grpc, "admin": gateway.admin}[door]
    with kinds[door].InferenceServerClient(address) as client, stream(gateway, "steady") as answers:
        assert ready(client) == {"simple", "steady"}
        for _ in range(3):
            client.load_model("spare")
            assert client.is_model_ready("spare")
            assert answer_of(gateway, "spare") == (200, 30)
            assert states(client)["spare"] == "READY"
            client.unload_model("spare")
            assert not client.is_model_ready("spare")
            assert answer_of(gateway, "spare")[0] == 404
            assert states(client)["spare"] == "UNAVAILABLE"
        with pytest.raises(InferenceServerException, match="failed to load 'nobody', failed to poll from"):
            client.load_model("nobody")
        assert gateway.get("/v2/health/ready")[0] == 200
    assert not answers.failures
    loads = re.search(r'penstock_model_loads_total{model="spare"} (\d+)', gateway.read_metrics())
    unloads = re.search(r'penstock_model_unloads_total{model="spare"} (\d+)', gateway.read_metrics())
    assert loads is not None
    assert unloads is not None
    assert loads[1] == unloads[1] != "0"


def test_what_a_browser_sends_over_grpc_changes_nothing_though_the_port_takes_changes(
    gateway: GatewayProcess,
) -> None:
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        for verb in (client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException, match=r"PERMISSION_DENIED.*a page of a browser"):
                verb("simple", headers={"origin": f"http://{gateway.grpc}"})
        assert client.is_model_ready("simple")
    await_true(lambda: gateway.output.count("audit: refused: RepositoryModel") == 2, gateway)


def test_a_reload_takes_the_place_of_the_old_one_and_no_request_fails(
    home: Home, gateway: GatewayProcess
) -> None:
    with (
        http_client.InferenceServerClient(gateway.rest) as client,
        stream(gateway, "simple") as answers,
        stream(gateway, "steady") as others,
    ):
        for more in (1000, 2000, 3000):
            home.change("simple", "model.py", '"OUTPUT0": left + right', f'"OUTPUT0": {more} + left + right')
            client.load_model("simple")
            assert answer_of(gateway, "simple") == (200, 30 + more)
            answers.await_more(4)
            home.change("simple", "model.py", f"{more} + left", "left")
    assert not answers.failures
    assert not others.failures
    values = [value for _, value in answers.answers]
    assert set(values) == {30, 1030, 2030, 3030}
    assert set(values[-SOME:]) == {3030}


def test_kept_answers_of_the_old_files_are_not_those_of_the_new_ones(
    home: Home, gateway: GatewayProcess
) -> None:
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        client.load_model("spare")  # a deterministic model, whose answers are kept
        assert [answer_of(gateway, "spare") for _ in range(3)] == [(200, 30)] * 3
        home.change("spare", "model.py", "left + right", "7 + left + right")
        client.load_model("spare")
        assert [answer_of(gateway, "spare") for _ in range(3)] == [(200, 37)] * 3


def test_a_load_that_fails_says_why_and_the_old_one_answers(home: Home, gateway: GatewayProcess) -> None:
    home.copy("broken")
    home.change("broken", "model.py", "COLUMNS = 16", "raise RuntimeError('broken on purpose')")
    with (
        http_client.InferenceServerClient(gateway.rest, network_timeout=TALK_S) as client,
        stream(gateway, "simple") as answers,
    ):
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("broken")
        assert 'penstock_model_load_failures_total{model="broken"} 3' in gateway.read_metrics()
        assert caught.value.status() == "400"
        assert "load failed for model 'broken': version 1 is at UNAVAILABLE state:" in caught.value.message()
        assert "broken on purpose" in caught.value.message()
        assert states(client)["broken"] == "UNAVAILABLE"
        home.change("simple", "model.py", "COLUMNS = 16", "raise RuntimeError('broken too')")
        with pytest.raises(InferenceServerException, match="broken too"):
            client.load_model("simple")
        assert states(client)["simple"] == "READY"
    assert not answers.failures


def test_accepted_requests_of_an_unloaded_model_are_answered(home: Home, gateway: GatewayProcess) -> None:
    home.change("spare", "model.py", "import numpy as np", "import time\n\nimport numpy as np")
    insert_wait(home.repo / "spare", "        left, right", WAIT)
    home.change("spare", "model.yaml", "batch_max: 8", "batch_max: 1")
    with (
        http_client.InferenceServerClient(gateway.rest) as client,
        grpc_client.InferenceServerClient(gateway.grpc) as other,
        ThreadPoolExecutor(5) as pool,
        ExitStack() as hold,
    ):
        client.load_model("spare")
        hold.enter_context(held(home.repo / "spare"))
        body = json.loads(question())
        asked = []
        for number in range(4):  # other questions, as equal ones would be one
            body["inputs"][0]["data"][0] = number
            path = "/v2/models/spare/infer"
            asked.append(pool.submit(gateway.post, path, json.dumps(body).encode()))
        await_true(lambda: gateway.open_requests() == 4, gateway)
        unloading = pool.submit(other.unload_model, "spare")
        await_true(lambda: states(client)["spare"] == "UNLOADING", gateway)
        assert answer_of(gateway, "spare")[0] == 404
        hold.close()
        assert [each.result()[0] for each in asked] == [200] * 4
        unloading.result()
        assert states(client)["spare"] == "UNAVAILABLE"


def test_edits_of_the_file_are_in_force_without_a_restart(home: Home, gateway: GatewayProcess) -> None:
    def served() -> set[str]:
        return set(json.loads(gateway.get("/v2/models")[1])["models"])

    def in_force() -> int:
        return len(re.findall("is in force", gateway.output))

    before = in_force()
    with stream(gateway, "steady") as answers:
        home.edit(f"repo/simple, slo_ms: {PATIENT_MS}", "repo/simple, slo_ms: 15000")
        await_true(lambda: slo_ms(gateway, "simple") == 15000 and in_force() == before + 1, gateway)
        home.edit("repository:", "  - {path: repo/spare}\nrepository:")
        await_true(lambda: answer_of(gateway, "spare")[0] == 200 and in_force() == before + 2, gateway)
        home.edit("  - {path: repo/simple, slo_ms: 15000, cache: false}\n", "")
        await_true(lambda: served() == {"steady", "spare"} and in_force() == before + 3, gateway)
        home.edit("[{name: a}]", "[{name: a}, {name: b}]")
        await_true(lambda: "slices are a, b" in gateway.output, gateway)
        await_true(lambda: in_force() == before + 4, gateway)
    assert not answers.failures
    assert refused_change(gateway) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            f"slo_ms: {PATIENT_MS}",
            "slo_ms: soon",
            "penstock.yaml:4:33: models[0].slo_ms: not a number; got 'soon'",
        ),
        ("slices: [", "slices: [[", "penstock.yaml:"),
        (
            "\nslices",
            "\nserver: {rest_port: 18123}\nslices",
            "server: cannot be changed while the gateway runs",
        ),
    ],
)
def test_an_edit_that_cannot_be_is_refused_with_reasons_and_nothing_of_it_is_done(
    home: Home, gateway: GatewayProcess, old: str, new: str, reason: str
) -> None:
    with stream(gateway, "simple") as answers:
        text = home.config.read_text()
        home.write(text.replace(old, new).replace("path: repo/steady", "path: repo/spare"))
        await_true(lambda: bool(refused_change(gateway)), gateway)
        assert reason in refused_change(gateway)[0]
        await_true(lambda: reason in gateway.output, gateway)
        assert answer_of(gateway, "steady") == (200, 30)
        assert answer_of(gateway, "spare")[0] == 404
        home.write(text)
        await_true(lambda: refused_change(gateway) == [], gateway)
    assert not answers.failures


def test_the_last_word_counts_and_a_restart_forgets_what_clients_said(
    home: Home, gateway: GatewayProcess, tmp_path: Path
) -> None:
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        client.unload_model("simple")
        client.load_model("spare")
        home.edit(f"repo/steady, slo_ms: {PATIENT_MS}", "repo/steady, slo_ms: 10000")
        await_true(lambda: slo_ms(gateway, "steady") == 10000, gateway)
        assert ready(client) == {"spare", "steady"}
        home.edit(f"repo/simple, slo_ms: {PATIENT_MS}", "repo/simple, slo_ms: 10000")
        await_true(lambda: states(client)["simple"] == "READY", gateway)
    again = GatewayProcess.start(home.config, tmp_path / "again")
    try:
        with grpc_client.InferenceServerClient(again.grpc) as client:
            assert ready(client) == {"simple", "steady"}
    finally:
        assert again.stop() == 0


def test_random_numbers_come_back_right_whatever_is_loaded_meanwhile(gateway: GatewayProcess) -> None:
    generator = np.random.default_rng(0)
    with http_client.InferenceServerClient(gateway.rest, concurrency=2) as client:
        for turn in range(12):
            if turn % 4 == 1:
                client.load_model("spare", config='{"max_batch_size":"4"}')
            if turn % 4 == 3:
                client.unload_model("spare")
            left, right = generator.integers(-1000, 1000, (2, 3, 16), dtype=np.int32)
            tensors = []
            for name, data in (("INPUT0", left), ("INPUT1", right)):
                tensor = http_client.InferInput(name, [3, 16], "INT32")
                tensor.set_data_from_numpy(data)
                tensors.append(tensor)
            np.testing.assert_array_equal(client.infer("simple", tensors).as_numpy("OUTPUT0"), left + right)
