"""`/v2/placement`: a placement is checked, kept and carried out; or it is not, and all is as before."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from router.management.operations.applied import PlannedFor, path_of, read, settings_in_force
from router.management.operations.current import ChangeRefused, Current
from router.management.operations.placement import PlacementService, add_placement
from router.settings import Settings, load_settings
from serving.control.rollouts.rollout import Progress, RolloutState
from serving.control.state.desired import DesiredState
from serving.profile.curve import Profile
from serving.values.objectives import ScalingSpec
from tests.router.settings.samples import write_deployment, write_gateway

pytestmark = pytest.mark.live

GATEWAY = """\
slices: [{name: cpu-a, cores: 1}, {name: cpu-b, cores: 1}]
models:
  - {path: models/digits, slices: [cpu-a], default_variant: linear}
  - {path: models/minilm, slices: [cpu-b]}
"""
PATIENCE_S = 60.0
STEADY = Progress(RolloutState.STEADY, 1, 1)
LOAD = {"requests_per_s": 50.0, "rows": 2.0, "capacity_rows_per_s": 400.0}
BODY = {
    "slices": [{"name": "cpu-a", "cores": 1}, {"name": "wide", "cores": 2, "threads": 2}],
    "models": {"digits": {"slices": ["cpu-a", "wide"], **LOAD}, "minilm": {"slices": ["wide"]}},
}


@dataclass
class Workers:
    """A fleet that reaches what is wanted when it is told so."""

    progress: Progress = STEADY
    given_up: tuple[str, ...] = ()
    wanted: list[tuple[DesiredState, Sequence[DesiredState]]] = field(default_factory=list)
    scaled: list[ScalingSpec] = field(default_factory=list)
    event: asyncio.Event = field(default_factory=asyncio.Event)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def movement(self) -> RolloutState:
        return self.progress.state

    def know(self, known: Mapping[tuple[str, str, str], Profile]) -> None:
        pass

    def want(self, wanted: DesiredState, by: Sequence[DesiredState] = ()) -> None:
        self.wanted.append((wanted, by))
        self.told.set()
        self.given_up = ()
        self.progress = Progress(RolloutState.MOVING, 1, 2, waiting=("slice wide is starting",))

    def scale(self, spec: ScalingSpec) -> None:
        self.scaled.append(spec)

    def roll_back(self, reason: str = "an operator rolled it back") -> None:
        self.progress = Progress(RolloutState.TURNING_BACK, 1, 1)
        self.given_up = (reason,)

    async def changed(self) -> None:
        await self.event.wait()

    def arrive(self, *given_up: str) -> None:
        """The move is over."""
        self.given_up = self.given_up or given_up
        self.progress = STEADY
        self.event.set()


@dataclass
class House:
    settings: Settings
    workers: Workers
    current: Current
    placement: PlacementService
    client: httpx.AsyncClient
    drift: list[str]
    disk: threading.Event
    """Cleared: reading profiles takes until it is set."""

    async def get(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.client.get("/v2/placement")).json()
        return found

    async def put(self, body: object = BODY) -> httpx.Response:
        return await self.client.put("/v2/placement", content=json.dumps(body))

    async def until_wanted(self, times: int = 1) -> None:
        """Until the move has reached the workers."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.workers.wanted) < times:
                self.workers.told.clear()
                await self.workers.told.wait()

    async def ended(self) -> dict[str, Any]:
        """What is said once the move is over."""
        assert self.placement._move is not None
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([self.placement._move])
        found = await self.get()
        assert found["moving"] == ""
        return found


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    settings = load_settings(write_deployment(tmp_path, GATEWAY))
    workers = Workers()
    disk = threading.Event()
    disk.set()

    def stored(_settings: Settings) -> dict[tuple[str, str, str], Profile]:
        disk.wait(PATIENCE_S)
        return {}

    current = Current(settings, workers, stored)
    drift: list[str] = []
    placement = PlacementService(current, lambda: drift)
    app = FastAPI()
    add_placement(app, placement)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield House(settings, workers, current, placement, client, drift, disk)
    disk.set()


async def test_before_anything_is_applied_it_is_what_the_file_says(house: House) -> None:
    found = await house.get()
    assert found["slices"][0] == {
        "name": "cpu-a",
        "cores": 1,
        "threads": 1,
        "on": [0],
        "memory_bytes": 0,
        "price": 0.0,
        "spot": False,
    }
    assert found["models"]["digits"] == {"slices": ["cpu-a"], "variant": "linear", "load": None}
    assert [found[key] for key in ("by", "id", "moving", "outcome", "drift")] == ["file", "", "", None, []]
    assert found["progress"]["state"] == "steady"


