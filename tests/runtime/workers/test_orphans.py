"""Promises of a worker that outlives its gateway: the next one takes it over as it is, or it ends."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from serving.runtime.workers.orphans import take_over
from serving.runtime.workers.spawning import Pipes
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.values.specs import ModelSpec
from serving.worker.frames.batches import BatchInput
from serving.worker.frames.wire import INLINE_BYTES_MAX
from serving.worker.process.orphans import address
from serving.worker.process.tree import children
from tests.runtime.nodes.estate import Lines, until
from tests.runtime.recorder import PATIENCE_S, Recorder, be_patient, model_spec, write_model

pytestmark = [pytest.mark.live, pytest.mark.slow]

SLICE = SliceSpec("s", (0,))


class House:
    """Gateways of the same settings, one after the other."""

    def __init__(self, folder: Path) -> None:
        write_model(folder / "m", "return {'Y': inputs['X'] * len(os.environ['KEPT'])}")
        self.model = model_spec(folder / "m", {"X": "FP32"}, {"Y": "FP32"})
        self.workers = WorkersSpec((("KEPT", "123"),), orphan_s=PATIENCE_S, owner=str(folder))
        self.lines = Lines()
        self.supervisor: Supervisor | None = None

    async def gateway(self, **changes: object) -> Recorder:
        """The next gateway, whose worker has said hello."""
        heard = Recorder()
        workers = replace(self.workers, **changes)  # type: ignore[arg-type]  # fields by name
        self.supervisor = Supervisor(heard, None, self.lines, workers)
        await self.supervisor.start(SLICE)
        await heard.hear("ready")
        be_patient(heard.links[0])
        return heard

    async def let_go(self, heard: Recorder) -> None:
        assert self.supervisor is not None
        await self.supervisor.let_go(["s"])
        assert await heard.hear_lost() == "is left to the next gateway"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    if made.supervisor is not None:
        await made.supervisor.stop(0)


def keepers() -> list[int]:
    return [
        pid for pid in children(os.getpid()) if b"serving.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def told(pid: int, file: str) -> bytes:
    return Path(f"/proc/{pid}/{file}").read_bytes()


async def load(heard: Recorder, model: ModelSpec, replica: int = 1) -> None:
    heard.links[0].load(replica, model, "only", "r1")
    assert (await heard.hear("loaded"))[0] == replica


async def answered(heard: Recorder, replica: int = 1, width: int = 1) -> None:
    row = bytes([0, 0, 128, 63]) * width
    heard.links[0].run(7, replica, 1, [BatchInput("FP32", (width,), [row])], ())
    result = await heard.hear_result()
    assert bytes(result.outputs[0].data) == bytes([0, 0, 64, 64]) * width


async def test_the_next_gateway_takes_it_over_with_its_replicas(house: House) -> None:
    first = await house.gateway()
    await load(first, house.model)
    await answered(first)
    pid = first.links[0].pid
    await house.let_go(first)
    (house.model.folder / "model.py").write_text("raise RuntimeError('it is loaded again')")
    second = await house.gateway()
    assert second.links[0].pid == pid
    await load(second, house.model, replica=5)
    for width in (1, INLINE_BYTES_MAX):
        await answered(second, 5, width)
    second.links[0].unload(5)
    await second.hear("unloaded")


async def test_it_is_taken_over_again_and_again(house: House) -> None:
    pids = set()
    for _ in range(4):
        heard = await house.gateway()
        await load(heard, house.model)
        await answered(heard)
        pids.add(heard.links[0].pid)
        await house.let_go(heard)
    assert len(pids) == 1
    heard = await house.gateway()
    assert house.supervisor is not None
    await house.supervisor.stop(PATIENCE_S)
    assert await heard.hear_lost() == "exited with 0"


async def test_how_it_ends_is_known_to_the_gateway_that_took_it_over(house: House) -> None:
    await house.let_go(await house.gateway())
    heard = await house.gateway()
    os.kill(heard.links[0].pid, signal.SIGSEGV)
    assert await heard.hear_lost() == "was killed by SIGSEGV"
    assert heard.links[0].crashed
    await until(lambda: not keepers())


async def test_a_gateway_that_would_start_it_in_another_way_starts_a_new_one_after_its_end(
    house: House,
) -> None:
    first = await house.gateway()
    await house.let_go(first)
    second = await house.gateway(environment=(("KEPT", "1"),))
    assert second.links[0].pid != first.links[0].pid
    assert len(keepers()) == 1


async def test_it_ends_if_no_gateway_comes_in_time(house: House) -> None:
    heard = await house.gateway(orphan_s=0.2)
    await house.let_go(heard)
    await until(lambda: not Path(f"/proc/{heard.links[0].pid}").exists())
    assert take_over(address(house.workers.owner, "s"), "", (0,), Pipes()) is None


async def test_no_gateway_takes_the_worker_of_one_that_lives(house: House) -> None:
    first = await house.gateway()
    supervisor = house.supervisor
    second = await house.gateway()
    try:
        assert second.links[0].pid != first.links[0].pid
        await load(first, house.model)
        await load(second, house.model)
        await answered(first)
        await answered(second)
    finally:
        assert supervisor is not None
        await supervisor.stop(0)


async def test_what_the_gateway_before_has_asked_for_is_not_answered_to_the_next(house: House) -> None:
    write_model(house.model.folder, "time.sleep(0.5); return {'Y': inputs['X'] * 3}")
    first = await house.gateway()
    await load(first, house.model)
    first.links[0].run(7, 1, 1, [BatchInput("FP32", (1,), [bytes(4)])], ())
    first.links[0].load(2, house.model, "only", "r2")
    first.links[0].unload(2)
    await house.let_go(first)
    second = await house.gateway()
    assert second.events.empty()
    await load(second, house.model)
    await answered(second)


async def test_a_load_that_was_under_way_is_given_up_and_ordered_anew(house: House) -> None:
    write_model(house.model.folder, "time.sleep(0.3); return {'Y': inputs['X'] * 3}")
    first = await house.gateway()
    first.links[0].load(1, house.model, "only", "r1")
    await asyncio.sleep(0.1)
    await house.let_go(first)
    second = await house.gateway()
    await load(second, house.model)
    await answered(second)


async def test_other_files_of_a_model_are_loaded_anew(house: House) -> None:
    first = await house.gateway()
    await load(first, house.model)
    await house.let_go(first)
    write_model(house.model.folder, "return {'Y': inputs['X'] * 0 + 3}")
    second = await house.gateway()
    second.links[0].load(1, house.model, "only", "r2")
    await second.hear("loaded")
    second.links[0].run(1, 1, 1, [BatchInput("FP32", (1,), [bytes(4)])], ())
    assert bytes((await second.hear_result()).outputs[0].data) == bytes([0, 0, 64, 64])


async def test_what_it_prints_comes_to_the_gateway_that_took_it_over(house: House) -> None:
    write_model(house.model.folder, "print('said', len(parameters)); return {'Y': inputs['X']}")
    first = await house.gateway()
    await load(first, house.model)
    await house.let_go(first)
    house.lines = Lines()
    second = await house.gateway()
    await load(second, house.model)
    second.links[0].run(1, 1, 1, [BatchInput("FP32", (1,), [bytes(4)])], (("a", True),))
    await second.hear_result()
    await until(lambda: ("s", "stdout", "m", "said 1") in house.lines.printed_lines)


@asynccontextmanager
async def calling(house: House) -> AsyncIterator[Callable[[bytes], bytes]]:
    """What a keeper answers to a packet without descriptors."""
    heard = await house.gateway()
    await house.let_go(heard)

    def call(packet: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.settimeout(PATIENCE_S)
            caller.connect(address(house.workers.owner, "s"))
            caller.send(packet)
            return caller.recv(100)

    yield call


@pytest.mark.parametrize("packet", [b"", b"x", b"2 1", b"\xff\xff \xff", b"9" * 300, b"-1 0 x"])
async def test_garbage_at_its_address_changes_nothing(house: House, packet: bytes) -> None:
    async with calling(house) as call:
        pid = keepers()
        answer = await asyncio.to_thread(call, packet)
        assert answer in (b"", b"differs")
        if not answer:
            await house.gateway()
            assert keepers() == pid


async def test_another_value_of_a_variable_that_it_inherits_starts_a_new_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.workers = replace(house.workers, inherit=("LICENCE",))
    monkeypatch.setenv("LICENCE", "a")
    first = await house.gateway()
    await house.let_go(first)
    monkeypatch.setenv("LICENCE", "b")
    second = await house.gateway()
    assert second.links[0].pid != first.links[0].pid


async def test_no_secret_is_in_its_command_line(house: House) -> None:
    heard = await house.gateway()
    line, named = told(heard.links[0].pid, "cmdline"), told(heard.links[0].pid, "environ")
    (fingerprint,) = (each for each in named.split(b"\0") if each.startswith(b"PENSTOCK_FINGERPRINT="))
    assert fingerprint.partition(b"=")[2] not in line


async def test_one_that_cannot_wait_ends_when_it_is_let_go_also_if_it_hangs(house: House) -> None:
    heard = await house.gateway(owner="")
    os.kill(heard.links[0].pid, signal.SIGSTOP)
    assert house.supervisor is not None
    await house.supervisor.let_go(["s"], grace_s=0.1)
    assert await heard.hear_lost() == "was killed by SIGKILL"
