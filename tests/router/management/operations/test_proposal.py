"""The body of `PUT /v2/placement` is held against what runs, and all that is wrong with it is told."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.management.operations.applied import PlannedFor
from router.management.operations.proposal import Proposal, UnsoundError, proposal
from router.management.operations.slice_json import told_slice
from router.settings import Settings, load_settings
from router.settings.values.findings import PROBLEMS_MAX
from serving.values.objectives import ReplicaSpec
from serving.values.slice_specs import SliceSpec
from tests.router.settings.samples import write_deployment

GATEWAY = """\
slices: [{name: cpu-a, cores: 1}, {name: cpu-b, cores: 1}]
models:
  - {path: models/digits, slices: [cpu-a], default_variant: linear}
  - {path: models/minilm, slices: [cpu-b], variants: [fp32]}
"""
BOTH = {"digits": {"slices": ["new"]}, "minilm": {"slices": ["new"]}}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})
        return load_settings(write_deployment(tmp_path_factory.mktemp("home"), GATEWAY))


def asked(settings: Settings, body: object, cores: int = 4) -> Proposal:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return proposal(content, settings, range(cores))


def reasons(settings: Settings, body: object, cores: int = 4) -> Sequence[str]:
    with pytest.raises(UnsoundError) as refused:
        asked(settings, body, cores)
    return refused.value.reasons


def test_a_slice_that_runs_keeps_its_cores_and_others_get_free_ones(settings: Settings) -> None:
    body = {
        "slices": [{"name": "new", "cores": 2, "threads": 2}, {"name": "cpu-b", "cores": 1}],
        "models": {"digits": {"slices": ["cpu-b", "new"]}, "minilm": {"slices": ["new"]}},
    }
    found = asked(settings, body).settings
    assert found.slices == (SliceSpec("new", (2, 3), 2), SliceSpec("cpu-b", (1,), 1))
    assert [each.slices for each in found.models] == [("cpu-b", "new"), ("new",)]
    assert (found.path, found.limits) == (settings.path, settings.limits)


REHEARSED = GATEWAY + "devices: [{name: h, kind: gpu-nvidia-h200, count: 2, rehearse: true}]\n"


@pytest.fixture(scope="module")
def with_gpus(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})
        return load_settings(write_deployment(tmp_path_factory.mktemp("gpus"), REHEARSED))


def test_slices_on_gpus_stand_beside_those_on_cores(with_gpus: Settings) -> None:
    new = {"name": "new", "device": "h-1", "share": "mig:2g.35gb"}
    found = asked(with_gpus, {"slices": [{"name": "cpu-b", "cores": 1}, new], "models": BOTH}).settings
    (_, made) = found.slices
    assert (made.device, made.kind, str(made.share)) == ("h-1", "gpu-nvidia-h200", "mig:2g.35gb")
    assert made.rehearsed


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        (
            [{"name": "new", "device": "h-3", "share": "mps:30"}],
            "slices[0].device: no such GPU here; got h-3",
        ),
        ([{"name": "new", "device": "h-1", "share": "30"}], "slices[0].share: no share of a GPU; got '30'"),
        ([{"name": "new"}], "slices[0]: no slice; expected `cores`, or `device` and `share` of a GPU"),
        (
            [
                {"name": "new", "device": "h-1", "share": "mps:30"},
                {"name": "other", "device": "h-1", "share": "mig:2g.35gb"},
            ],
            "slices[1].share: the slices of h-1 ask for shares of several kinds",
        ),
    ],
)
def test_what_no_gpu_can_give_is_refused(
    with_gpus: Settings, slices: list[dict[str, str]], reason: str
) -> None:
    assert any(each.startswith(reason) for each in reasons(with_gpus, {"slices": slices, "models": BOTH}))


PAIR = [{"name": name, "device": "h-1", "share": "mig:2g.35gb*2", "instance": "p"} for name in ("p-1", "p-2")]
ON_PAIR = {"digits": {"slices": ["p-1", "p-2"]}, "minilm": {"slices": ["cpu-b"]}}


def test_processes_of_an_instance_are_slices_with_its_name(with_gpus: Settings) -> None:
    found = asked(with_gpus, {"slices": [{"name": "cpu-b", "cores": 1}, *PAIR], "models": ON_PAIR}).settings
    assert [(each.name, str(each.share), each.instance) for each in found.slices[1:]] == [
        ("p-1", "mig:2g.35gb*2", "p"),
        ("p-2", "mig:2g.35gb*2", "p"),
    ]
    # As the gateway tells them they can be sent again: one form for both.
    told = [told_slice(each) for each in found.slices]
    again = [{key: each[key] for key in ("name", "device", "share", "instance")} for each in told[1:]]
    assert (
        asked(found, {"slices": [{"name": "cpu-b", "cores": 1}, *again], "models": ON_PAIR}).settings == found
    )


def test_several_processes_take_the_room_of_one_instance(with_gpus: Settings) -> None:
    whole = [each | {"share": "mig:7g.141gb*2"} for each in PAIR]
    body = {"slices": [{"name": "cpu-b", "cores": 1}, *whole], "models": ON_PAIR}
    assert len(asked(with_gpus, body).settings.slices) == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            ({"instance": None}, {}),
            "slices[1].share: mig:2g.35gb*2 is of one process of 2; expected `instance`",
        ),
        (({}, {"share": "mig:3g.71gb*2"}), "slices[2].instance: mig:3g.71gb*2 of h-1 in instance 'p' with"),
        (({}, {"device": "h-2"}), "slices[2].instance: mig:2g.35gb*2 of h-2 in instance 'p' with"),
        (
            ({}, {"instance": "q"}),
            "slices[1].instance: wrong count in instance 'p'; got '1 slices with share",
        ),
        (({"share": "mig:2g.35gb"}, {"share": "mig:2g.35gb"}), "slices[1].instance: wrong count in instance"),
        (({"share": "mig:2g.35gb*99"}, {}), "slices[1].share: no share of a GPU; got 'mig:2g.35gb*99'"),
        (({"share": "mps:30"}, {"share": "mps:30"}), "slices[1].instance: wrong count in instance 'p'"),
    ],
)
def test_an_instance_without_all_of_its_processes_is_refused(
    with_gpus: Settings, changes: tuple[dict[str, Any], ...], reason: str
) -> None:
    pair = [
        {key: value for key, value in (each | change).items() if value}
        for each, change in zip(PAIR, changes, strict=True)
    ]
    found = reasons(with_gpus, {"slices": [{"name": "cpu-b", "cores": 1}, *pair], "models": ON_PAIR})
    assert any(each.startswith(reason) for each in found), found


def test_a_slice_that_runs_in_an_instance_has_no_other(with_gpus: Settings) -> None:
    running = asked(with_gpus, {"slices": [{"name": "cpu-b", "cores": 1}, *PAIR], "models": ON_PAIR}).settings
    moved = [each | {"instance": "q"} for each in PAIR]
    found = reasons(running, {"slices": [{"name": "cpu-b", "cores": 1}, *moved], "models": ON_PAIR})
    said = (
        "'p-1' has device: h-1, share: mig:2g.35gb*2, threads: 1, instance: p; name another slice otherwise"
    )
    assert f"slices[1].name: {said}" in found


def test_lost_cores_are_dealt_last(settings: Settings) -> None:
    body = {"slices": [{"name": "new", "cores": 1}], "models": BOTH}
    for cores, lost, dealt in ((2, {0}, 1), (4, {2}, 3), (1, {0}, 0)):
        content = json.dumps(body).encode()
        found = proposal(content, settings, range(cores), lost).settings
        assert found.slices[0].cores == (dealt,)


def test_a_body_of_many_faults_is_refused_with_the_first_of_them(settings: Settings) -> None:
    models: dict[str, Any] = {f"other{number}": {} for number in range(1000)}
    slices = [{"name": "new", "cores": 1}]
    assert len(reasons(settings, {"slices": slices, "models": models})) == PROBLEMS_MAX + 1


def test_where_none_is_free_cores_of_slices_that_end_are_used(settings: Settings) -> None:
    body = {"slices": [{"name": "new", "cores": 1}, {"name": "cpu-b", "cores": 1}], "models": BOTH}
    assert asked(settings, body, cores=2).settings.slices[0].cores == (0,)


def test_a_new_slice_costs_by_the_core_what_the_dearest_does(settings: Settings) -> None:
    priced = replace(settings, slices=tuple(replace(each, price=0.5) for each in settings.slices))
    body = {"slices": [{"name": "new", "cores": 2}, {"name": "cpu-b", "cores": 1}], "models": BOTH}
    assert [each.price for each in asked(priced, body).settings.slices] == [1.0, 0.5]


@pytest.mark.parametrize("least", [0, 1])
def test_models_with_replicas_are_not_placed_on_one_slice(settings: Settings, least: int) -> None:
    models = [replace(each, replicas=ReplicaSpec(least, None)) for each in settings.models]
    scaled = replace(settings, models=tuple(models))
    body = {"slices": [{"name": "new", "cores": 1}], "models": BOTH}
    (reason,) = reasons(scaled, body)
    assert "at least minilm 1 and digits 1, that is 2" in reason
    assert reason.endswith("on slice new; expected other slices for them, or 1 more")
    both = {"slices": [{"name": "new", "cores": 1}, {"name": "cpu-b", "cores": 1}]}
    apart = {"digits": {"slices": ["new", "cpu-b"]}, "minilm": {"slices": ["new"]}}
    assert asked(scaled, {**both, "models": apart}).settings.models[0].slices == ("new", "cpu-b")


def test_on_the_way_a_slice_gets_what_is_free_when_it_starts_and_keeps_it(settings: Settings) -> None:
    def on(*names: str) -> list[dict[str, object]]:
        cores = {"cpu-a": 1, "cpu-b": 1, "first": 1, "wide": 2}
        return [{"name": name, "cores": cores[name], "models": {"digits": True}} for name in names]

    last = [{"name": "wide", "cores": 2}, {"name": "first", "cores": 1}]
    models = {"digits": {"slices": ["wide"]}, "minilm": {"slices": ["first"]}}
    steps = [on("cpu-a", "cpu-b", "first"), on("first")]
    found = asked(settings, {"slices": last, "models": models, "steps": steps}, cores=3)
    cores = {each.name: each.cores for each in found.settings.slices}
    assert cores == {"first": (2,), "wide": (0, 1)}
    assert [[each.spec.name for each in state.slices] for state in found.by] == [
        ["cpu-a", "cpu-b", "first"],
        ["first"],
    ]
    assert found.by[0].slices[0].spec == settings.slices[0]


def test_a_state_on_the_way_has_every_served_variant_of_whoever_is_there(settings: Settings) -> None:
    steps = [[{"name": "cpu-a", "cores": 1, "models": {"minilm": False, "digits": True}}]]
    body = {"slices": [{"name": "new", "cores": 1}], "models": BOTH, "steps": steps}
    (state,) = asked(settings, body).by
    there = [(each.model, each.variant, each.routed) for each in state.slices[0].replicas]
    assert there == [("digits", "linear", True), ("minilm", "fp32", False), ("digits", "cnn", True)]
    assert state.models == asked(settings, body).settings.models


def test_what_it_was_planned_for_is_kept_of_those_that_say_it(settings: Settings) -> None:
    load = {"requests_per_s": 50, "rows": 2.5, "capacity_rows_per_s": 400}
    models = {
        "digits": {"slices": ["new"], "variant": "linear", **load},
        "minilm": {"slices": ["new"], "requests_per_s": 3},
    }
    found = asked(settings, {"slices": [{"name": "new", "cores": 1}], "models": models})
    assert found.loads == {"digits": PlannedFor(50.0, 2.5, 400.0)}


def test_all_that_is_wrong_is_told_at_once(settings: Settings) -> None:
    body = {
        "slices": [{"name": "x", "cores": 9}, {"name": "x", "cores": 1}, {"nam": "y", "cores": 0}, 7],
        "models": {
            "digits": {"slices": ["y"], "variant": "cnn", "rows": -1},
            "digit": {"slices": ["x"]},
        },
        "steps": [[{"name": "cpu-a", "cores": 2, "models": {"other": True}}], []],
        "more": 1,
    }
    assert reasons(settings, body) == (
        "more: unknown key; got 'more', expected slices, models or steps (did you mean models?)",
        "slices[2].name: this key is required",
        "slices[2].cores: too small; got 0, expected 1 or more",
        "slices[2].nam: unknown key; got 'nam', expected name, cores, threads, device, share or instance "
        "(did you mean name?)",
        "slices[3]: not a mapping; got 7, expected keys and values (key: value)",
        "models.digits.slices[0]: unknown slice; got 'y', expected x",
        "models.digits.variant: planned for another variant than the one that answers; got 'cnn', expected "
        "linear",
        "models.digits.rows: too small; got -1, expected 0 or more",
        "models: unknown model; got 'digit', expected digits or minilm (did you mean digits?)",
        "models: 'minilm' is missing; expected every model that is served",
        "slices[1].name: 'x' is used twice",
        "slices: no such cores here; got 10, expected at most 4 in all",
        "steps[0][0].name: 'cpu-a' has cores: 1, threads: 1; name another slice otherwise",
        "steps[1]: empty; expected at least one slice",
        "steps[0][0].models: unknown model; got 'other', expected digits or minilm",
    )


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"null", b'"slices"', b"[" * 5000, b"\xff", b"{}"])
def test_what_is_no_placement_is_refused(settings: Settings, body: bytes) -> None:
    assert reasons(settings, body)


def test_more_cores_than_there_are_at_any_time_are_refused(settings: Settings) -> None:
    wide = {"name": "wide", "cores": 5, "models": {}}
    body = {"slices": [{"name": "new", "cores": 1}], "models": BOTH, "steps": [[wide]]}
    assert reasons(settings, body) == ("steps[0]: no such cores here; got 5, expected at most 4 in all",)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.floats(allow_nan=False)
    | st.sampled_from(["a", "cpu-a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["slices", "models", "steps", "name", "cores", "threads", "digits", "minilm", "rows"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_more_than_a_gateway_could_have_is_refused_before_it_is_looked_at(settings: Settings) -> None:
    many = [{"name": f"s-{number}", "cores": 1} for number in range(5)]
    body = {"slices": many, "models": BOTH, "steps": [many]}
    assert reasons(settings, body) == (
        "slices: too many slices; got 5, expected at most 4, as many as there are cores here",
        "steps[0]: too many slices; got 5, expected at most 4, as many as there are cores here",
    )
    assert reasons(settings, b" " * (300 << 10)) == ("the body is too large; expected at most 256 KB",)


@given(_JSON)
def test_any_json_is_either_refused_in_sentences_or_a_sound_placement(settings: Settings, body: Any) -> None:
    told: Sequence[str] = ["none"]
    with suppress(UnsoundError):
        try:
            _is_sound(asked(settings, body), settings, range(4))
        except UnsoundError as error:
            told = error.reasons
            raise
    assert told
    assert all(told)


@st.composite
def _bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Sound ones: at most as many cores as there are, in any state."""
    wide = {"cpu-a": 1, "cpu-b": 1, "x": 1, "y": 2, "z": 3}

    def state() -> list[str]:
        found: list[str] = []
        for name in draw(st.permutations([*wide])):
            if sum(wide[each] for each in found) + wide[name] <= 4 and (not found or draw(st.booleans())):
                found.append(name)
        return found

    last = state()
    return {
        "slices": [{"name": name, "cores": wide[name]} for name in last],
        "models": {
            name: {"slices": draw(st.lists(st.sampled_from(last), min_size=1, unique=True))}
            for name in ("digits", "minilm")
        },
        "steps": [
            [
                {"name": name, "cores": wide[name], "models": {"digits": draw(st.booleans())}}
                for name in state()
            ]
            for _ in range(draw(st.integers(0, 3)))
        ],
    }


