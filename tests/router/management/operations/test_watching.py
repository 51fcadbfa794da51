"""An edit of penstock.yaml is in force as a whole, or refused with every reason and nothing done."""

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from router.management.operations.watching import _fixed
from router.settings import load_settings
from router.settings.values.schema import GatewayFile
from serving.values.objectives import RateSpec
from tests.config_map import ConfigMap
from tests.router.management.operations.worlds import GATEWAY, World

pytestmark = pytest.mark.live


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_at_the_start_nothing_is_done_unless_the_file_was_edited_meanwhile(world: World) -> None:
    await world.watch.look()
    await world.watch.look()
    assert (world.said, world.current.changes) == ([], [])


async def test_an_edit_before_the_first_look_is_not_missed(world: World) -> None:
    await world.edit("slo_ms: 40", "slo_ms: 50")
    assert world.served["digits"].slo_us == 50_000


async def test_another_slo_is_in_force(world: World) -> None:
    await world.watch.look()
    await world.edit("slo_ms: 40", "slo_ms: 50")
    assert world.served["digits"].slo_us == 50_000
    assert world.said[0] == f"{world.path} was edited: digits: slo_ms 40 -> 50"
    assert world.said[1].startswith(f"{world.path} is in force")


async def test_models_and_slices_come_and_go(world: World) -> None:
    world.add_folder("spare")
    await world.edit("  - {path: models/minilm}", "  - {path: models/spare, slices: [b]}")
    assert [*world.served] == ["digits", "spare"]
    assert world.said[0].endswith("minilm is removed; spare is added")
    await world.edit("{name: b}]", "{name: b}, {name: c}]")
    assert [each.name for each in world.current.settings.slices] == ["a", "b", "c"]
    entry = next(each for each in await world.repository.index() if each.name == "minilm")
    assert entry.reason == "unloaded"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slo_ms: 40", "slo_ms: 40, variants: [linear]", "digits: variants linear, cnn -> linear answers"),
        ("slo_ms: 40", "slo_ms: 40, default_variant: linear", "digits: cnn -> linear answers"),
        ("slo_ms: 40", "slo_ms: 40, batching: {policy: static, size: 2}", "digits: batching"),
        ("slo_ms: 40", "slo_ms: 40, cache: false", "digits: cache"),
        ("slices: [a]", "slices: [a, b]", "digits: slices a, b"),
    ],
)
async def test_what_is_served_otherwise_is_said(world: World, old: str, new: str, said: str) -> None:
    await world.edit(old, new)
    assert world.said[0].endswith(said)
    assert len(world.current.changes) == 1


async def test_only_warnings_that_an_edit_brings_are_said(world: World) -> None:
    def warnings() -> int:
        return sum(line.startswith("warning: ") for line in world.said)

    await world.edit("{path: models/minilm}", "{path: models/minilm, tolerance: 0.1}")
    assert warnings() == 1  # nobody has measured how accurate the variants are
    await world.edit("models:\n", "# one line further down\nmodels:\n")
    await world.edit("slo_ms: 40", "slo_ms: 50")
    assert warnings() == 1
    world.add_folder("spare")
    await world.edit("models:\n", "models:\n  - {path: models/spare, tolerance: 0.1}\n")
    assert warnings() == 2
    await world.edit("{path: models/minilm, tolerance: 0.1}", "{path: models/minilm}")
    await world.edit("{path: models/minilm}", "{path: models/minilm, tolerance: 0.1}")
    assert warnings() == 3  # it is there again


@pytest.mark.parametrize(
    ("new", "place"),
    [("", "1:1: cache"), ("cache: false\n", "7:8: cache"), ("cache: {ttl_s: 5}\n", "7:8: cache")],
)
async def test_whether_and_how_answers_are_kept_needs_a_restart(world: World, new: str, place: str) -> None:
    await world.edit("cache:\n", new)
    assert [reason.removeprefix(f"{world.path}:")[: len(place)] for reason in world.watch.refused] == [place]


async def test_other_comments_change_nothing(world: World) -> None:
    await world.edit("models:\n", "models:  # all of them\n")
    assert (world.said, world.current.changes) == ([], [])


