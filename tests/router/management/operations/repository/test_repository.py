"""What the repository knows, and how clients make models come and go over what penstock.yaml says."""

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]

from router.management.operations.repository.modelconfig import BATCH_MAX, Asked, read_asked
from router.management.operations.repository.refusals import (
    BAD_INPUT,
    FAILED,
    NOT_ALLOWED,
    NOT_FOUND,
    UNSUPPORTED,
    Refusal,
    RepositoryError,
)
from router.management.operations.repository.repository import IndexEntry
from router.settings import Settings
from router.settings.values.versions import VersionPolicy
from router.tensors.protos.files import oip
from serving.control.state.replicas import ReplicaRecord, ReplicaStatus
from serving.profile.sweeping.sweep import Sweep
from tests.router.management.operations.worlds import GATEWAY, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def touch(file: Path) -> None:
    """Make the file another revision."""
    about = file.stat()
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns + 1_000_000))


def replica(world: World, model: str, status: ReplicaStatus, reason: str = "") -> ReplicaRecord:
    served = world.repository.filed.models[0]
    assert served.name == model
    return ReplicaRecord(1, served, "cnn", Sweep.__new__(Sweep), None, "cpu", status, reason)


async def refused(asking: object) -> RepositoryError:
    with pytest.raises(RepositoryError) as caught:
        await asking  # type: ignore[misc]
    return caught.value


async def test_the_index_lists_what_is_served_and_what_could_be(world: World) -> None:
    world.add_folder("spare")
    everything = await world.repository.index()
    assert everything == [
        IndexEntry("digits", "1", "READY"),
        IndexEntry("minilm", "1", "READY"),
        IndexEntry("spare"),
    ]
    assert await world.repository.index(ready=True) == everything[:2]


async def test_a_folder_that_cannot_be_read_goes_by_its_own_name(world: World) -> None:
    (world.add_folder("spare") / "model.yaml").write_text("name: [")
    assert (await world.repository.index())[-1] == IndexEntry("spare")


async def test_a_model_that_is_not_ready_yet_is_loading_and_one_that_failed_says_why(world: World) -> None:
    world.serving.unready_models = {"digits"}
    assert (await world.repository.index())[0] == IndexEntry("digits", "1", "LOADING")
    world.hold_replica(replica(world, "digits", ReplicaStatus.FAILED, "no such file"))
    assert (await world.repository.index())[0] == IndexEntry("digits", "1", "UNAVAILABLE", "no such file")


async def test_a_folder_beside_is_served_with_its_own_objective_on_all_slices(world: World) -> None:
    world.add_folder("spare")
    await world.repository.load("spare")
    spare = world.served["spare"]
    assert (spare.slo_us, spare.variants, spare.slices) == (70_000, ("one", "two"), ("a", "b"))
    assert [*world.served] == ["digits", "minilm", "spare"]
    assert (await world.repository.index())[-1] == IndexEntry("spare", "1", "READY")


async def test_a_load_where_nothing_has_changed_changes_nothing(world: World) -> None:
    await world.repository.load("digits")  # the fake's start has no revisions
    await world.repository.load("digits")
    assert len(world.current.changes) == 1


async def test_a_load_reads_the_files_again_and_keeps_what_penstock_yaml_says(world: World) -> None:
    await world.repository.load("digits")
    before = world.served["digits"]
    touch(world.home / "models" / "digits" / "build" / "cnn.safetensors")
    await world.repository.load("digits")
    after = world.served["digits"]
    assert after.revision != before.revision
    assert (after.slo_us, after.slices) == (40_000, ("a",))
    file = world.home / "models" / "minilm" / "model.yaml"
    file.write_text(file.read_text().replace("slo_ms: 250.5", "slo_ms: 99"))
    await world.repository.load("minilm")
    assert world.served["minilm"].slo_us == 99_000


