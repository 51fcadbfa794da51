"""Sequences: requests that a model answers one after the other, with what is kept between them.

The words are Triton's (`ModelSequenceBatching` in model_config.proto): strategies direct and oldest, the
control inputs START, END, READY and CORRID, and implicit state.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

STRATEGIES: Final = ("direct", "oldest")
"""`direct`: a sequence has a fixed row of the model's batches. `oldest`: its requests are in any row."""

CONTROLS: Final = ("start", "end", "ready", "corrid")
FLAG_DATATYPES: Final = ("INT32", "FP32", "BOOL")
ID_DATATYPES: Final = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")
"""What a model may get as control inputs: the first of each is the default."""

ID_CHARS_MAX: Final = 128
"""Of an id that is text, as in Triton."""

STATE_BYTES_MAX: Final = 1 << 30
"""Of all sequences that one replica may have at once."""

SequenceId = int | str


class SequenceStep(NamedTuple):
    """What a request says of its sequence: the id, and whether it is the first or the last request."""

    id: SequenceId
    start: bool = False
    end: bool = False


@dataclass(frozen=True, slots=True)
class ControlSpec:
    """A control input that the worker adds to a batch: one value a row. `kind`: one of CONTROLS."""

    kind: str
    name: str
    datatype: str


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A tensor that the worker keeps for each sequence between its requests; zeros at its start.

    The model gets it as `input` and returns it as `output`. `shape` is of one row, without free dimensions.
    """

    input: str
    output: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """How a model serves sequences.

    `slots`: the sequences that one replica may have at once. `idle_us`: after so long without a request a
    sequence ends.
    """

    strategy: str
    slots: int
    idle_us: int
    controls: tuple[ControlSpec, ...] = ()
    state: tuple[StateSpec, ...] = ()

    @property
    def id_datatype(self) -> str:
        """Return the datatype of ids as the model gets them; "" if it gets none."""
        return next((each.datatype for each in self.controls if each.kind == "corrid"), "")

    @property
    def repeatable(self) -> bool:
        """Return whether a batch in which the model raised may run again.

        A model with `state` keeps nothing else, and the state is as before. Another keeps what it keeps.
        """
        return bool(self.state)


def pack_spec(spec: SequenceSpec | None) -> object:
    """Return what a LOAD frame says of sequences, as JSON."""
    if spec is None:
        return None
    controls = [(each.kind, each.name, each.datatype) for each in spec.controls]
    state = [(each.input, each.output, each.datatype, each.shape) for each in spec.state]
    return [spec.strategy, spec.slots, spec.idle_us, controls, state]


def unpack_spec(found: object) -> SequenceSpec | None:
    """Return what `pack_spec` wrote. ValueError or TypeError for anything else."""
    if found is None:
        return None
    if not isinstance(found, list):
        raise TypeError("sequence is no list")
    strategy, slots, idle_us, controls, state = found
    spec = SequenceSpec(
        str(strategy),
        int(slots),
        int(idle_us),
        tuple(ControlSpec(str(kind), str(name), str(datatype)) for kind, name, datatype in controls),
        tuple(
            StateSpec(str(name), str(output), str(datatype), tuple(map(int, shape)))
            for name, output, datatype, shape in state
        ),
    )
    known = {each.datatype for each in spec.controls} <= {*FLAG_DATATYPES, *ID_DATATYPES}
    fixed = all(min((1, *each.shape)) > 0 for each in spec.state)
    if spec.slots < 1 or not known or not fixed:
        raise ValueError(f"no sequences are as {found!r:.100} says")
    return spec