async def test_a_bad_edit_is_refused_with_the_place_of_every_fault_and_the_old_one_stays(
    world: World,
) -> None:
    await world.edit("slo_ms: 40}\n  - {path: models/minilm}", "slo_ms: soon}\n  - {pth: models/minilm}")
    *others, unknown = [reason.removeprefix(str(world.path)) for reason in world.watch.refused]
    assert others == [
        ":4:48: models[0].slo_ms: not a number; got 'soon', expected a number",
        ":5:5: models[1].path: this key is required",
    ]
    assert unknown.startswith(":5:6: models[1].pth: unknown key; got 'pth', expected slo_ms, slo_rows, ")
    assert unknown.endswith(" (did you mean path?)")
    assert world.said[0] == f"the edit of {world.path} is refused, nothing of it is done:"
    assert world.said[1:] == [f"  {reason}" for reason in world.watch.refused]
    assert world.current.changes == []
    assert world.served["digits"].slo_us == 40_000


async def test_when_the_file_was_last_in_force_is_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = iter((1.0, 2.0, 3.0))
    monkeypatch.setattr("router.management.operations.watching.time", lambda: next(now_s))
    begun_s = world.watch.in_force_s
    await world.edit("slo_ms: 40", "slo_ms: -40")
    assert (bool(world.watch.refused), world.watch.in_force_s) == (True, begun_s)
    await world.edit("slo_ms: -40", "slo_ms: 50")
    assert (world.watch.refused, world.watch.in_force_s) == ((), 1.0)
    await world.edit("models:\n", "models:  # all of them\n")
    assert world.watch.in_force_s == 2.0
    world.current.refusal = ("no memory",)
    await world.edit("slo_ms: 50", "slo_ms: 60")
    assert (world.watch.refused, world.watch.in_force_s) == (("no memory",), 2.0)


async def test_an_edit_that_takes_a_bad_one_back_is_in_force_again(world: World) -> None:
    await world.edit("slo_ms: 40", "slo_ms: -40")
    assert world.watch.refused
    await world.edit("slo_ms: -40", "slo_ms: 40")
    assert world.watch.refused == ()
    assert "is in force" in world.said[-1]


@pytest.mark.parametrize(
    ("new", "places"),
    [
        ("server: {rest_port: 9100, name: other}", ["1:10: server.rest_port", "1:27: server.name"]),
        ("server: {rest_port: 9000}\nlimits: {drain_s: 5}", ["2:9: limits"]),
        ("server: {rest_port: 9000}\nadmin: {port: 9004}", ["2:8: admin"]),
        ("server: {rest_port: 9000}\ntenants: [{name: x}]", ["2:10: tenants"]),
        ("server: {rest_port: 9000}\nrecording: {}", ["2:12: recording"]),
        ("server: {rest_port: 9000}\nworkers: {memory_mb: 500}", ["2:10: workers"]),
        ("server: {rest_port: 9000}\nprofiles: {remeasure: false}", ["2:11: profiles"]),
        ("", ["2:1: server"]),
    ],
)
async def test_what_needs_a_restart_is_named_and_nothing_else_of_the_edit_is_done(
    world: World, new: str, places: list[str]
) -> None:
    text = world.path.read_text().replace("slo_ms: 40", "slo_ms: 50")
    world.path.write_text(text.replace("server: {rest_port: 9000}", new))
    await world.watch.look()
    expected = [f"{world.path}:{place}: cannot be changed while" for place in places]
    assert len(world.watch.refused) == len(expected)
    for reason, beginning in zip(world.watch.refused, expected, strict=True):
        assert reason.startswith(beginning)
        assert reason.endswith("needs a restart")
    assert world.current.changes == []


def test_the_page_says_of_each_section_whether_it_is_live(world: World) -> None:
    page = (Path(__file__).parents[4] / "docs" / "repository.md").read_text("utf-8")
    (live,) = re.findall(r"^- \*\*Live\*\*: (.*)\.$", page, re.MULTILINE)
    (fixed,) = re.findall(r"^- \*\*Needs a restart\*\*: (.*?) \(", page, re.MULTILINE)
    listed = [re.findall(r"`(\w+):`", sections) for sections in (live, fixed)]
    assert sorted(listed[0] + listed[1]) == sorted(GatewayFile.model_fields)
    filed = load_settings(world.path)
    assert filed.document is not None
    held = [section for section, _, _ in _fixed(filed, filed.document, filed, filed.document)]
    assert sorted(listed[1]) == sorted(held)