async def test_a_load_of_what_is_not_ready_waits_for_it_though_nothing_has_changed(world: World) -> None:
    await world.repository.load("digits")
    world.serving.unready_models = {"digits"}
    await world.repository.load("digits")
    assert len(world.current.changes) == 2


async def test_models_come_and_go_and_the_index_says_so(world: World) -> None:
    await world.repository.unload("digits")
    assert [*world.served] == ["minilm"]
    assert (await world.repository.index())[0] == IndexEntry("digits", "1", "UNAVAILABLE", "unloaded")
    await world.repository.load("digits")
    assert (await world.repository.index())[0] == IndexEntry("digits", "1", "READY")


async def test_while_it_is_unloaded_the_index_says_unloading(world: World) -> None:
    world.current.hold.clear()
    unloading = asyncio.create_task(world.repository.unload("digits"))
    await world.current.begun.wait()
    world.hold_replica(replica(world, "digits", ReplicaStatus.UNLOADING))
    assert (await world.repository.index())[0] == IndexEntry("digits", "1", "UNLOADING")
    world.slices.clear()
    world.current.hold.set()
    await unloading
    assert (await world.repository.index())[0].reason == "unloaded"


async def test_while_it_is_loaded_the_index_says_loading_but_for_what_is_served_of_it(world: World) -> None:
    world.add_folder("spare")
    world.current.hold.clear()
    loading = [asyncio.create_task(world.repository.load(name)) for name in ("spare", "digits")]
    await world.current.begun.wait()
    assert (await world.repository.index()) == [
        IndexEntry("digits", "1", "READY"),
        IndexEntry("minilm", "1", "READY"),
        IndexEntry("spare", "1", "LOADING"),
    ]
    world.current.hold.set()
    await asyncio.gather(*loading)


async def test_two_loads_of_one_model_at_once_are_one(world: World) -> None:
    world.add_folder("spare")
    world.current.hold.clear()
    loading = [asyncio.create_task(world.repository.load("spare")) for _ in range(3)]
    await world.current.begun.wait()
    loading[0].cancel()  # its client leaves: the others still wait for it
    world.current.hold.set()
    await asyncio.gather(*loading[1:])
    assert len(world.current.changes) == 1
    assert "spare" in world.served


async def test_a_load_during_a_load_sees_files_that_have_changed_since(world: World) -> None:
    folder = world.add_folder("spare")
    world.current.hold.clear()
    first = asyncio.create_task(world.repository.load("spare"))
    await world.current.begun.wait()
    (folder / "model.yaml").write_text(
        (folder / "model.yaml").read_text().replace("slo_ms: 70", "slo_ms: 71")
    )
    second = asyncio.create_task(world.repository.load("spare"))
    await asyncio.sleep(0)
    world.current.hold.set()
    await asyncio.gather(first, second)
    assert world.served["spare"].slo_us == 71_000


async def test_those_who_wait_for_a_load_that_fails_share_its_failure(world: World) -> None:
    world.add_folder("spare")
    world.current.hold.clear()
    world.current.refusal = ("no memory",)
    loading = [asyncio.create_task(world.repository.load("spare")) for _ in range(3)]
    await world.current.begun.wait()
    world.current.hold.set()
    failed = await asyncio.gather(*loading, return_exceptions=True)
    assert [type(each) for each in failed] == [RepositoryError] * 3
    assert len(world.current.changes) == 1


async def test_loads_of_several_models_at_once_all_count(world: World) -> None:
    for name in ("x", "y", "z"):
        world.add_folder(name)
    await asyncio.gather(*(world.repository.load(name) for name in ("x", "y", "z")))
    assert [*world.served] == ["digits", "minilm", "x", "y", "z"]


