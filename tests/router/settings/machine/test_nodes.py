"""`nodes:` and slices on nodes: what a file becomes, and the one sentence for each way to get it wrong."""

from pathlib import Path

import pytest

from router.management.operations.slice_json import read_slice, told_slice
from router.settings import load_settings
from router.settings.machine.prices import machine_kind
from serving.values.slice_specs import Share, SliceSpec
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"
TOKEN = "0123456789abcdef"  # noqa: S105
NAME = "PENSTOCK_NODE_TOKEN"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, TOKEN)


def slices(home: Path, text: str, rehearse: bool = False) -> dict[str, SliceSpec]:
    file = write_gateway(home, MODELS + "nodes: {}\nslices:\n" + text)
    return {each.name: each for each in load_settings(file, rehearse).slices}


def test_the_section_says_where_nodes_call(home: Path) -> None:
    text = (
        "nodes: {port: 9004, models: shared}\nslices: [{name: s, node: a}, {name: t, node: b}, {name: u}]\n"
    )
    settings = load_settings(write_gateway(home, MODELS + text))
    nodes = settings.nodes
    assert nodes is not None
    assert (nodes.host, nodes.port, nodes.ship, nodes.names) == ("127.0.0.1", 9004, False, ("a", "b"))
    assert nodes.token == TOKEN
    assert TOKEN not in repr(settings)


def test_cores_are_dealt_from_those_of_each_node(home: Path) -> None:
    found = slices(
        home,
        "  - {name: a, node: x, cores: 2, count: 2}\n"
        "  - {name: b, node: x, cores: [1]}\n"
        "  - {name: c, node: y, cores: 1}\n"
        "  - {name: d, node: y}\n",
    )
    cores = {name: each.cores for name, each in found.items()}
    assert cores == {"a-1": (0, 2), "a-2": (3, 4), "b": (1,), "c": (0,), "d": ()}
    assert {each.domain for each in found.values()} == {"x/cpu", "y/cpu"}


def test_an_entry_may_be_on_several_nodes(home: Path) -> None:
    found = slices(
        home,
        "  - {name: a, node: x, node_count: 2, cores: 1, count: 2}\n"
        "  - {name: b, node: x-2, cores: 1}\n"
        "  - {name: c, node: y, node_count: 2}\n",
    )
    assert {name: (each.node, each.cores) for name, each in found.items()} == {
        "a-1": ("x-1", (0,)),
        "a-2": ("x-1", (1,)),
        "a-3": ("x-2", (0,)),
        "a-4": ("x-2", (1,)),
        "b": ("x-2", (2,)),
        "c-1": ("y-1", ()),
        "c-2": ("y-2", ()),
    }


def test_a_model_may_name_the_slices_of_several_nodes_by_their_entry(home: Path) -> None:
    text = "nodes: {}\nslices: [{name: a, node: x, node_count: 2, count: 2}, {name: b}]\n"
    models = "models: [{path: models/digits, slices: [a]}]\n"
    settings = load_settings(write_gateway(home, models + text))
    assert settings.models[0].slices == ("a-1", "a-2", "a-3", "a-4")


def test_a_node_may_have_more_cores_than_this_machine(home: Path) -> None:
    text = "nodes: {}\nslices: [{name: a, node: x, cores: 64, threads: 64}]\n"
    settings = load_settings(write_gateway(home, MODELS + text))
    assert len(settings.slices[0].cores) == 64
    assert not [each for each in settings.warnings if "cores" in str(each)]


def test_gpus_of_nodes_are_taken_at_their_word(home: Path) -> None:
    kind = "gpu-nvidia-h200"
    entry = f"  - {{name: a, node: x, device: 'cuda:1', kind: {kind}, share: 'mps:30', count: 2}}\n"
    found = slices(home, entry)
    assert [*found] == ["a-1", "a-2"]
    spec = found["a-1"]
    assert (spec.device, spec.kind, spec.part, spec.node) == ("cuda:1", kind, Share("mps", 30.0), "x")
    assert read_slice(told_slice(spec)) == spec


def test_processes_of_an_instance_share_it(home: Path) -> None:
    entry = "{name: a, node: x, device: 'cuda:0', kind: gpu-nvidia-h200, share: 'mig:3g.71gb', processes: 2}"
    found = slices(home, f"  - {entry}\n")
    assert [*found] == ["a-1", "a-2"]
    assert len({each.instance for each in found.values()}) == 1


