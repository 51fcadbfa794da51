"""Files that people edit or that gateways keep: settings, models, placements, profiles, tables, recordings.

Each is read, or refused with a place or a sentence; and what is read can be worked with.
"""

import contextlib
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Final

from loadtests.harness.gateway import ROOT
from loadtests.hostile.fuzz.playing import Fault, Target, seeds_of, words_of
from loadtests.hostile.fuzz.served import SIMPLE
from router.management.operations import applied
from router.settings import SettingsError, load_model, load_settings
from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.guess import guess
from serving.profile.curve import Point, Profile
from serving.profile.files import document
from serving.runtime.files import capacity_file
from serving.runtime.files.capacity_file import CapacityFile
from serving.simulation.traffic.replay import replay

YAML_MS_PER_KB: Final = 40.0
"""PyYAML reads 100 KB a second, each use of an alias counts; a thread beside the event loop reads it."""
PLACED: Final = ("digits", "linear", "cpu-amd-epyc-f25m17")
WALKED: Final = 1000  # requests of a recording
_KIND = "cpu cores:1"
_BLOCK = struct.Struct("<cII")
_HEADER = struct.Struct("<8sHQ")

YAML_WORDS: Final = words_of("yaml.dict")
JSON_WORDS: Final = words_of("state.dict")
RECORDING_WORDS: Final = (
    b"PENSTOCK", b"N", b"A", bytes(16), b"\xff" * 8, b'["simple","default","",25000,""]', b"[]", b"null",
    _BLOCK.pack(b"A", 8, 0), struct.pack("<iIHII", 0, 0, 0, 1, 0), struct.pack("<q", (1 << 63) - 1),
    struct.pack("<iIHII", -1, 1, 65535, 1 << 31, 1), struct.pack("<q", -(1 << 63)),
)  # fmt: skip
_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


def _explained(load: Callable[[Path], object], place: Path) -> bool:
    """Return whether it loads; where not, each problem has a place inside its file and is one printable
    line."""
    try:
        load(place)
    except SettingsError as error:
        if not error.problems:
            raise Fault("it was refused without a reason") from None
        for problem in error.problems:
            lines = _LINE_BREAK.split(Path(problem.file).read_bytes().decode("utf-8-sig", "replace"))
            if not 1 <= problem.line <= len(lines):
                raise Fault("a problem has a line that the file has not") from None
            if not str(problem).isprintable():
                raise Fault("a problem is no printable line") from None
        return False
    return True


@contextlib.contextmanager
def settings_target() -> Iterator[Target]:
    """Yield the target for penstock.yaml, beside the sample models."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as home:
        Path(home, "models").symlink_to(ROOT / "models")
        file = Path(home, "penstock.yaml")

        def play(data: bytes) -> bool:
            file.write_bytes(data)
            return _explained(load_settings, file)

        # "*b," names a model once more, which is read once more, in 3 ms: a thread does so
        yield Target("settings", play, YAML_WORDS, stall_ms=1000.0, stall_ms_per_kb=1000.0)


@contextlib.contextmanager
def model_target() -> Iterator[Target]:
    """Yield the target for model.yaml."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as home:
        folder = Path(home, "simple")
        folder.mkdir()
        (folder / "model.py").write_text("")

        def play(data: bytes) -> bool:
            (folder / "model.yaml").write_bytes(data)
            return _explained(load_model, folder)

        yield Target("model", play, YAML_WORDS, stall_ms=200.0, stall_ms_per_kb=YAML_MS_PER_KB)