@pytest.mark.parametrize("name", ["nobody", "digit", "", "../digits", "x" * 10_000, "\x00"])
async def test_an_unknown_model_is_refused_in_tritons_words_with_what_there_is(
    world: World, name: str
) -> None:
    error = await refused(world.repository.load(name))
    assert error.refusal is NOT_FOUND
    assert error.message.startswith("failed to load '")
    assert "digits" in error.message
    assert len(error.message) < 400
    await world.repository.unload(name)  # as in Triton: it is not served then
    assert not world.current.changes


async def test_a_folder_that_is_no_model_any_more_is_refused_with_its_place(world: World) -> None:
    file = world.home / "models" / "digits" / "model.yaml"
    file.write_text(file.read_text().replace("batch_max: 64", "batch_max: many"))
    error = await refused(world.repository.load("digits"))
    assert error.refusal is NOT_FOUND
    assert re.search(r"failed to poll from model repository: .*model.yaml:5:12: batch_max:", error.message)
    file.write_text(file.read_text().replace("name: digits", "name: others").replace("many", "64"))
    assert "names it 'others' now" in (await refused(world.repository.load("digits"))).message
    assert not world.current.changes


async def test_a_load_that_fails_is_refused_with_the_reason_and_the_old_one_stays(world: World) -> None:
    world.add_folder("spare")
    world.current.refusal = ("its code raises",)
    error = await refused(world.repository.load("spare"))
    assert error.refusal is FAILED
    assert error.message.startswith(
        "load failed for model 'spare': version 1 is at UNAVAILABLE state: its code"
    )
    assert (await world.repository.index())[-1] == IndexEntry("spare", "1", "UNAVAILABLE", "its code raises")
    await refused(world.repository.load("digits"))
    assert (await world.repository.index())[0] == IndexEntry("digits", "1", "READY")
    world.current.refusal = ()
    await world.repository.load("spare")
    assert (await world.repository.index())[-1] == IndexEntry("spare", "1", "READY")


async def test_a_long_reason_is_cut_to_what_grpc_carries(world: World) -> None:
    world.current.refusal = ("ż" * 10_000,)
    error = await refused(world.repository.load("digits"))
    assert len(error.message.encode()) < 2_010
    assert error.message.endswith("ż…")


async def test_an_unload_that_fails_leaves_the_model_served(world: World) -> None:
    world.current.refusal = ("it was given up",)
    error = await refused(world.repository.unload("digits"))
    assert (error.refusal, error.message) == (FAILED, "failed to unload 'digits', it was given up")
    world.current.refusal = ()
    await world.edit("slo_ms: 40", "slo_ms: 41")
    assert "digits" in world.served


async def test_without_control_nobody_loads_or_unloads(tmp_path: Path) -> None:
    world = World(tmp_path, GATEWAY.replace("[models]}", "[models], control: false}"))
    for asking in (world.repository.load("digits"), world.repository.unload("digits")):
        error = await refused(asking)
        assert error.refusal is NOT_ALLOWED
        assert error.message.startswith("explicit model load / unload is not allowed")
    assert (await world.repository.index())[0] == IndexEntry("digits", "1", "READY")


async def test_the_size_of_a_batch_is_what_the_load_says_until_the_next_load(world: World) -> None:
    await world.repository.load("digits", Asked(16))
    assert world.served["digits"].spec.batch_max == 16
    await world.edit("path: models/minilm", "path: models/minilm, slo_ms: 99")
    assert world.served["digits"].spec.batch_max == 16
    await world.repository.load("digits")
    assert world.served["digits"].spec.batch_max == 64


async def test_batches_smaller_than_penstock_yaml_fills_are_refused(tmp_path: Path) -> None:
    sized = GATEWAY.replace("slo_ms: 40", "batching: {policy: static, size: 32}")
    error = await refused(World(tmp_path, sized).repository.load("digits", Asked(16)))
    assert error.refusal is BAD_INPUT
    assert "batching.size of penstock.yaml is 32" in error.message


