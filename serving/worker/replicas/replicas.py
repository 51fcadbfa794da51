"""The replicas of one worker: load, run, measure, and what to say when a model's code fails."""

import copy
import re
import resource
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Final, cast

from serving.values.specs import ParameterValue
from serving.worker.backends.contract import MODULES, Backend, DecoupledModel, LoadedModel
from serving.worker.backends.samples import make_sample, warm_rows
from serving.worker.device.running import Flight, TensorModel
from serving.worker.frames.arrays import Arrays, TensorError, datatype_of, encode_outputs
from serving.worker.frames.orders import Loaded, LoadOrder, MeasuredBatches, MeasureOrder
from serving.worker.process.garbage import Garbage
from serving.worker.process.memory import Memory
from serving.worker.process.yardstick import Yardstick
from serving.worker.replicas.padding import add_masks
from serving.worker.replicas.repeats import CopiedOutput, difference, kept
from serving.worker.replicas.sequences import SequenceModel
from serving.worker.replicas.streaming import Answered, Gone, answers_of, run_alone

MODEL_ERRORS: Final = (Exception, SystemExit)
"""What a model's code may raise without taking the worker along."""
TRIES = 3  # times as many runs as asked for, where others disturb them
TEXT_CHARS_MAX: Final = 900
"""Of what a model's code raised, for the operator."""
CLIENT_CHARS_MAX: Final = 200
"""Likewise, for clients."""
InTurn = Callable[[Callable[[], str | None]], str | None]
"""Do a step in another thread, and return what it returns or raise what it raises."""
_FOLDERS: Final = re.compile(r"(?<![\w.:/])/(?:[^\s/'\":]+/)+")
LENGTHENED, LENGTHENED_US = 0.05, 200.0
"""Of a run, and at least so long: off the core for less, a run is as good as undisturbed (measurements repeat
to some 5 %)."""


