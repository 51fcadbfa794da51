"""A deployment on disk and a repository over it, with something that carries changes out as a test says."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from router.management.operations.current import ChangeRefused, Current
from router.management.operations.repository.repository import Place, Repository
from router.management.operations.watching import SettingsWatch
from router.settings import Settings, load_settings
from serving.control.state.desired import DesiredState
from serving.control.state.replicas import ReplicaRecord, SliceRecord
from serving.values.specs import ServedModel
from tests.router.fakes import FakeServing
from tests.router.settings.samples import write_deployment, write_model

GATEWAY = """\
server: {rest_port: 9000}
slices: [{name: a}, {name: b}]
models:
  - {path: models/digits, slices: [a], slo_ms: 40}
  - {path: models/minilm}
repository: {folders: [models]}
cache:
"""

PLAIN = """\
name: NAME
inputs: [{name: IN, datatype: FP32, shape: [-1, 2]}]
outputs: [{name: OUT, datatype: FP32, shape: [-1, 2]}]
batch_max: 8
slo_ms: 70
default_variant: one
variants: [{name: one}, {name: two}]
"""


class FakeCurrent:
    """Carries a change out at once; where `hold` is clear, when it is set; or Refused with `refusal`."""

    def __init__(self, settings: Settings, serving: FakeServing) -> None:
        self.settings = settings
        self.refusal: tuple[str, ...] = ()
        self.hold = asyncio.Event()
        self.hold.set()
        self.begun = asyncio.Event()
        self.changes: list[Settings] = []
        self.rolled_back = 0
        self._serving = serving
        serving.models = _by_name(settings)

    async def change(
        self, asked: Settings | Callable[[Settings], Settings], by: Sequence[DesiredState] = ()
    ) -> None:
        settings = asked if isinstance(asked, Settings) else asked(self.settings)
        before, self.settings = self.settings, settings
        self.changes.append(settings)
        kept = {name: model for name, model in self._serving.models.items() if name in _by_name(settings)}
        self._serving.models = kept
        self.begun.set()
        await self.hold.wait()
        if self.refusal:
            self.settings, self._serving.models = before, _by_name(before)
            raise ChangeRefused(self.refusal)
        self._serving.models = _by_name(settings)

    def roll_back(self, reason: str = "") -> None:
        self.rolled_back += 1
        self.refusal = ("it was given up",)
        self.hold.set()


class World:
    """`write` makes penstock.yaml say something else; `edit` does so and has the watch look at it."""

    def __init__(
        self,
        home: Path,
        gateway: str = GATEWAY,
        place: Place = lambda settings: settings,
        path: Path | None = None,
    ) -> None:
        """`path`: the settings that are watched, where they are not the `penstock.yaml` in `home`."""
        self.home = home
        self.path = write_deployment(home, gateway)
        if path is not None:
            self.path = path
        self.serving = FakeServing()
        filed = load_settings(self.path)
        self.current = FakeCurrent(filed, self.serving)
        self.slices: dict[str, SliceRecord] = {}
        self.repository = Repository(cast(Current, self.current), self.serving, self.slices, filed, place)
        self.said: list[str] = []
        self.spoke = asyncio.Event()
        self.watch = SettingsWatch(self.repository, self._say, self._say)

    @property
    def served(self) -> dict[str, ServedModel]:
        """What is wanted now, by name."""
        return _by_name(self.current.settings)

    def add_folder(self, name: str) -> Path:
        """A model folder beside the others, which penstock.yaml does not name."""
        return write_model(self.home / "models" / name, PLAIN.replace("NAME", name))

    def hold_replica(self, record: ReplicaRecord) -> None:
        """A replica that is still on a slice."""
        self.slices["a"] = SliceRecord(self.current.settings.slices[0], {record.id: record})

    def _say(self, line: str) -> None:
        self.said.append(line)
        self.spoke.set()

    async def edit(self, old: str, new: str) -> None:
        """Replace a part of penstock.yaml, and look."""
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))
        await self.watch.look()


def _by_name(settings: Settings) -> dict[str, ServedModel]:
    return {model.name: model for model in settings.models}