async def test_a_placement_counts_for_what_is_loaded_again(tmp_path: Path) -> None:
    def place(settings: Settings) -> Settings:
        return replace(settings, models=tuple(replace(model, slices=("b",)) for model in settings.models))

    world = World(tmp_path, place=place)
    await world.repository.unload("digits")
    await world.repository.load("digits")
    assert world.served["digits"].slices == ("b",)


def test_the_batch_size_may_be_a_number_or_digits() -> None:
    for stated in ("16", '"16"'):
        assert read_asked("m", {"config": f'{{"max_batch_size": {stated}, "name": "m"}}'}) == Asked(16)
    unbatched = oip.ModelConfig(max_batch_size=0)
    assert read_asked("m", {"config": '{"max_batch_size": 0}'}, unbatched) == Asked()
    assert read_asked("m", {}) == Asked()
    nothing = '{"platform": "", "backend": "python", "version_policy": {"latest": {}}, "input": []}'
    assert read_asked("m", {"config": nothing}) == Asked()


def test_a_load_may_repeat_what_the_served_model_s_configuration_says() -> None:
    served = ParseDict({"input": [{"name": "X", "dims": [4]}]}, oip.ModelConfig())
    for dims, same in (('["4"]', True), ("[4]", True), ("[5]", False), ('"x"', False)):
        config = {"config": f'{{"input": [{{"name": "X", "dims": {dims}}}], "max_batch_size": 2}}'}
        if same:
            assert read_asked("m", config, served) == Asked(2)
        else:
            with pytest.raises(RepositoryError, match="config: input is not supported"):
                read_asked("m", config, served)


@pytest.mark.parametrize(
    ("parameters", "refusal", "sentence"),
    [
        ({"file:1/model.py": "AAAA"}, UNSUPPORTED, "'file:1/model.py' is not supported: files are not taken"),
        ({"nonsense": 1}, BAD_INPUT, "unknown parameter 'nonsense'"),
        ({"config": {"max_batch_size": 4}}, BAD_INPUT, "must be JSON in a string, got an object"),
        ({"config": "{"}, BAD_INPUT, "is not valid JSON"),
        ({"config": "[]"}, BAD_INPUT, "must be a JSON object, got a list"),
        ({"config": ""}, BAD_INPUT, "is not valid JSON"),
        ({"config": '{"name": "other"}'}, BAD_INPUT, "the name is 'other', but the load is of 'm'"),
        ({"config": '{"max_batch_sise": 1}'}, BAD_INPUT, "no key 'max_batch_sise' in Triton's ModelConfig"),
        ({"config": '{"backend": "onnxruntime"}'}, UNSUPPORTED, "backend is not supported"),
        ({"config": '{"instance_group": [{"count": 2}]}'}, UNSUPPORTED, "instance_group is not supported"),
        ({"config": '{"version_policy": {"newest": {}}}'}, BAD_INPUT, "version_policy: not a version policy"),
    ]
    + [
        ({"config": f'{{"max_batch_size": {stated}}}'}, BAD_INPUT, f"from 1 to {BATCH_MAX}")
        for stated in ("0", "-1", "true", "4.5", '"x"', '"\u0663"', "null", "65537", f'"{"9" * 5000}"')
    ],
)
def test_what_a_load_cannot_change_is_refused_by_name(
    parameters: dict[str, object], refusal: Refusal, sentence: str
) -> None:
    with pytest.raises(RepositoryError) as caught:
        read_asked("m", parameters)
    assert caught.value.refusal is refusal
    assert sentence in caught.value.message
    assert len(caught.value.message) < 300


def add_versions(world: World, *numbers: int) -> Path:
    """A model folder beside the others, with these versions."""
    folder = world.add_folder("many")
    for number in numbers:
        (folder / str(number)).mkdir(exist_ok=True)
    return folder


def state(folder: Path, line: str) -> None:
    """Add a line to the model.yaml."""
    with (folder / "model.yaml").open("a") as file:
        file.write(f"{line}\n")