async def test_a_rate_counts_at_once_and_all_else_of_a_tenant_needs_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path, f"tenants: [{{name: shop}}]\n{GATEWAY}")
    rates: list[object] = []
    world.repository.on_filed = lambda filed: rates.append([each.rate for each in filed.tenants])
    await world.edit("{name: shop}", "{name: shop, rate: {concurrent: 3}}")
    assert rates == [[RateSpec(concurrent=3)]]
    await world.edit("{name: shop,", "{name: shop, weight: 2,")
    assert (len(world.watch.refused), len(rates)) == (1, 1)


async def test_what_the_same_is_said_in_more_words_needs_no_restart(world: World) -> None:
    await world.edit("{rest_port: 9000}", "{rest_port: 9000, name: penstock, grpc_port: 8001}\nlimits: {}")
    assert world.watch.refused == ()


async def test_ports_of_the_command_line_are_not_the_files(world: World) -> None:
    settings = world.current.settings
    server, admin = replace(settings.server, rest_port=0), replace(settings.admin, port=0)
    world.current.settings = replace(settings, server=server, admin=admin)
    await world.edit("slo_ms: 40", "slo_ms: 50")
    assert world.watch.refused == ()
    assert world.current.settings.server.rest_port == 0
    assert world.current.settings.admin.port == 0


async def test_what_cannot_be_loaded_is_refused_and_the_next_edit_counts(world: World) -> None:
    world.current.refusal = ("digits cnn cannot be loaded: no memory",)
    await world.edit("slo_ms: 40", "slo_ms: 50")
    assert world.watch.refused == world.current.refusal
    world.current.refusal = ()
    await world.edit("slo_ms: 50", "slo_ms: 60")
    assert world.served["digits"].slo_us == 60_000
    assert "slo_ms 40 -> 60" in world.said[-2]  # against what is in force


async def test_a_touch_has_what_was_refused_tried_again(world: World) -> None:
    world.current.refusal = ("no memory",)
    await world.edit("slo_ms: 40", "slo_ms: 50")
    world.current.refusal = ()
    await world.watch.look()
    assert world.served["digits"].slo_us == 40_000
    os.utime(world.path, ns=(1, 1))
    await world.watch.look()
    assert world.served["digits"].slo_us == 50_000
    assert world.watch.refused == ()


async def test_a_file_that_is_gone_is_waited_for(world: World) -> None:
    await world.watch.look()
    text = world.path.read_text()
    world.path.unlink()
    await world.watch.look()
    await world.watch.look()
    assert world.said == [f"{world.path} is gone: what it said stays in force until it is back"]
    world.path.write_text(text.replace("slo_ms: 40", "slo_ms: 50"))
    await world.watch.look()
    assert world.served["digits"].slo_us == 50_000


async def test_what_clients_unloaded_stays_so_until_the_file_says_something_new_of_it(world: World) -> None:
    await world.repository.unload("digits")
    await world.edit("{path: models/minilm}", "{path: models/minilm, slo_ms: 99}")
    assert [*world.served] == ["minilm"]
    await world.edit("slo_ms: 40", "slo_ms: 50")
    assert [*world.served] == ["digits", "minilm"]


async def test_what_clients_loaded_stays_so_until_the_file_names_and_drops_it(world: World) -> None:
    world.add_folder("spare")
    await world.repository.load("spare")
    await world.edit("[{name: a}, {name: b}]", "[{name: a}, {name: b}, {name: c}]")
    assert world.served["spare"].slices == ("a", "b", "c")
    await world.edit("{path: models/minilm}", "{path: models/minilm}\n  - {path: models/spare, slo_ms: 5}")
    assert world.served["spare"].slo_us == 5_000
    await world.edit("\n  - {path: models/spare, slo_ms: 5}", "")
    assert [*world.served] == ["digits", "minilm"]


async def test_an_edit_that_is_refused_takes_no_clients_word_back(world: World) -> None:
    await world.repository.unload("digits")
    world.current.refusal = ("no memory",)
    await world.edit("slo_ms: 40", "slo_ms: 50")
    world.current.refusal = ()
    await world.edit("slo_ms: 50", "slo_ms: 40")
    assert [*world.served] == ["minilm"]


async def test_control_is_given_and_taken_live(world: World) -> None:
    await world.edit("[models]}", "[models], control: false}")
    assert not world.repository.filed.repository.control
    assert world.watch.refused == ()


async def wait_for(world: World, sentence: str) -> None:
    async with asyncio.timeout(60):
        while not any(sentence in line for line in world.said):
            world.spoke.clear()
            await world.spoke.wait()


