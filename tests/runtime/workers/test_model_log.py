"""What models raise and print is in the gateway's log, with their names, and cannot fill it."""

import asyncio
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from serving.runtime.workers.model_log import LINES_PER_S, ModelLog, Printed
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec
from serving.worker.frames.orders import Raised
from tests.runtime.recorder import PATIENCE_S, Recorder, model_spec, write_model

pytestmark = pytest.mark.live

RAISED = Raised("fashion", "only", "while it answered", "ValueError at model.py:5", "ValueError: no", "Trace")
PREDICT = "print('seen', flush=False); os.write(2, b'from C\\n'); raise ValueError('negative age')"


async def test_a_kind_is_said_whole_once_a_minute_with_a_count_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ModelLog()
    for _ in range(5):
        log.raised("main", RAISED)
    log.raised(
        "main", Raised("fashion", "only", "while it answered", "KeyError at model.py:9", "KeyError: 'x'")
    )
    assert [record.getMessage() for record in caplog.records] == [
        "model fashion only on slice main raised while it answered: ValueError: no",
        "model fashion only on slice main raised while it answered: KeyError: 'x'",
    ]
    assert vars(caplog.records[0])["fields"]["traceback"] == "Trace"
    caplog.clear()
    log.close()
    (record,) = caplog.records
    assert record.getMessage() == (
        "model fashion only on slice main raised this 4 times more within 60 s: ValueError at model.py:5"
    )


async def test_a_broken_model_on_many_slices_is_said_whole_once(caplog: pytest.LogCaptureFixture) -> None:
    log = ModelLog()
    slices = [f"core-{number}" for number in range(64)]
    for slice_name in slices:
        for _ in range(2):
            log.raised(slice_name, RAISED)
    (record,) = caplog.records
    assert vars(record)["fields"]["traceback"] == "Trace"
    caplog.clear()
    log.close()
    (record,) = caplog.records
    fields = vars(record)["fields"]
    assert fields["suppressed"] == 127
    assert fields["slices"] == sorted(slices)


async def test_when_its_minute_is_over_a_kind_is_said_whole_again(caplog: pytest.LogCaptureFixture) -> None:
    log = ModelLog()
    log.raised("main", RAISED)
    log.close()
    caplog.clear()
    log.raised("main", replace(RAISED, traceback=""))
    assert vars(caplog.records[0])["fields"]["traceback"] == "Trace"  # kept: the worker told it before
    log.close()


async def test_of_a_flood_of_lines_a_bounded_number_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = ModelLog()
    for number in range(LINES_PER_S + 7):
        log.printed("main", "stdout", "fashion", f"line {number}")
    assert len(caplog.records) == LINES_PER_S
    log.close()
    assert caplog.records[-1].getMessage() == (
        f"[main] 7 more lines are left out: more than {LINES_PER_S} were printed within a second"
    )


async def test_lines_are_taken_apart_however_they_come(caplog: pytest.LogCaptureFixture) -> None:
    said: list[tuple[str, str]] = []
    ours, theirs = os.pipe()
    printed = Printed(ours, lambda model, line: said.append((model, line)))
    os.write(theirs, b"\x1efash")
    await asyncio.sleep(0)
    os.write(theirs, b"ion\x1fone\n\x1efashion\x1ftwo\x1b[31m\nC library\n\n  \nno end")
    os.close(theirs)
    printed.close()
    assert said == [("fashion", "one"), ("fashion", "two [31m"), ("", "C library"), ("", "no end")]


async def test_a_worker_s_model_raises_and_prints_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    heard = Recorder()
    log = ModelLog()
    supervisor = Supervisor(heard, log=log)
    await supervisor.start(SliceSpec("main", ()))
    await heard.hear("ready")
    model = model_spec(write_model(tmp_path / "talk", PREDICT), {"X": "FP32"}, {"Y": "FP32"})
    heard.links[0].load(1, model, "only")
    await heard.hear("replica_failed")
    await supervisor.stop(PATIENCE_S)
    log.close()
    said = [record.getMessage() for record in caplog.records]
    assert f"[main {model.name}] seen" in said
    assert "[main] from C" in said
    raised = next(record for record in caplog.records if "negative age" in record.getMessage())
    assert raised.levelno == logging.ERROR
    traceback = vars(raised)["fields"]["traceback"]
    assert traceback.startswith("Traceback")
    assert f'File "{tmp_path}/talk/model.py", line 7, in predict' in traceback