async def test_a_model_is_loaded_with_all_versions_of_its_policy_and_goes_with_them(world: World) -> None:
    folder = add_versions(world, 1, 2, 5)
    state(folder, "version_policy: {latest: 2}")
    await world.repository.load("many")
    served = {name: each.spec.version for name, each in world.served.items() if name.startswith("many")}
    assert served == {"many": 5, "many@2": 2}
    index = await world.repository.index()
    assert index[1:3] == [IndexEntry("many", "2", "READY"), IndexEntry("many", "5", "READY")]
    (folder / "7").mkdir()
    await world.repository.load("many")
    served = {name: each.spec.version for name, each in world.served.items() if name.startswith("many")}
    assert served == {"many": 7, "many@5": 5}
    await world.repository.unload("many")
    assert [*world.served] == ["digits", "minilm"]
    gone = [IndexEntry("many", version, "UNAVAILABLE", "unloaded") for version in ("2", "5", "7")]
    assert (await world.repository.index())[1:4] == gone


def policy_of(text: str) -> Asked:
    """What a load with this version_policy asks for."""
    return read_asked("many", {"config": f'{{"version_policy": {text}}}'})


async def test_a_load_may_state_which_versions_are_served_until_the_next_load(world: World) -> None:
    add_versions(world, 1, 2, 5)
    await world.repository.load("many", policy_of('{"specific": {"versions": ["1", 2]}}'))
    assert {name: world.served[name].spec.version for name in ("many", "many@1")} == {"many": 2, "many@1": 1}
    await world.edit("slo_ms: 40", "slo_ms: 41")
    assert "many@1" in world.served
    await world.repository.load("many", policy_of('{"all": {}}'))
    assert {"many", "many@1", "many@2"} <= world.served.keys()
    error = await refused(world.repository.load("many", policy_of('{"specific": {"versions": [9]}}')))
    assert "no version 9; there are 1, 2, 5" in error.message
    await world.repository.load("many")
    assert world.served["many"].spec.version == 5
    assert "many@1" not in world.served


async def test_of_a_model_of_the_file_a_load_may_state_versions_too(world: World) -> None:
    folder = world.home / "models" / "minilm"
    for version in ("1", "2"):
        (folder / version).mkdir()
    await world.repository.load("minilm", Asked(None, VersionPolicy(None)))
    assert {name for name in world.served if name.startswith("minilm")} == {"minilm", "minilm@1"}
    assert world.served["minilm@1"].slo_us == world.served["minilm"].slo_us
    await world.edit("slo_ms: 40", "slo_ms: 41")
    assert "minilm@1" in world.served, "the file says nothing else of it"
    await world.edit("{path: models/minilm}", "{path: models/minilm, slo_ms: 300}")
    assert "minilm@1" not in world.served


async def test_a_model_without_versions_has_version_1_only(world: World) -> None:
    one = read_asked("digits", {"config": '{"version_policy": {"specific": {"versions": [1]}}}'})
    await world.repository.load("digits", one)
    two = read_asked("digits", {"config": '{"version_policy": {"specific": {"versions": [2]}}}'})
    assert "no version 2; there are 1" in (await refused(world.repository.load("digits", two))).message


async def test_a_version_that_cannot_be_loaded_is_named_and_the_others_stay(world: World) -> None:
    add_versions(world, 1)
    await world.repository.load("many")
    add_versions(world, 2)
    world.current.refusal = ("many could not be loaded: no file",)
    error = await refused(world.repository.load("many"))
    assert "load failed for model 'many': version 2 is at UNAVAILABLE state" in error.message
    assert world.served["many"].spec.version == 1


async def test_an_edit_of_another_model_keeps_all_versions_that_a_client_loaded(world: World) -> None:
    folder = add_versions(world, 1, 2)
    state(folder, "version_policy: all")
    await world.repository.load("many")
    await world.edit("slo_ms: 40", "slo_ms: 41")
    assert {"many", "many@1"} <= world.served.keys()