async def looked(world: World) -> None:
    """Once the file is watched and was looked at: what is written now is an edit."""
    async with asyncio.timeout(60):
        while not world.watch._looked:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)


def replace_file(world: World, text: str) -> None:
    """At one blow: a file that is written in place is seen empty by who looks at the wrong moment."""
    scratch = world.home / "models" / "scratch.yaml"
    scratch.write_text(text)
    scratch.rename(world.path)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["in place", "renamed", "gone for a while", "through a link"])
async def test_however_an_editor_writes_the_edit_is_seen(tmp_path: Path, way: str) -> None:
    world = World(tmp_path)
    if way == "through a link":  # as a mounted ConfigMap
        for version in ("1", "2"):
            (tmp_path / version).mkdir()
        (tmp_path / "1" / "penstock.yaml").write_text(world.path.read_text())
        (tmp_path / "data").symlink_to("1")
        world.path.unlink()
        world.path.symlink_to("data/penstock.yaml")
    watching = asyncio.create_task(world.watch.run())
    await looked(world)
    text = world.path.read_text().replace("slo_ms: 40", "slo_ms: 50")
    match way:
        case "in place":
            world.path.write_text(text)
        case "renamed":
            scratch = tmp_path / ".penstock.yaml.swp"
            scratch.write_text(text)
            scratch.rename(world.path)
        case "gone for a while":
            world.path.rename(tmp_path / "penstock.yaml~")
            await wait_for(world, "is gone")
            world.path.write_text(text)
        case "through a link":
            (tmp_path / "2" / "penstock.yaml").write_text(text)
            (tmp_path / "next").symlink_to("2")
            os.replace(tmp_path / "next", tmp_path / "data")
    await wait_for(world, "is in force")
    assert world.served["digits"].slo_us == 50_000
    watching.cancel()
    await asyncio.wait([watching])


def elsewhere(home: Path) -> str:
    """GATEWAY, for a file that is not beside the models: their paths are absolute."""
    return GATEWAY.replace("models/", f"{home}/models/").replace("[models]", f"[{home}/models]")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["its folder", "a link to the file", "a link to the folder", "..data itself"])
async def test_each_update_of_a_mounted_config_map_is_seen(tmp_path: Path, way: str) -> None:
    """However `--config` names the file."""
    text = elsewhere(tmp_path)
    mounted = ConfigMap(tmp_path / "mount", text)
    path = mounted.mount / "penstock.yaml"
    match way:
        case "a link to the file":
            path = tmp_path / "linked.yaml"
            path.symlink_to(mounted.mount / "penstock.yaml")
        case "a link to the folder":
            (tmp_path / "conf").symlink_to("mount")
            path = tmp_path / "conf" / "penstock.yaml"
        case "..data itself":
            path = mounted.mount / "..data" / "penstock.yaml"
    world = World(tmp_path, path=path)
    watching = asyncio.create_task(world.watch.run())
    await looked(world)
    for slo_ms in (50, 60, 70):
        mounted.write(text.replace("slo_ms: 40", f"slo_ms: {slo_ms}"))
        await wait_for(world, "is in force")
        assert world.served["digits"].slo_us == slo_ms * 1000
        world.said.clear()
    watching.cancel()
    await asyncio.wait([watching])


@pytest.mark.slow
async def test_a_link_that_leads_elsewhere_is_followed_there(tmp_path: Path) -> None:
    text = elsewhere(tmp_path)
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.yaml").write_text(text)
    path = tmp_path / "linked.yaml"
    path.symlink_to("old/own.yaml")
    world = World(tmp_path, path=path)
    watching = asyncio.create_task(world.watch.run())
    await looked(world)
    (tmp_path / "new" / "own.yaml").write_text(text.replace("slo_ms: 40", "slo_ms: 50"))
    (tmp_path / "next").symlink_to("new/own.yaml")
    (tmp_path / "next").rename(path)
    await wait_for(world, "is in force")
    world.said.clear()
    (tmp_path / "scratch").write_text(text.replace("slo_ms: 40", "slo_ms: 60"))
    (tmp_path / "scratch").rename(tmp_path / "new" / "own.yaml")
    await wait_for(world, "is in force")
    assert world.served["digits"].slo_us == 60_000
    watching.cancel()
    await asyncio.wait([watching])