def test_the_kind_is_this_machines_where_none_is_stated(home: Path) -> None:
    found = slices(home, f"  - {{name: a, node: x, kind: {machine_kind()}}}\n  - {{name: b, node: x}}\n")
    assert {each.kind for each in found.values()} == {""}
    other = slices(home, "  - {name: a, node: x, kind: cpu-other}\n")["a"]
    assert other.kind == "cpu-other"
    assert read_slice(told_slice(other)) == other


def test_prices_are_of_the_nodes_kind(home: Path) -> None:
    text = (
        "prices: [{kind: cpu-other, on_demand: 0.5}, {on_demand: 0.1}]\nnodes: {}\n"
        "slices: [{name: a, node: x, kind: cpu-other, cores: 2}, {name: b, node: y, cores: 2}]\n"
    )
    settings = load_settings(write_gateway(home, MODELS + text))
    assert [each.price for each in settings.slices] == [1.0, 0.2]
    assert not [each for each in settings.warnings if "kind" in str(each)]


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        ("slices: [{name: a, node: x}]\n", "2:26: slices[0].node", "node 'x' has no door to call at; "
         "expected `nodes: {host: 0.0.0.0}`"),
        ("slices: [{name: a, kind: cpu-x}]\n", "2:20: slices[0].kind", "`kind` is of a node's device, "
         "and the entry names no node; expected `node:` beside it"),
        ("slices: [{name: a, node_count: 2}]\n", "2:20: slices[0].node_count", "the entry names no node to "
         "count; expected `node:` beside `node_count`"),
        ("nodes: {port: 8000}\n", "2:15: nodes.port", "the port of another door; got 8000, "
         "expected a port of its own"),
        ("nodes: {token_env: NOWHERE}\n", "2:20: nodes.token_env", "the environment has no 'NOWHERE'; "
         "expected a token of 16 characters or more there, as `openssl rand -hex 16` prints, the same on all "
         "nodes"),
        ("nodes: {}\nslices: [{name: a, node: x, device: gpu-0, kind: gpu-y}]\n", "3:37: slices[0].device",
         "no GPU of a node; got 'gpu-0', expected one GPU as the node counts them, such as cuda:0"),
        ("nodes: {}\nslices: [{name: a, node: x, device: 'cuda:0'}]\n", "3:10: slices[0].kind",
         "no kind of a GPU; got nothing, expected its kind, such as gpu-nvidia-h200; `penstock node` prints "
         "those of a node"),
        ("nodes: {}\nslices: [{name: a, node: x, device: 'cuda:0', kind: gpu-y, share: 'mig:3g.71gb*2'}]\n",
         "3:67: slices[0].share", "processes in the share; got 'mig:3g.71gb*2', expected share: mig:3g.71gb "
         "beside processes: 2"),
        ("nodes: {}\nslices: [{name: a, node: x, share: 'mps:3'}]\n", "3:29: slices[0].share",
         "`share` is of a GPU, and the entry names none; expected `device: cuda:0`, say, beside it"),
        ("nodes: {}\nslices: [{name: a, node: x, python: venv/bin/python}]\n", "3:37: slices[0].python",
         "no absolute path; got 'venv/bin/python', expected a path as it is on the node"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(
    home: Path, text: str, place: str, sentence: str
) -> None:
    assert f"penstock.yaml:{place}: {sentence}" in "\n".join(gateway_faults(home, MODELS + text))


def test_a_door_on_the_network_without_tls_is_worth_a_warning(home: Path) -> None:
    settings = load_settings(write_gateway(home, MODELS + "nodes: {host: 0.0.0.0}\n"))
    (warning,) = [str(each) for each in settings.warnings if "nodes" in str(each)]
    assert "sees tensors and model files; expected `tls:` in `server:`" in warning


def test_in_a_rehearsal_a_nodes_gpu_is_rehearsed_here(home: Path) -> None:
    entry = "  - {name: a, node: x, device: 'cuda:0', kind: gpu-nvidia-h200}\n"
    with pytest.raises(Exception, match="profile"):
        slices(home, entry, rehearse=True)  # it asks for a profile, and for no node
