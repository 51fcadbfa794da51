"""What slices and devices are: shares of a device, slices of worker processes, devices to place on."""

import re
from dataclasses import dataclass, field
from typing import Final

from serving.values.rehearsal import EXACT, RehearsalSpec

SHARE_KINDS = ("cores", "mps", "sm", "mig", "whole", "time")


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """How much of a device a slice has.

    `kind` says what `amount` counts:
    - "cores": of a CPU; "mps": per cent of a GPU's multiprocessors, at most (CUDA MPS).
    - "sm": chunks of a static MPS partition.
    - "mig": compute slices of the instance that `label` names ("3g.71gb"; "3g.71gb*2" is one process of two).
    - "whole" (1): all of the device; "time" (1): all of it, in turns with others.
    """

    kind: str
    amount: float
    label: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.label or format(self.amount, 'g')}"

    @classmethod
    def parse(cls, text: str) -> "Share":
        """Return the share that `str` writes as `text`; ValueError says what is wrong with any other text."""
        kind, colon, amount = text.partition(":")
        if kind not in SHARE_KINDS or not colon:
            raise ValueError(f"a share is KIND:AMOUNT with a kind of {', '.join(SHARE_KINDS)}, not {text!r}")
        label = amount if kind == "mig" else ""
        number = amount.partition("g")[0] if label else amount
        if not _AMOUNT.fullmatch(number) or not 0 < float(number) <= AMOUNT_MAX:
            raise ValueError(f"the amount of a share is a number above 0, not {amount!r} (in {text!r})")
        _, several, count = label.partition("*")
        if several and not _PROCESSES.fullmatch(count):
            raise ValueError(f"an instance has 2 to 48 processes, not {count!r} (in {text!r})")
        return cls(kind, float(number), label)

    @property
    def profile(self) -> str:
        """The name of the MIG instance, "" of other shares."""
        return self.label.partition("*")[0]

    @property
    def processes(self) -> int:
        """The processes that compute at once in this share."""
        return int(self.label.partition("*")[2] or 1)

    def with_processes(self, count: int) -> "Share":
        """Return the share of one of `count` processes in this instance; with 1, of the instance itself."""
        return Share(self.kind, self.amount, f"{self.profile}*{count}" if count > 1 else self.profile)


AMOUNT_MAX = 100_000
PROCESS_COUNT_MAX = 48  # in a MIG instance: an MPS daemon has no more clients
_AMOUNT = re.compile(r"\d{1,6}(\.\d{1,6})?", re.ASCII)
_PROCESSES = re.compile(r"[2-9]|[1-3][0-9]|4[0-8]")


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """A share of a device on which one worker process runs.

    `cores`: the cores that its process stays on, () for any; `threads` compute there. `device`: "cpu", a GPU
    by its torch name ("cuda:0"), or the name of a rehearsed device. `kind`: the kind of its GPU as profiles
    name it, "" for this machine's CPU. `part`: its share of the GPU, None for all. `memory_bytes`: its limit
    if its actuator can enforce one, 0 for none. `price`: for an hour, 0 if not stated. `spot`: its owner may
    take it back at any time. `rehearsed`: its worker loads nothing and answers when the profile says, and
    `rehearsal` how far it departs from that. `instance`: the slices of one MIG instance have one name here.
    `python`: the interpreter of its worker, "" for the gateway's own. `node`: the machine that has the
    device, "" for the gateway's own; on another, `cores` count the cores that the node may use, from 0.
    """

    name: str
    cores: tuple[int, ...]  # empty: not pinned
    threads: int = 1
    device: str = "cpu"
    part: Share | None = None
    memory_bytes: int = 0
    price: float = 0.0
    spot: bool = False
    kind: str = ""
    rehearsed: bool = False
    instance: str = ""
    rehearsal: RehearsalSpec = EXACT
    python: str = ""
    node: str = ""

    @property
    def place(self) -> str:
        """The slice that has its cores: itself, except for an own process, which runs on a slice's cores."""
        return place_of(self.name)

    @property
    def held_as(self) -> str:
        """The name under which its share of the device is held. What is reserved on a GPU is held once, for
        the slice and for the own processes of models there."""
        return self.instance or (self.place if self.share.kind in RESERVED else self.name)

    @property
    def domain(self) -> str:
        """What fails together with it: its device, or its place alone if that is spot."""
        if self.spot:
            return f"spot {self.place}"
        return f"{self.node}/{self.device}" if self.node else self.device

    @property
    def share(self) -> Share:
        """How much of its device it computes on."""
        if self.device == "cpu":
            return Share("cores", float(self.threads))
        return self.part or Share("whole", 1.0)


RESERVED: Final = ("mig", "sm")
"""The kinds of shares of a GPU that no other slice can use."""

ORPHAN_S: Final = 30.0
"""Longer than a restart of the gateway takes, and shorter than a user would wait for the memory."""


@dataclass(frozen=True, slots=True)
class WorkersSpec:
    """The environment of worker processes, and their limits; 0 for no limit.

    `environment`: variables to set; `inherit`: variables of the gateway that they get in addition to the
    usual ones. `memory_bytes`: for a worker and all that it started. `open_files`: descriptors of each of
    these processes. `processes`: processes and threads of their user, of all programs. `spare`: whether a
    slice may get a second process after a kill from outside (`serving/control/sparing.py`). `orphan_s`: how
    long a worker whose gateway is gone waits for the next one; `owner`: names the gateway across its lives,
    "" if no worker waits.
    """

    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    inherit: tuple[str, ...] = ()
    memory_bytes: int = 0
    open_files: int = 0
    processes: int = 0
    spare: bool = True
    orphan_s: float = ORPHAN_S
    owner: str = ""


_OWN = "+"  # no name of a slice or a model in a settings file may hold it


def own_process(slice_name: str, model: str) -> str:
    """Return the name of a model's own process on a slice; it counts as a slice on the same cores."""
    return f"{slice_name}{_OWN}{model}"


def place_of(slice_name: str) -> str:
    """Return the slice on which a process runs, from the name of the slice or of an own process there."""
    return slice_name.partition(_OWN)[0]


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """Devices that a placement may use: `count` equal ones.

    `kind`: as profiles name it ("gpu-nvidia-h200"). `divide`: the kind of shares, of DIVISIONS. `cores`: of a
    CPU. `memory_bytes`: 0 for no limit. `price`: of one for an hour. Devices of one `domain` fail together;
    "": each fails alone. `rehearse`: the devices are not here, and slices on them answer by their profiles.
    """

    name: str
    kind: str
    divide: str
    count: int = 1
    cores: int = 0
    memory_bytes: int = 0
    price: float = 0.0
    domain: str = ""
    rehearse: bool = False
    rehearsal: RehearsalSpec = EXACT

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each device: `name` alone for one, `name-1` to `name-N` for several."""
        return tuple(f"{self.name}-{n}" for n in range(1, self.count + 1)) if self.count > 1 else (self.name,)


DIVISIONS = ("cores", "mps", "mig", "whole")