async def test_where_nothing_can_be_watched_that_is_said_and_the_gateway_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_folders: Path, **_more: object) -> None:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr("router.settings.file_following.awatch", fail)
    await world.watch.run()
    assert "is not watched any more, an edit needs a restart: OS file watch limit" in world.said[-1]


@pytest.mark.slow
async def test_a_bug_on_the_way_is_said_and_the_next_edit_counts(world: World) -> None:
    follow, world.repository.follow = world.repository.follow, None  # type: ignore[assignment,method-assign]
    watching = asyncio.create_task(world.watch.run())
    world.path.write_text(GATEWAY.replace("slo_ms: 40", "slo_ms: 50"))
    await wait_for(world, "it failed inside the gateway")
    assert world.watch.refused
    world.repository.follow = follow  # type: ignore[method-assign]
    await asyncio.sleep(0.3)
    world.path.write_text(GATEWAY.replace("slo_ms: 40", "slo_ms: 60"))
    await wait_for(world, "is in force")
    assert world.served["digits"].slo_us == 60_000
    watching.cancel()
    await asyncio.wait([watching])


@pytest.mark.slow
async def test_an_edit_during_a_change_turns_that_back_and_counts(world: World) -> None:
    watching = asyncio.create_task(world.watch.run())
    await looked(world)
    world.current.hold.clear()
    replace_file(world, GATEWAY.replace("slo_ms: 40", "slo_ms: 50"))
    await world.current.begun.wait()
    replace_file(world, GATEWAY.replace("slo_ms: 40", "slo_ms: 60"))
    await wait_for(world, "it was given up")
    world.current.refusal = ()
    await wait_for(world, "is in force")
    assert world.served["digits"].slo_us == 60_000
    assert world.current.rolled_back == 1
    watching.cancel()
    await asyncio.wait([watching])


@pytest.mark.slow
@pytest.mark.parametrize("again", ["a touch", "a comment", "a fault", "what needs a restart", "gone"])
async def test_what_asks_for_no_other_change_leaves_the_one_under_way_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    overtaken, judged = world.watch._overtaken, asyncio.Event()

    async def judge() -> None:
        await overtaken()
        judged.set()

    monkeypatch.setattr(world.watch, "_overtaken", judge)
    watching = asyncio.create_task(world.watch.run())
    await looked(world)
    world.current.hold.clear()
    wanted = GATEWAY.replace("slo_ms: 40", "slo_ms: 50")
    replace_file(world, wanted)
    await world.current.begun.wait()
    match again:
        case "a touch":
            os.utime(world.path, ns=(1, 1))
        case "a comment":
            replace_file(world, f"# the shop's\n{wanted}")
        case "a fault":
            replace_file(world, wanted.replace("slo_ms: 50", "slo_ms: soon"))
        case "what needs a restart":
            replace_file(world, wanted.replace("slo_ms: 50", "slo_ms: 60").replace("9000", "9100"))
        case "gone":
            world.path.unlink()
    async with asyncio.timeout(60):
        await judged.wait()
    assert world.current.rolled_back == 0
    world.current.hold.set()
    await wait_for(world, "is in force")
    said = {"a fault": "expected a number", "what needs a restart": "needs a restart", "gone": "is gone"}
    await wait_for(world, said.get(again, "is in force"))
    assert world.served["digits"].slo_us == 50_000
    watching.cancel()
    await asyncio.wait([watching])


@pytest.mark.slow
async def test_an_edit_before_a_change_has_begun_turns_that_back_once_it_has(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up, tried = world.repository.give_up, asyncio.Event()

    def try_to() -> None:
        give_up()
        tried.set()

    monkeypatch.setattr(world.repository, "give_up", try_to)
    watching = asyncio.create_task(world.watch.run())
    await looked(world)
    world.current.hold.clear()
    async with world.repository._turn:  # somebody loads a model, say
        replace_file(world, GATEWAY.replace("slo_ms: 40", "slo_ms: 50"))
        await wait_for(world, "slo_ms 40 -> 50")
        replace_file(world, GATEWAY.replace("slo_ms: 40", "slo_ms: 60"))
        await tried.wait()
        assert world.current.changes == []
    await wait_for(world, "it was given up")
    world.current.refusal = ()
    await wait_for(world, "is in force")
    assert world.served["digits"].slo_us == 60_000
    watching.cancel()
    await asyncio.wait([watching])
