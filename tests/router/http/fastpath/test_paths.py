"""The fast path's table of targets follows the models."""

from dataclasses import replace

from router.http.fastpath.paths import InferPaths
from tests.builders import model_spec, served
from tests.router.http.fastpath.conftest import Start
from tests.router.http.fastpath.wire import LIMITS, infer, total

A, B = served(model_spec("a")), served(model_spec("b"))


def test_targets_of_models_are_found_however_they_are_written() -> None:
    paths = InferPaths({"a": A})
    for target in (b"/v2/models/a/infer", b"/v2/models/a/versions/1/infer", b"/v2/models/%61/infer?x=1"):
        assert paths.find(target) is A
    for target in (b"/v2/models/b/infer", b"/v2/models/a/versions/2/infer", b"/v2/models/a", b"/"):
        assert paths.find(target) is None


def test_models_that_come_are_found_changed_ones_as_they_are_now_and_gone_ones_no_more() -> None:
    paths = InferPaths({"a": A})
    changed = replace(A, slo_us=1)
    paths.serve({"a": changed, "b": B})
    assert paths.find(b"/v2/models/a/infer") is changed
    assert paths.find(b"/v2/models/b/versions/1/infer") is B
    paths.serve({"b": B})
    assert paths.find(b"/v2/models/a/infer") is None


def test_a_connection_reaches_models_that_come_while_it_is_open_and_no_longer_those_that_go(
    start: Start,
) -> None:
    running = start(LIMITS)
    every = running.serving.models
    others = {name: model for name, model in every.items() if name != "simple"}
    with running.connect() as wire:
        for models, status in ((every, 200), (others, 404), (every, 200)):
            running.serving.models = models
            running.loop.call_soon_threadsafe(running.server.serve, models)
            running.settle()
            wire.send(infer(5))
            answer = wire.read()
            assert answer.status == status
            assert status != 200 or total(answer) == 6