@contextlib.contextmanager
def placement_target() -> Iterator[Target]:
    """Yield the target for the placement that was applied, kept beside penstock.yaml."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as home:
        settings = Path(home, "penstock.yaml")
        settings.write_bytes(seeds_of("settings")["good-all.yaml"])
        Path(home, "models").symlink_to(ROOT / "models")
        loaded = load_settings(settings)
        applied.path_of(settings).parent.mkdir()

        def play(data: bytes) -> bool:
            applied.path_of(settings).write_bytes(data)
            found, said = applied.standing(loaded)
            if found is None and said is None:
                raise Fault("a placement was passed over without a word")
            kept = applied.kept(settings)
            if kept is not None:
                applied.in_force(loaded, kept)
                applied.keep(settings, kept)
                if applied.kept(settings) != kept:
                    raise Fault("a placement that was kept again is another")
            return kept is not None

        yield Target("placement", play, JSON_WORDS)


@contextlib.contextmanager
def profile_target() -> Iterator[Target]:
    """Yield the target for a profile, and for the latencies that are planned with by it."""

    def play(data: bytes) -> bool:
        try:
            found = document.parse(data, PLACED, "fuzzed")
        except ValueError:
            return False
        for profile in found.profiles:
            for curve in profile.curves().values():
                if not (isfinite(curve.at(1)) and curve.at(1) > 0):
                    raise Fault("a profile was believed whose latency is none")
        if document.parse(document.render(found).encode(), PLACED, "fuzzed") != found:
            raise Fault("a profile that was written again is another")
        return True

    yield Target("profile", play, JSON_WORDS)


@contextlib.contextmanager
def capacities_target() -> Iterator[Target]:
    """Yield the target for tables of what replicas carry; a table that is believed must be of use."""
    points = (Point(0, 1, 100, 100, 3), Point(0, 8, 800, 800, 3))
    asked = FindCapacity(SIMPLE, "exact", _KIND, Profile("simple", "exact", _KIND, points), 4)
    with tempfile.TemporaryDirectory(prefix="penstock-") as home:
        file = Path(home, capacity_file.NAME)
        key = _key_of(file, asked)

        def play(data: bytes) -> bool:
            file.write_bytes(data.replace(b"KEY", key))
            found = CapacityFile(file).read(asked)
            if found is None:
                return False
            for count in (1, 3, 100):
                if not (
                    isfinite(found.rate(count)) and found.rate(count) > 0 and isfinite(found.rate(count, 3.0))
                ):
                    raise Fault("a table was believed that says no rate")
            found.needed(1000.0)
            return True

        yield Target("capacities", play, (*JSON_WORDS, b"KEY"))


def _key_of(file: Path, asked: FindCapacity) -> bytes:
    """Return the name that the file has for the question; a seed says KEY, as it differs with the code."""
    CapacityFile(file).write(asked, guess(asked.profile, asked.model))
    name = re.search(rb'"([0-9a-f]{32})"', file.read_bytes())
    if name is None:
        raise ValueError("a table of capacities has no key")
    return name[1]


def _checksums(data: bytes) -> bytes:
    """Return the checksums of its header and of its blocks, made good."""
    head = data[: _HEADER.size]
    parts = [head, zlib.crc32(head).to_bytes(4, "little")]
    at = _HEADER.size + 4
    while at + _BLOCK.size + 4 <= len(data):
        kind, length, _ = _BLOCK.unpack_from(data, at)
        start = at + _BLOCK.size + 4
        length = min(length, len(data) - start)
        body = data[start : start + length]
        block = _BLOCK.pack(kind, length, zlib.crc32(body))
        parts += (block, zlib.crc32(block).to_bytes(4, "little"), body)
        at = start + length
    return b"".join(parts)


@contextlib.contextmanager
def recording_target() -> Iterator[Target]:
    """Yield the target for recorded arrivals, as `penstock simulate` replays them."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as home:
        file = Path(home, "fuzzed.arrivals")

        def play(data: bytes) -> bool:
            file.write_bytes(data)
            try:
                found = replay([file], [SIMPLE], skip_unknown=True)
            except ValueError:
                return False
            last_us = 0
            for arrival in islice(found, WALKED):
                if arrival.at_us < last_us or arrival.rows < 1:
                    raise Fault("a request is out of order, or has no rows")
                last_us = arrival.at_us
            return True

        yield Target("recording", play, RECORDING_WORDS, mend=_checksums)
