"""Promises of the door and of far workers: who joins, what is lost with a node, and what is said of it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from router.settings.door.certificates import make_context
from serving.runtime.nodes import node as node_module
from serving.runtime.nodes.dialing import call_as_node
from serving.runtime.nodes.greeting import NotAdmittedError
from serving.runtime.nodes.notes import Join
from serving.runtime.nodes.session import NodeSession
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec
from serving.worker.frames.batches import BatchInput
from tests.certificates import Authority
from tests.runtime.nodes.estate import TOKEN, Estate, about_here, estate, until
from tests.runtime.recorder import Recorder, model_spec, write_model

pytestmark = [pytest.mark.live, pytest.mark.slow]

FAR = SliceSpec("s", (0,), node="n")
DOMAIN = "n/cpu"


@pytest.fixture
def heard() -> Recorder:
    return Recorder()


@pytest.fixture
async def place(heard: Recorder, tmp_path: Path) -> AsyncIterator[Estate]:
    async with estate(heard, tmp_path) as made:
        yield made


async def ready(place: Estate, heard: Recorder) -> None:
    """A node with a worker of FAR that is ready."""
    place.node("n")
    await place.joined("n")
    await place.far.start(FAR)
    await heard.hear("ready")


def echo(folder: Path) -> ModelSpec:
    """A model that answers with what it was asked."""
    return model_spec(write_model(folder / "m", "return {'Y': inputs['X']}"), {"X": "FP32"}, {"Y": "FP32"})


async def test_the_slices_of_a_node_that_is_not_there_are_lost_until_it_joins(
    place: Estate, heard: Recorder
) -> None:
    await place.far.start(FAR)
    assert await heard.hear_lost() == "could not be started: node n has not joined"
    assert place.devices.told == [("lost", DOMAIN, "node n has not joined")]
    place.node("n")
    await until(lambda: ("back", DOMAIN) in place.devices.told)
    await place.far.start(FAR)
    await heard.hear("ready")


async def test_a_node_that_dies_takes_its_workers_along_and_comes_back(
    place: Estate, heard: Recorder
) -> None:
    await ready(place, heard)
    place.far.sessions["n"].abort("was cut off by a test")
    assert await heard.hear_lost() == "was lost: node n was cut off by a test"
    await until(lambda: ("lost", DOMAIN, "node n was cut off by a test") in place.devices.told)
    await until(lambda: ("back", DOMAIN) in place.devices.told)  # the agent calls again
    await place.far.start(FAR)
    await heard.hear("ready")


async def test_a_killed_worker_is_reported_by_its_node(place: Estate, heard: Recorder) -> None:
    await ready(place, heard)
    os.kill(heard.links[0].pid, signal.SIGKILL)
    assert await heard.hear_lost() == "was killed by SIGKILL"


async def test_a_node_that_answers_no_ping_is_lost(
    place: Estate, heard: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.runtime.nodes.session.PING_S", 0.02)
    stream = await call_as_node(place.gateway, "n", TOKEN)
    stream.send(about_here())
    await place.joined("n")
    await place.joined("n", there=False)
    assert place.door.describe()[0].lost == "has not answered 3 pings"
    stream.abort()


async def test_what_a_model_prints_and_raises_on_a_node_is_in_the_gateways_log(
    place: Estate, heard: Recorder, tmp_path: Path
) -> None:
    await ready(place, heard)
    body = "print('hello', flush=True)\n        raise ValueError('no')"
    model = model_spec(write_model(tmp_path / "m", body), {"X": "FP32"}, {"Y": "FP32"})
    heard.links[0].load(1, model, "only")
    await heard.hear("replica_failed")
    await until(lambda: bool(place.log.printed_lines and place.log.raised_errors))
    assert place.log.printed_lines[0][0] == "s"
    assert place.log.printed_lines[0][3].endswith("hello")
    assert "no" in place.log.raised_errors[0][1].sentence


async def test_files_that_cannot_be_read_fail_the_load_alone(
    place: Estate, heard: Recorder, tmp_path: Path
) -> None:
    await ready(place, heard)
    good = echo(tmp_path)
    bad = replace(
        good, code=tmp_path / "gone" / "x.py", variants=(replace(good.variants[0], artifact=tmp_path / "no"),)
    )
    link = heard.links[0]
    link.load(1, bad, "only")
    link.load(2, good, "only")
    replica, message = await heard.hear("replica_failed")
    assert replica == 1
    assert "could not be brought to its node" in str(message)
    assert (await heard.hear("loaded"))[0] == 2
    link.run(1, 2, 1, [BatchInput("FP32", (1,), [bytes(4)])], ())
    assert (await heard.hear_result()).batch_id == 1


async def test_an_unload_overtakes_no_load(place: Estate, heard: Recorder, tmp_path: Path) -> None:
    await ready(place, heard)
    model = echo(tmp_path)
    link = heard.links[0]
    link.load(1, model, "only")
    link.unload(1)
    link.load(2, model, "only")
    assert await heard.hear("unloaded") == (1,)
    assert (await heard.hear("loaded"))[0] == 2


@pytest.mark.parametrize(
    ("name", "join", "token", "why"),
    [
        ("n", about_here(), "another token", "the gateway has another token"),
        ("n", replace(about_here(), release="0"), TOKEN, "has Penstock 0, and the gateway has 1"),
        ("a\nb", about_here(), TOKEN, "has a name that cannot be printed"),
    ],
)
async def test_a_node_that_may_not_join_is_told_why(
    place: Estate, name: str, join: Join, token: str, why: str
) -> None:
    with pytest.raises(NotAdmittedError, match=why):
        await run_alone(place, name, join, token)
    assert not place.far.sessions


async def run_alone(place: Estate, name: str, join: Join, token: str) -> None:
    await place.made(name, join, token).run()


async def test_two_machines_of_one_name_do_not_turn_each_other_out(
    place: Estate, caplog: pytest.LogCaptureFixture
) -> None:
    first = place.node("n")
    await place.joined("n")
    session: NodeSession = place.far.sessions["n"]
    place.node("n")
    await until(lambda: "has the name of a node that is here" in caplog.text)
    assert place.far.sessions["n"] is session
    await first.stop()
    await until(lambda: place.far.sessions.get("n") not in (None, session))  # it has called again


@pytest.mark.parametrize(
    ("spec", "join", "why"),
    [
        (replace(FAR, cores=(0, 7)), about_here(4), "node n has 4 cores, 0 to 3, and no core 7"),
        (replace(FAR, kind="cpu-other"), about_here(), "states cpu-other: state `kind: "),
        (FAR, replace(about_here(), kind="cpu-other"), "state `kind: cpu-other` in its entry of `slices:`"),
        (replace(FAR, device="cuda:1", kind="gpu-x"), about_here(), "node n has no GPU, and no cuda:1"),
    ],
)
async def test_a_slice_that_its_node_cannot_have_says_what_would_be_right(
    place: Estate, heard: Recorder, spec: SliceSpec, join: Join, why: str
) -> None:
    place.node("n", join)
    await place.joined("n")
    await place.far.start(spec)
    assert why in await heard.hear_lost()


async def test_a_node_that_leaves_says_so_first(place: Estate, heard: Recorder) -> None:
    await ready(place, heard)
    await place.nodes["n"].stop()
    await until(lambda: ("leaving", DOMAIN, "node n is leaving") in place.devices.told)
    assert await heard.hear_lost() == "was lost: node n is leaving"


async def test_a_gateway_that_is_not_there_is_called_again(
    heard: Recorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with estate(heard, tmp_path) as place:
        gateway = place.gateway
        await place.door.close()
        node = place.node("n")
        await until(lambda: "it is called again" in caplog.text)
        assert str(gateway) in caplog.text
        await node.stop()


async def test_a_node_joins_the_next_gateway_if_its_own_is_lost(
    heard: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "LOYAL_US", 300_000)
    monkeypatch.setattr(node_module, "FIRST_WAIT_S", 0.05)
    async with estate(heard, tmp_path) as first, estate(heard, tmp_path) as second:
        first.gateways = [first.gateway, second.gateway]
        first.node("n")
        await first.joined("n")
        begin = asyncio.get_running_loop().time()
        await first.door.close()
        await second.joined("n")
        assert asyncio.get_running_loop().time() - begin > 0.25  # its own gateway was called first
        await first.nodes["n"].stop()


async def test_a_node_joins_the_first_gateway_that_is_there(heard: Recorder, tmp_path: Path) -> None:
    async with estate(heard, tmp_path) as absent, estate(heard, tmp_path) as there:
        await absent.door.close()
        there.gateways = [absent.gateway, there.gateway]
        there.node("n")
        await there.joined("n")


async def test_clocks_are_compared(place: Estate, heard: Recorder) -> None:
    """Both are the same clock here, so the difference is nothing but half a trip's unevenness."""
    await ready(place, heard)
    session = place.far.sessions["n"]
    await until(lambda: session.trip_us > 0)
    assert abs(session.ahead_us) <= session.trip_us
    await asyncio.sleep(0)