async def test_a_placement_is_kept_before_its_move_begins_and_is_in_force_from_then_on(house: House) -> None:
    answer = await house.put()
    assert answer.status_code == 202
    move = answer.json()["id"]
    kept = read(house.settings.path)
    assert kept is not None
    assert (kept.id, kept.loads) == (move, {"digits": PlannedFor(50.0, 2.0, 400.0)})
    await house.until_wanted()
    found = await house.get()
    assert (found["by"], found["id"], found["moving"]) == ("apply", move, move)
    assert found["progress"] == {
        "state": "moving",
        "step": 1,
        "steps": 2,
        "waiting": ["slice wide is starting"],
        "reasons": [],
    }
    house.workers.arrive()
    found = await house.ended()
    assert found["outcome"]["id"] == move
    assert (found["outcome"]["result"], found["outcome"]["reasons"]) == ("done", [])
    assert found["models"]["digits"]["load"] == {"requests": 50.0, "rows": 2.0, "capacity": 400.0}
    (wanted, by), *_ = house.workers.wanted
    assert by == ()
    assert {each.spec.name: each.spec.cores for each in wanted.slices} == {"cpu-a": (0,), "wide": (2, 3)}


async def test_a_gateway_that_is_killed_in_mid_move_starts_with_what_was_wanted(house: House) -> None:
    await house.put()
    await house.until_wanted()
    started, said = settings_in_force(load_settings(house.settings.path))
    assert started.slices == house.current.settings.slices
    assert said
    house.workers.arrive()
    await house.ended()


async def test_the_states_on_the_way_reach_the_workers(house: House) -> None:
    step = [{"name": "cpu-a", "cores": 1, "models": {"digits": True}}]
    await house.put(BODY | {"steps": [step]})
    await house.until_wanted()
    ((_, (state,)),) = house.workers.wanted
    assert [each.spec.name for each in state.slices] == ["cpu-a"]
    house.workers.arrive()
    await house.ended()


@pytest.mark.parametrize("applied_before", [False, True])
async def test_where_a_move_turns_back_what_was_kept_is_kept_again(
    house: House, applied_before: bool
) -> None:
    before = None
    if applied_before:
        slices = [{"name": "cpu-a", "cores": 1}]
        models = {name: {"slices": ["cpu-a"]} for name in ("digits", "minilm")}
        before = (await house.put({"slices": slices, "models": models})).json()["id"]
        await house.until_wanted()
        house.workers.arrive()
        await house.ended()
        house.workers.event.clear()
    move = (await house.put()).json()["id"]
    await house.until_wanted(1 + applied_before)
    house.workers.arrive("slice wide: no memory")
    found = await house.ended()
    assert found["outcome"] | {"seconds": 0} == {
        "id": move,
        "result": "rolled back",
        "reasons": ["slice wide: no memory"],
        "seconds": 0,
    }
    kept = read(house.settings.path)
    assert (kept.id if kept else None) == before
    assert (found["by"], found["id"]) == (("apply", before) if before else ("file", ""))
    assert [each["name"] for each in found["slices"]] == (["cpu-a"] if before else ["cpu-a", "cpu-b"])


async def test_a_move_is_given_up_on_request(house: House) -> None:
    await house.put()
    await house.until_wanted()
    answer = await house.client.post("/v2/placement/roll-back")
    assert answer.status_code == 202
    assert (await house.get())["progress"]["state"] == "rolling back"
    house.workers.arrive()
    found = await house.ended()
    assert found["outcome"]["reasons"] == ["an operator rolled it back"]
    assert read(house.settings.path) is None


async def test_a_gateway_that_is_killed_on_the_way_back_starts_with_what_was_there_before(
    house: House,
) -> None:
    await house.put()
    await house.until_wanted()
    await house.client.post("/v2/placement/roll-back")
    house.workers.event.set()  # something happens; the way back is not at its end
    house.workers.event.clear()
    async with asyncio.timeout(PATIENCE_S):
        while read(house.settings.path) is not None:  # noqa: ASYNC110  # a file tells nobody
            await asyncio.sleep(0.001)
    assert (await house.get())["progress"]["state"] == "rolling back"
    house.workers.arrive()
    await house.ended()


async def test_replicas_follow_load_as_the_change_says_and_as_before_where_it_is_given_up(
    house: House,
) -> None:
    hpa = ScalingSpec("hpa", 0.6)
    for times, given_up in enumerate(((), ("no memory",)), 1):
        house.workers.event.clear()
        changing = asyncio.create_task(house.current.change(replace(house.settings, scaling=hpa)))
        await house.until_wanted(times)
        house.workers.arrive(*given_up)
        await asyncio.wait([changing])
        assert isinstance(changing.exception(), ChangeRefused) == bool(given_up)
        house.current.settings = house.settings
    assert house.workers.scaled == [hpa, hpa, ScalingSpec()]


async def test_there_is_nothing_to_give_up_where_nothing_moves(house: House) -> None:
    answer = await house.client.post("/v2/placement/roll-back")
    assert answer.status_code == 409
    assert answer.json()["reasons"] == ["no placement is being carried out"]