class LoadedReplica:
    """A loaded variant and the spec that its answers are held to. `settled`: the thread that runs its batches
    is set up for it. `freezes`: of the collector (`Garbage`), before it was loaded. `loaded`: what its load
    took."""

    __slots__ = ("_model", "_weighed", "ended_us", "freezes", "loaded", "order", "settled")

    def __init__(self, order: LoadOrder, model: LoadedModel, freezes: int) -> None:
        self.order = order
        self.freezes = freezes
        self.loaded = Loaded(order.replica, 0, 0)
        self.settled = False
        self.ended_us = 0  # when its last predict was over, by the machine's monotonic clock
        self._model = model
        self._weighed: dict[tuple[int, int], int] = {}  # bytes that a run takes, by rows and size

    def is_for(self, order: LoadOrder) -> bool:
        """Return whether the order would load the same, but for the replica's number."""
        return replace(order, replica=self.order.replica) == self.order

    def predict(
        self, inputs: Arrays, parameters: dict[str, ParameterValue]
    ) -> tuple[Mapping[str, object], int]:
        """Return the model's outputs and its own time in us, rounded up. Of a decoupled model it checks all
        answers, and returns none."""
        started_ns = time.perf_counter_ns()
        if self.order.decoupled:
            outputs = run_alone(cast(DecoupledModel, self._model), inputs, parameters, self.order.outputs)
        else:
            outputs = self._model.predict(inputs, parameters)
        spent_ns = time.perf_counter_ns() - started_ns
        self.ended_us = time.monotonic_ns() // 1000
        return outputs, (spent_ns + 999) // 1000

    def answers(self, inputs: Arrays, parameters: dict[str, ParameterValue], gone: Gone) -> Answered:
        """Return the answers of a decoupled model as it gives them; see `streaming.answers_of`."""
        rows = len(next(iter(inputs.values())))
        return answers_of(cast(DecoupledModel, self._model).stream(inputs, parameters), rows, gone)

    def keep(self) -> None:
        """Keep what the latest batch left for its sequences, as the answer is complete."""
        if isinstance(self._model, SequenceModel):
            self._model.keep()

    @property
    def launches(self) -> bool:
        """Whether `launch` can be asked for: the model takes tensors, and does not wait for its device."""
        return isinstance(self._model, TensorModel)

    def launch(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Flight:
        """Give a batch to the device, and return before it is answered."""
        return cast(TensorModel, self._model).launch(inputs, parameters)

    @property
    def padded_size(self) -> int:
        """Tokens per row of the last predict, 0 where the model does not say."""
        return max(0, min(int(getattr(self._model, "padded_size", 0)), 0xFFFFFFFF))

    def warm_up(self) -> str:
        """Run one row of the smallest and of the largest size, and check the answers: first runs are slow. A
        variant that says that it is deterministic runs each twice. Return how its answers differed, "" if
        they did not."""
        differs = ""
        for size in sorted(set(self.order.sizes)):
            inputs = self._sample(1, size)
            missing = [spec.name for spec in self.order.inputs if spec.name not in inputs]
            if missing:
                raise TensorError(f"sample(1, {size}) lacks the inputs {missing}")
            if self.order.decoupled:
                self.predict(inputs, {})
                continue
            if not self.order.deterministic:
                self._answered(inputs)
                continue
            again = copy.deepcopy(inputs)  # a model may change what it is given
            answer = self._answered(inputs)
            differs = differs or difference(self.order.outputs, answer, self._answered(again))
        return differs

    def warm_batch(self, rows: int, size: int) -> None:
        """Run one batch of `rows` rows, as it will be served."""
        self.predict(self._sample(rows, size), {})

    def seal(self) -> None:
        """Take that all sizes of batches were run."""
        if isinstance(self._model, TensorModel):
            self._model.seal()

    def _sample(self, rows: int, size: int) -> Arrays:
        """Return the model's own, or one that is made for it."""
        own = getattr(self._model, "sample", None)
        order = self.order
        made: Arrays = make_sample(order.inputs, rows, order.hint, size) if own is None else own(rows, size)
        masks = [each.name for each in order.inputs if each.mask]
        if masks:  # no row of a sample is filled up
            made = {name: array for name, array in made.items() if name not in masks}
            add_masks(order.inputs, made)
        return made

    def _answered(self, inputs: Arrays) -> list[CopiedOutput]:
        first = datatype_of(inputs[self.order.inputs[0].name])
        outputs, _ = self.predict(inputs, {})
        return kept(encode_outputs(self.order.outputs, outputs, 1, first))

    def drop(self) -> Callable[[], object]:
        """Let the model go; the replica is of no use any more. The returned function finds the model as long
        as it is somewhere in memory, then None. It always returns None if its class takes no weak references.

        Code that still refers to the replica does not hold the model. A kept exception, as torch's import
        keeps some, holds all the frames that led to it, and what they named last.
        """
        try:
            left: Callable[[], object] = weakref.ref(self._model)
        except TypeError:
            left = _nothing
        del self._model
        return left

    def measure(self, order: MeasureOrder, memory: Memory, yardstick: Yardstick) -> MeasuredBatches:
        """Measure up to `repeats` runs, fewer if the next would leave the budget, between the yardstick's."""
        inputs = self._sample(order.rows, order.size)
        batch = (order.rows, order.size)
        if order.yardsticks and batch not in self._weighed:
            before_bytes = memory.start()
            self.predict(inputs, {})
            self._weighed[batch] = max(memory.peak_bytes() - before_bytes, 0)
        yardsticks = yardstick.run(order.yardsticks // 2)
        latencies, disturbed = self._run(inputs, order)
        yardsticks += yardstick.run(order.yardsticks - order.yardsticks // 2)
        weighed_bytes = self._weighed.get(batch, 0)
        return MeasuredBatches(order.replica, *batch, latencies, yardsticks, weighed_bytes, disturbed)

    def _run(self, inputs: Arrays, order: MeasureOrder) -> tuple[list[int], bool]:
        """Return the times of undisturbed runs; it tries up to TRIES times as often. If none was undisturbed,
        return the times of the other runs, and True."""
        calm: list[int] = []
        disturbed: list[int] = []
        spent_us = took_us = 0
        while not spent_us or (
            len(calm) < order.repeats
            and len(calm) + len(disturbed) < TRIES * order.repeats
            and spent_us + took_us <= order.budget_us
        ):
            interruptions = Interruptions()
            took_us = self.predict(inputs, {})[1]
            (disturbed if interruptions.lengthened(took_us) else calm).append(took_us)
            spent_us += max(took_us, 1)
        return calm or disturbed[: order.repeats], not calm


class Interruptions:
    """Whether other programs took the core while something ran in this thread."""

    __slots__ = ("_started_ns", "_switches")

    def __init__(self) -> None:
        self._switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        self._started_ns = time.thread_time_ns()

    def lengthened(self, took_us: int) -> bool:
        """Return whether what has run until now, for `took_us`, took clearly longer for them.

        The kernel has put the thread off the core, and it was off for a share that matters. A thread that
        waits of its own accord, as for a GPU or a file, is not put off.
        """
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - self._switches
        off_us = took_us - (time.thread_time_ns() - self._started_ns) / 1000
        return switches > 0 and off_us > max(LENGTHENED_US, LENGTHENED * took_us)


def _nothing() -> None:
    pass


def load_replica(
    backend: Backend, order: LoadOrder, memory: Memory, garbage: Garbage, in_turn: InTurn | None = None
) -> tuple[LoadedReplica, Loaded]:
    """Return a replica that has run once, and what that took.

    `in_turn` does a step in the thread that runs batches, between two of them: on a GPU much is by thread, so
    all sizes of batches are run there.
    """
    started_ns = time.perf_counter_ns()
    with memory.growth.load() as growth:
        backend.prepare(order)
        garbage.freeze_imports()  # before there is a model
        import_bytes = growth.imported()
        replica = LoadedReplica(order, _with_sequences(backend.load(order), order), garbage.freezes)
        garbage.freeze_imports()
        loaded_ns = time.perf_counter_ns()
        differs = replica.warm_up() if in_turn is None else _warm_in_turn(backend, replica, in_turn)
        warm_us = (time.perf_counter_ns() - loaded_ns) // 1000
        load_us = (time.perf_counter_ns() - started_ns) // 1000
        memory_bytes = growth.loaded()
    return replica, Loaded(order.replica, load_us, memory_bytes, warm_us, import_bytes, differs)


def _with_sequences(model: LoadedModel, order: LoadOrder) -> LoadedModel:
    """Return the model as batches run on it: with control inputs and state, if it has sequences."""
    if order.sequence is None:
        return model
    if isinstance(model, TensorModel):
        raise TensorError("a model with sequences has predict; got one with predict_device")
    return SequenceModel(model, order.sequence)


def _warm_in_turn(backend: Backend, replica: LoadedReplica, in_turn: InTurn) -> str:
    """Run every size of batch that will be served, each between two batches of others."""

    def begin() -> str:
        backend.settle()
        replica.settled = True
        return replica.warm_up()

    differs = in_turn(begin)
    for size in sorted(set(replica.order.sizes), reverse=True):
        for rows in warm_rows(replica.order.batch_max):
            in_turn(partial(replica.warm_batch, rows, size))
    replica.seal()
    return differs or ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as fault:  # a class of the model's may do anything in its __str__
        return f"(its text cannot be had: {type(fault).__name__})"


def blames_input(error: BaseException) -> bool:
    """Return whether a model's code says by its error that the request's input is at fault: the error has the
    attribute `bad_input`, and it is True."""
    try:
        return getattr(error, "bad_input", False) is True
    except Exception:  # a class of the model's may do anything in its __getattr__
        return False


def describe(error: BaseException) -> str:
    """Return the type, text and place of what a model's code raised, in one line for the operator."""
    return _described(error, " ".join(_text(error).split()), TEXT_CHARS_MAX)


def describe_to_client(error: BaseException) -> str:
    """Do as `describe`, but shorter, with only the last part of paths: folders and what a model holds are no
    business of clients. The log has all of it."""
    return _described(error, _FOLDERS.sub("", " ".join(_text(error).split())), CLIENT_CHARS_MAX)


def _is_models(module: str, file: str) -> bool:
    """Return whether a frame runs a model's own code."""
    return module.startswith(MODULES) or file.endswith("model.py")


def _described(error: BaseException, text: str, most: int) -> str:
    if isinstance(error, TensorError):
        return text
    if blames_input(error):  # the sentence is for the client
        return text if len(text) <= most else f"{text[: most - 3]}..."
    places = [
        f" ({PurePath(frame.f_code.co_filename).name}:{line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_models(str(frame.f_globals.get("__name__")), frame.f_code.co_filename)
    ]
    place = places[-1] if places else ""
    whole = f"{type(error).__name__}: {text}"
    return (whole if len(whole) <= most else f"{whole[: most - 3]}...") + place