async def test_batches_pass_an_encrypted_connection_and_end_with_it(heard: Recorder, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    context = make_context(authority.tls(authority.sign("server").stem))
    async with estate(heard, tmp_path, context=context) as place:
        place.gateway = replace(place.gateway, context=authority.client())
        await ready(place, heard)
        model = model_spec(
            write_model(tmp_path / "m", "return {'Y': inputs['X']}"), {"X": "FP32"}, {"Y": "FP32"}
        )
        link = heard.links[0]
        link.load(1, model, "only")
        await heard.hear("loaded")
        link.run(1, 1, 2, [BatchInput("FP32", (1 << 18,), [bytes(2 << 20)])], ())
        link.close()  # what it was sent it answers
        result = await heard.hear_result()
        assert bytes(result.outputs[0].rows(0, 2)) == bytes(2 << 20)
        assert await heard.hear_lost() == "exited with 0"


async def test_strangers_are_few_and_have_little_time(
    place: Estate, heard: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("serving.runtime.nodes.doorstep.STRANGERS_MAX", 2)
    monkeypatch.setattr("serving.runtime.nodes.doorstep.GREET_S", 0.3)
    await ready(place, heard)
    silent = [await asyncio.open_connection(place.gateway.host, place.gateway.port) for _ in range(3)]
    assert await silent[2][0].read() == b""  # at once
    assert "came while too many others had not proved themselves" in caplog.text
    for reader, writer in silent:  # the others after their time
        assert b"GET" not in await reader.read()
        writer.close()
    assert "n" in place.far.sessions
    assert heard.events.empty()


async def test_garbage_at_the_door_harms_nothing(place: Estate, heard: Recorder) -> None:
    await ready(place, heard)
    reader, writer = await asyncio.open_connection(place.gateway.host, place.gateway.port)
    writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n" * 400)
    assert b"does not admit it" in await reader.read()
    writer.close()
    assert "n" in place.far.sessions


async def test_a_workers_key_opens_one_connection(place: Estate, heard: Recorder) -> None:
    await ready(place, heard)
    assert place.far.key_of("1") == ""  # it has called
    assert place.far.key_of("2") == ""
    assert place.far.key_of("x") == ""


async def test_a_worker_that_computes_for_long_keeps_its_connection(
    place: Estate, heard: Recorder, tmp_path: Path
) -> None:
    """The next batch waits in front of a full buffer meanwhile."""
    await ready(place, heard)
    body = "__import__('time').sleep(2.5 if len(inputs['X']) == 2 else 0); return {'Y': inputs['X'][:, :1]}"
    model = model_spec(write_model(tmp_path / "m", body), {"X": "FP32"}, {"Y": "FP32"})
    link = heard.links[0]
    link.load(1, model, "only")
    await heard.hear("loaded")
    for batch, rows in ((1, 2), (2, 3)):
        link.run(batch, 1, rows, [BatchInput("FP32", (1 << 21,), [bytes(4 * rows << 21)])], ())
    assert (await heard.hear_result()).batch_id == 1
    assert (await heard.hear_result()).batch_id == 2