@given(_bodies())
def test_slices_that_are_there_at_the_same_time_never_share_a_core_that_could_be_free(
    settings: Settings, body: dict[str, Any]
) -> None:
    found = asked(settings, body)
    _is_sound(found, settings, range(4))
    states = [[each.spec for each in state.slices] for state in found.by] + [[*found.settings.slices]]
    running = {each.name for each in settings.slices}
    before = running
    for state in states:
        names = {each.name for each in state}
        new = [each for each in state if each.name not in before]
        for each in new:  # its cores are shared only where the others hold too many
            held = {core for other in state if other is not each for core in other.cores}
            free = 4 - len(held - {*each.cores})
            assert len({*each.cores} & held) <= max(0, len(each.cores) - free)
        before = before | names


def _is_sound(found: Proposal, settings: Settings, usable: Sequence[int]) -> None:
    names = {each.name for each in found.settings.slices}
    known: dict[str, SliceSpec] = {each.name: each for each in settings.slices}
    for spec in (*(each.spec for state in found.by for each in state.slices), *found.settings.slices):
        assert known.setdefault(spec.name, spec) == spec
        assert spec.cores
        assert {*spec.cores} <= {*usable}
    assert [each.name for each in found.settings.models] == [each.name for each in settings.models]
    assert all(each.slices and names.issuperset(each.slices) for each in found.settings.models)


def test_a_slice_that_loads_on_demand_cannot_be_placed_away(settings: Settings) -> None:
    limited = replace(settings.slices[0], memory_bytes=1 << 20)
    told = reasons(replace(settings, slices=(limited, settings.slices[1])), {
        "slices": [{"name": "new", "cores": 1}, {"name": "cpu-b", "cores": 1}], "models": BOTH,
    })  # fmt: skip
    what = "'cpu-a' is missing; it has memory_mb, of which placements know nothing: expected it to stay"
    assert told == (f"slices: {what}",)