async def test_a_bad_placement_is_refused_with_all_reasons_and_nothing_is_kept(house: House) -> None:
    answer = await house.put({"slices": [{"name": "x", "cores": 9}], "models": {"mlp": {"slices": ["x"]}}})
    assert answer.status_code == 400
    assert answer.json()["reasons"] == [
        "models: unknown model; got 'mlp', expected digits or minilm",
        "models: 'digits' is missing; expected every model that is served",
        "models: 'minilm' is missing; expected every model that is served",
        "slices: no such cores here; got 9, expected at most 4 in all",
    ]
    assert answer.json()["error"].startswith("models: unknown model")
    assert not path_of(house.settings.path).exists()
    assert not house.workers.wanted
    assert (await house.put()).status_code == 202  # another may come
    await house.until_wanted()
    house.workers.arrive()
    await house.ended()


async def test_a_second_one_is_refused_while_one_is_under_way(house: House) -> None:
    first, second = await asyncio.gather(house.put(), house.put())
    assert {first.status_code, second.status_code} == {202, 409}
    await house.until_wanted()
    answer = await house.put()
    assert answer.status_code == 409
    assert answer.json()["reasons"] == [
        "another change is under way (slice wide is starting): wait for it",
    ]
    assert (await house.client.delete("/v2/placement")).status_code == 409
    house.workers.arrive()
    await house.ended()
    assert len(house.workers.wanted) == 1


async def test_a_gateway_that_is_starting_takes_none(house: House) -> None:
    house.workers.progress = Progress(RolloutState.MOVING, 1, 1, waiting=("slice cpu-a is starting",))
    answer = await house.put()
    assert answer.status_code == 409
    assert "slice cpu-a is starting" in answer.json()["error"]


async def test_a_change_that_came_first_is_not_undone(house: House) -> None:
    house.disk.clear()  # it still reads profiles: nothing moves yet
    without = replace(house.settings, models=house.settings.models[:1])
    first = asyncio.create_task(house.current.change(without))
    assert (await house.put()).status_code == 202
    house.disk.set()
    await house.until_wanted()
    house.workers.arrive()
    await first
    found = await house.ended()
    assert found["outcome"]["result"] == "rolled back"
    assert found["outcome"]["reasons"] == ["another change came first"]
    assert read(house.settings.path) is None
    assert len(house.workers.wanted) == 1
    assert house.current.settings is without


async def test_where_it_cannot_be_kept_nothing_is_changed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    answer = await house.put()
    assert answer.status_code == 500
    file = path_of(house.settings.path)
    assert answer.json()["reasons"] == [
        f"the placement cannot be kept: {file}: No space left on device; nothing is changed"
    ]
    assert not house.workers.wanted
    monkeypatch.undo()
    assert (await house.get())["moving"] == ""
    assert not [*file.parent.iterdir()]


async def test_where_there_is_no_folder_to_keep_it_in_the_answer_says_so(house: House) -> None:
    folder = path_of(house.settings.path).parent
    folder.write_text("a file in its place")
    for answer in (await house.put(), await house.client.delete("/v2/placement")):
        assert answer.status_code == 500
        (reason,) = answer.json()["reasons"]
        assert str(folder) in reason
        assert reason.endswith("; nothing is changed")
    assert not house.workers.wanted


async def test_a_file_that_is_not_sound_is_to_be_mended_first(house: House) -> None:
    write_gateway(house.settings.path.parent, "models: [")
    for answer in (await house.put(), await house.client.delete("/v2/placement")):
        assert answer.status_code == 409
        assert answer.json()["reasons"][0] == "mend penstock.yaml first"
        assert len(answer.json()["reasons"]) > 1


async def test_back_to_the_file_forgets_what_was_applied(house: House) -> None:
    await house.put()
    await house.until_wanted()
    house.workers.arrive()
    await house.ended()
    house.workers.event.clear()
    answer = await house.client.delete("/v2/placement")
    assert answer.status_code == 202
    assert read(house.settings.path) is None
    await house.until_wanted(2)
    assert [each.spec.name for each in house.workers.wanted[1][0].slices] == ["cpu-a", "cpu-b"]
    house.workers.arrive()
    found = await house.ended()
    assert (found["by"], found["outcome"]["id"]) == ("file", answer.json()["id"])
    assert found["models"]["minilm"]["slices"] == ["cpu-b"]


async def test_a_move_that_fails_inside_the_gateway_says_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_wanted: DesiredState, _by: Sequence[DesiredState] = ()) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(house.workers, "want", fail)
    await house.put()
    found = await house.ended()
    assert found["outcome"]["result"] == "failed"


async def test_what_has_drifted_is_told(house: House) -> None:
    house.drift.append("digits is asked too much")
    assert (await house.get())["drift"] == ["digits is asked too much"]


async def test_a_move_that_has_not_begun_to_move_anything_is_given_up_too(house: House) -> None:
    house.disk.clear()  # it still reads profiles
    await house.put()
    assert (await house.client.post("/v2/placement/roll-back")).status_code == 202
    house.disk.set()
    found = await house.ended()
    assert found["outcome"]["reasons"] == ["an operator rolled it back"]
    assert not house.workers.wanted
    assert read(house.settings.path) is None
