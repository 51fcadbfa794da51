"""Whatever happens to sequences, each answer is the sum of what its sequence asked since its START.

The witness plays workers that keep a sum by slot. What it expects follows from Triton's semantics: START
begins again, END gives up the slot, an idle sequence ends, and an unknown one needs START.
PENSTOCK_SEEDS raises the number of histories and draws others.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from serving.scheduler.commands import Answer, Command, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.sequences import SequenceSpec, SequenceStep, StateSpec
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import (
    BAD_INPUT,
    COMPLETED,
    MODEL_ERROR,
    NEVER_US,
    SEQUENCE_LOST,
    WORKER_LOST,
)
from tests.scheduler.values import replica_of, served_model
from tests.seeds import examples

SLOTS = 2
IDLE_US = 400
SLICES = ("s", "t")
STATE = (StateSpec("I", "O", "INT32", (1,)),)
Key = tuple[str, int]


@dataclass
class Story:
    """A sequence as its client and the workers know it. `total`: of what ran since its START."""

    key: Key
    open: list[int] = field(default_factory=list)
    total: int = 0
    place: tuple[str, int] | None = None
    heard_us: int = 0
    over: bool = False
    barred: frozenset[tuple[str, int]] = frozenset()  # replicas that were to go when it came


class Witness:
    """Drives a scheduler, and holds every command against what it knows itself."""

    def __init__(self, policy: str, repeatable: bool) -> None:
        plain = served_model(batching=BatchingSpec(policy))
        spec = SequenceSpec("oldest", SLOTS, IDLE_US, (), STATE if repeatable else ())
        self.model = replace(plain, spec=replace(plain.spec, sequence=spec), variants=("a",), replicas=None)
        self.repeatable = repeatable
        self.scheduler = Scheduler([self.model], Limits(queue_requests=30, stall_us=1 << 40))
        self.up: dict[str, int] = {}
        self.closed: set[tuple[str, int]] = set()
        self.sums: dict[tuple[str, int], dict[int, int]] = {}  # by slice and replica, then slot
        self.flights: dict[int, RunBatch] = {}
        self.requests: set[int] = set()  # open ones
        self.numbers: dict[int, int] = {}
        self.story_of: dict[int, Story] = {}
        self.running: set[int] = set()
        self.ran: dict[int, int] = {}  # what the worker answers
        self.live: dict[Key, Story] = {}
        self.count = 0

    # events

    def load(self, name: str, now_us: int) -> None:
        self.count += 1
        if name in self.up:
            self.lose_stories(name)
        self.up[name] = self.count
        self.sums[name, self.count] = {}
        self.heed(
            self.scheduler.replica_up(name, "m", replica_of(self.model, "a", self.count), now_us), now_us
        )

    def ask(self, key: Key, step: SequenceStep, slack_us: int, strict: bool, now_us: int) -> None:
        self.count += 1
        request = Request(self.count, "m", 1, now_us, now_us + slack_us)
        request.expires_us = now_us + slack_us if strict else NEVER_US
        request.tenant, request.variants, request.step = key[0], ("a",), step
        story = self.live.get(key)
        known = story is not None and not story.over
        if story is None or story.over or (step.start and self.idled(story, now_us)):
            story = Story(key, barred=frozenset(self.closed))
        self.numbers[request.id], self.story_of[request.id] = self.count % 7 + 1, story
        self.requests.add(request.id)
        commands = self.scheduler.arrive(request, now_us)
        refused = [each.outcome for each in commands if isinstance(each, Answer) and each.request is request]
        if not refused:
            assert step.start or known, "an unknown sequence was accepted"
            self.live[key] = story
            story.open.append(request.id)
            story.heard_us = now_us
            if step.end:
                del self.live[key]
        elif refused[0] in (BAD_INPUT, SEQUENCE_LOST):
            assert not step.start, "START was refused"
            assert not known or self.idled(story, now_us), f"a live sequence was refused: {refused[0]}"
        self.heed(commands, now_us)

    def cancel(self, request_id: int, now_us: int) -> None:
        self.heed(self.scheduler.cancel(request_id), now_us)
        assert request_id not in self.requests

    def wake(self, now_us: int) -> None:
        self.heed(self.scheduler.wake(now_us), now_us)

    def finish(self, batch_id: int, well: bool, now_us: int) -> None:
        batch = self.flights.pop(batch_id)
        sums = self.sums[batch.slice, batch.replica]
        for piece in batch.pieces:
            request = piece.request
            self.running.discard(request.id)
            if well:
                step, slot = request.step, request.slot
                assert step is not None
                sums[slot] = (0 if step.start else sums[slot]) + self.numbers[request.id]
                self.ran[request.id] = sums[slot]
                self.note_run(request, step, now_us)
            elif request.step is not None and request.step.start:
                sums[request.slot] = 0
                self.story_of[request.id].total = 0
            self.story_of[request.id].heard_us = now_us
        if well:
            self.heed(self.scheduler.batch_done(batch_id, 1, now_us), now_us)
        else:
            self.heed(self.scheduler.batch_failed(batch_id, "raised", now_us), now_us)

    def die(self, name: str, now_us: int) -> None:
        for batch in [each for each in self.flights.values() if each.slice == name]:
            del self.flights[batch.id]
            self.running -= {piece.request.id for piece in batch.pieces}
        self.lose_stories(name)
        del self.up[name]
        self.heed(self.scheduler.slice_down(name, "died", now_us), now_us)

    def unload(self, name: str, now_us: int) -> None:
        self.lose_stories(name)
        del self.up[name]
        self.heed(self.scheduler.replica_down(name, "m", "a", "moved", now_us), now_us)

    def close(self, name: str) -> None:
        count = self.scheduler.close_place(name, "m", "a")
        assert count <= SLOTS
        if name in self.up:
            self.closed.add((name, self.up[name]))

    # what is known

    def idled(self, story: Story, now_us: int) -> bool:
        return not story.open and now_us >= story.heard_us + IDLE_US

    def lose_stories(self, name: str) -> None:
        for story in {id(each): each for each in self.story_of.values()}.values():
            if story.place is not None and story.place[0] == name:
                story.over = True

    def note_run(self, request: Request, step: SequenceStep, now_us: int) -> None:
        story = self.story_of[request.id]
        story.total = (0 if step.start else story.total) + self.numbers[request.id]
        assert self.ran[request.id] == story.total, "a request of it ran twice, elsewhere or out of order"

    def heed(self, commands: Iterable[Command], now_us: int) -> None:
        found = [*commands]
        for command in found:
            if isinstance(command, Answer):
                self.answered(command, now_us)
        for command in found:
            if isinstance(command, RunBatch):
                self.sent(command)

    def sent(self, batch: RunBatch) -> None:
        assert self.up[batch.slice] == batch.replica
        self.flights[batch.id] = batch
        slots = [piece.request.slot for piece in batch.pieces]
        assert len(set(slots)) == len(slots)
        assert all(0 <= slot < SLOTS for slot in slots)
        for piece in batch.pieces:
            request = piece.request
            story = self.story_of[request.id]
            others = [each for each in self.running if self.story_of[each] is story]
            assert not others, "two requests of a sequence at once"
            earlier = [each for each in story.open if each < request.id and each in self.requests]
            assert not earlier, "out of order"
            self.running.add(request.id)
            place = (batch.slice, request.slot)
            assert story.place in (None, place), "a sequence has moved"
            for other in self.live.values():
                ended = other is story or other.over or self.idled(other, batch.started_us)
                assert ended or other.place != place, "a slot was given away"
            barred = (batch.slice, batch.replica) in story.barred
            assert not barred, "a new sequence on what is to go"
            story.place = place

    def answered(self, answer: Answer, now_us: int) -> None:
        request = answer.request
        assert request.id in self.requests, "it was answered twice"
        self.requests.remove(request.id)
        story = self.story_of[request.id]
        if request.id not in story.open:
            return  # it was refused at the door: the sequence is as before
        story.open.remove(request.id)
        outcome = answer.outcome
        if outcome is COMPLETED:
            assert request.id in self.ran
        elif outcome in (WORKER_LOST, SEQUENCE_LOST):
            story.over = True
        elif request.id not in self.running and outcome is not MODEL_ERROR:
            story.over = True  # it never ran: nothing behind it is computed


class Sequences(RuleBasedStateMachine):
    """Time passes before each event."""

    witness: Witness

    @initialize(policy=st.sampled_from(["slo", "static", "window_drop"]), repeatable=st.booleans())
    def begin(self, policy: str, repeatable: bool) -> None:
        self.witness = Witness(policy, repeatable)
        self.now_us = 100
        self.witness.load("s", self.now_us)

    @rule(
        tenant=st.sampled_from(["x", "y"]),
        name=st.integers(1, 3),
        flags=st.sampled_from(["", "", "", "start", "start", "end", "both"]),
        slack=st.sampled_from([5, 100, 1000, 1000]),
        strict=st.booleans(),
        pause=st.sampled_from([0, 0, 0, 1, 40]),
    )
    def ask(self, tenant: str, name: int, flags: str, slack: int, strict: bool, pause: int) -> None:
        self.pass_time(pause)
        step = SequenceStep(name, flags in ("start", "both"), flags in ("end", "both"))
        self.witness.ask((tenant, name), step, slack, strict, self.now_us)

    @rule(pause=st.sampled_from([0, 1, 10, 100, IDLE_US]))
    def wake(self, pause: int) -> None:
        self.pass_time(pause)
        self.witness.wake(self.now_us)

    @precondition(lambda self: self.witness.flights)
    @rule(pick=st.integers(0, 9), well=st.sampled_from([True, True, True, False]))
    def finish(self, pick: int, well: bool) -> None:
        self.pass_time(1)
        flights = [*self.witness.flights]
        self.witness.finish(flights[pick % len(flights)], well, self.now_us)

    @precondition(lambda self: self.witness.requests)
    @rule(pick=st.integers(0, 9))
    def cancel(self, pick: int) -> None:
        known = [*self.witness.requests]
        self.witness.cancel(known[pick % len(known)], self.now_us)

    @rule(name=st.sampled_from(SLICES))
    def load(self, name: str) -> None:
        self.witness.load(name, self.now_us)

    @precondition(lambda self: self.witness.up)
    @rule(pick=st.integers(0, 9), how=st.sampled_from(["die", "unload"]))
    def lose(self, pick: int, how: str) -> None:
        names = [*self.witness.up]
        getattr(self.witness, how)(names[pick % len(names)], self.now_us)

    @rule(name=st.sampled_from(SLICES))
    def close(self, name: str) -> None:
        """It is to go: what is there may go on, and what is new waits or goes elsewhere."""
        self.witness.close(name)

    def pass_time(self, pause: int) -> None:
        """Wake the scheduler when it asks for it, as its driver does."""
        until_us = self.now_us + pause
        for _ in range(100):
            due_us = max(self.witness.scheduler.wake_us, self.now_us)
            if due_us > until_us:
                break
            self.now_us = due_us
            self.witness.wake(due_us)
        self.now_us = until_us

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None or not hasattr(self, "witness"):
            return  # a promise was broken before: that is what to report
        for _ in range(400):
            for batch_id in [*self.witness.flights]:
                self.witness.finish(batch_id, True, self.now_us)
            self.now_us += 20
            self.witness.wake(self.now_us)
            if not self.witness.requests and not self.witness.flights:
                break
        assert not self.witness.requests, "a request never ended"
        assert self.witness.scheduler.open_requests == 0
        assert self.witness.scheduler.queue_requests("m") == self.witness.scheduler.queue_rows("m") == 0


Sequences.TestCase.settings = settings(
    max_examples=examples(1000),
    stateful_step_count=40,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestAnySequence = pytest.mark.slow(pytest.mark.timeout(0)(Sequences.TestCase))
