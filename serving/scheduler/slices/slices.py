"""A slice as the scheduler sees it: what is resident on it and what it is doing."""

from collections.abc import Iterable, Sequence
from math import ceil

from serving.policy.batching.interface import WAIT, BatchingPolicy, Choice, LaneView
from serving.policy.estimates.freshness import Judgement
from serving.policy.estimates.latency import ALONE, BESIDE, EITHER, Lateness
from serving.policy.estimates.suspicion import believed_us, suspect_us
from serving.scheduler.commands import FlagProfile, ReplaceWorker, RunBatch, Suspect
from serving.scheduler.slices.contention import backlog_of
from serving.scheduler.slices.ladders import ANY_ROWS, Selector
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.slices.roster import FREE, LikeSlices, Roster, is_free
from serving.scheduler.slices.shared_device import SharedDevice
from serving.scheduler.waiting.lanes import Lane, Queue
from serving.values.vocabulary import NEVER_US


class SliceQueue:
    """One model's queue as one slice sees it. A `serving.policy.batching.interface.QueueView`."""

    __slots__ = (
        "_alike", "_chosen", "_expected", "_lateness", "_live", "_slices", "_version",
        "model", "policy", "queue", "replicas", "selector",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        queue: Queue,
        policy: BatchingPolicy,
        live: "Slice",
        shared: "tuple[list[Slice], list[LikeSlices], Lateness]",
    ) -> None:
        self.model = model
        self.queue = queue
        self.policy = policy
        self._live = live
        self._slices, self._alike, self._lateness = shared  # the model's slices; the scheduler's clock
        self.selector = Selector(queue)
        self.replicas = self.selector.replicas
        self._chosen = WAIT  # by the policy, when the queue had this version
        self._version = -1
        self._expected = EITHER  # and latencies were those of such batches

    def put(self, replica: Replica) -> list[FlagProfile]:
        """Put in a replica that is new, or takes its variant's place. Return what is to be said of its
        profile. A replica that was loaded anew may be of another build: it inherits nothing."""
        before = self.replicas.get(replica.variant)
        self.replicas[replica.variant] = replica
        self.renew()
        said = before is not None and before.id == replica.id and replica.inherit(before)
        return [FlagProfile(self.slice, replica.id, replica.watch.freshness)] if said else []

    def learn(self, batch: RunBatch, compute_us: int, now_us: int) -> list[FlagProfile]:
        """Learn from a batch of the model that is back. Return what is to be said of its replica's
        profile."""
        replica = self.replicas.get(batch.variant)
        if replica is None or replica.id != batch.replica:
            return []
        judged = replica.learn(batch, compute_us, now_us - batch.started_us, len(self.replicas) > 1)
        self.forget()
        self.queue.use(compute_us, now_us)
        return [FlagProfile(batch.slice, replica.id, replica.watch.freshness)] if judged else []

    def failed(self, batch: RunBatch) -> int:
        """Return the model raised; in how many batches of its replica in a row."""
        replica = self.replicas.get(batch.variant)
        if replica is None or replica.id != batch.replica:
            return 0
        replica.failures += 1
        return replica.failures

    def follow(self, policy: BatchingPolicy) -> None:
        """Follow another policy from now on."""
        self.policy = policy
        self.forget()

    def recall(self, now_us: int) -> Choice | None:
        """Return the policy's earlier choice, if it would choose the same again."""
        same = self._version == self.queue.version and self._expected == self._live.device.expected
        if same and now_us < self._chosen.stays_us and now_us < self.selector.until_us:
            return self._chosen
        self.selector.until_us = NEVER_US
        self._version = -1
        return None

    def remember(self, choice: Choice) -> None:
        """Remember the policy's choice."""
        self._chosen = choice
        self._version = self.queue.version if choice.lane is not None else -1
        self._expected = self._live.device.expected

    def forget(self) -> None:
        """Forget the choice, as the estimate has changed: the policy is asked again."""
        self._version = -1

    def renew(self) -> None:
        """Forget the selection and the choice, as its replicas, or what rows take on them, have changed."""
        self.selector.forget()
        self.forget()

    @property
    def lanes(self) -> Iterable[Lane]:
        lanes = self.queue.lanes
        return [each for each in lanes if each.home in ("", self._live.name)] if self.queue.homed else lanes

    @property
    def slice(self) -> str:
        """The slice's name."""
        return self._live.name

    @property
    def default_replica(self) -> Replica | None:
        """The replica on which batches of the model usually run here."""
        return self.selector.usual

    @property
    def quickest_replica(self) -> Replica | None:
        """The replica that would answer the usual requests here under pressure."""
        return self.selector.last_resort

    @property
    def slices(self) -> int:
        """Slices of the model that can be counted on; at least 1."""
        return max(sum([there.count - there.suspects for there in self._alike]), 1)

    @property
    def waits_elsewhere(self) -> bool:
        """Whether a slice that could start at once lets this queue wait."""
        return is_free(self._alike)

    @property
    def idle(self) -> int:
        """Slices of the model that could start a batch at once; at least 1, as one of them asks."""
        return max(1, self._free())

    @property
    def lateness_us(self) -> float | None:
        """How late wake-ups typically are; None while that is not known."""
        return self._lateness.value_us

    @property
    def neighbours(self) -> "Sequence[tuple[BatchingPolicy, SliceQueue]]":
        """The policies and queues of all models on this slice."""
        return self._live.neighbours

    def answering(self, lane: LaneView, now_us: int) -> tuple[str, Replica] | None:
        """Return the variant that would run a batch of the lane now, with its replica; None where none is
        here."""
        if len(lane.variants) == 1:
            self.selector.rows_most = ANY_ROWS
            return self.selector.quickest(lane.variants, 0)
        assert isinstance(lane, Lane)  # noqa: S101  # the policy was shown nothing else
        others = (live.queues[self.model].selector for live in self._slices)
        if self.selector.is_dear(lane.wants) and not all(each.is_dear(lane.wants) for each in others):
            return None
        backlog = backlog_of(self, lane, self._live.queues.values(), now_us)
        return self.selector.answering(backlog, lane.wants)

    @property
    def rows_most(self) -> int:
        """The rows of a batch of the variant that was just said to be `answering`, at most."""
        return self.selector.rows_most

    def elsewhere_us(self, now_us: int, slices: int = 1) -> int:
        """Return when that number of other slices of the model are free, as far as can be told; NEVER_US if
        it has fewer."""
        if self.queue.homed:
            return NEVER_US
        if self._free() - self._live.free >= slices:
            return now_us
        others = [live.free_us(now_us) for live in self._slices if live is not self._live and not live.holds]
        if slices == 1:
            return min(others, default=NEVER_US)
        return sorted(others)[slices - 1] if len(others) >= slices else NEVER_US

    def _free(self) -> int:
        """Return how many slices of the model could start a batch at once."""
        return sum([len(there.free) for there in self._alike])

    def quickest(self, lane: LaneView, rows: int = 1) -> tuple[str, Replica] | None:
        """Return which of the variants that may answer the lane, and are here, computes that number of rows
        in the least time."""
        return self.selector.quickest(lane.variants, lane.size, rows)

    def starts_us(self) -> int:
        """Return about when the next waiting batch has to start, if it takes as long as the last batch
        chosen."""
        return self.queue.first_due_us - int(self._chosen.latency_us)

    def least_us(self, lane: Lane, rows: int, size: int) -> float:
        """Return what rows of a lane typically take on the quickest slice: this slice, or another to be
        counted on."""
        views = (live.queues[self.model] for live in self._slices if live is self._live or not live.suspect)
        found = (view.quickest(lane, rows) for view in views)
        return min(here[1].typical_us(rows, size) for here in found if here is not None)


class Slice:
    """A live slice, with its `number` in the `roster` of all. `stall_us`: a batch that is later than
    predicted by this is given up. It computes one batch at a time.

    `free`: a batch may start now. `opens_us`: from when on a batch may be sent, 0 if it would start at once.
    `doubt_us`: when a batch that is out will be suspected, or given up. All three follow from what runs, and
    are asked for far more often than that changes.
    """

    __slots__ = (
        "_ahead_us", "_busy", "_dues_us", "_first_due_us", "_latest", "_roomy", "_staged", "_stall_us",
        "device", "doubt_us", "free", "free_since_us", "holds", "name", "neighbours", "number", "opens_us",
        "queues", "roster", "running", "suspect",
    )  # fmt: skip

    def __init__(self, name: str, number: int, stall_us: int, device: SharedDevice, roster: Roster) -> None:
        self.name = name
        self.number = number
        self.roster = roster
        self.device = device
        self._busy = False  # as the device has counted it
        self._latest = 0  # the replica of the batch that was last back
        self._stall_us = stall_us
        self.holds = 0  # measurements that have the slice to themselves
        self.suspect = False  # a batch is out for longer than it should be: not planned on
        self.free_since_us = 0
        self.queues: dict[str, SliceQueue] = {}
        self.neighbours: list[tuple[BatchingPolicy, SliceQueue]] = []  # these, with their policies
        self.running: dict[int, RunBatch] = {}
        self._staged: RunBatch | None = None  # it was sent ahead and has not started
        roster.enroll(number, (), ())
        self._changed()

    @property
    def started(self) -> list[RunBatch]:
        """The batches that run: all but one that was sent ahead."""
        return [batch for batch in self.running.values() if batch is not self._staged]

    def fit(self) -> None:
        """Fit the slice to its replicas after replicas came or went."""
        replicas = [replica for here in self.queues.values() for replica in here.replicas.values()]
        for replica in replicas:
            replica.device = self.device
        self.neighbours = [(here.policy, here) for here in self.queues.values()]
        alike = {
            (here.model, each.likeness) for here in self.queues.values() for each in here.replicas.values()
        }
        self.roster.enroll(self.number, frozenset(alike), self.queues)
        self._changed()

    def judgements(self) -> list[Judgement]:
        """Return what batches say of each replica's profile."""
        return [
            Judgement((self.name, here.model, variant), replica.watch)
            for here in self.queues.values()
            for variant, replica in here.replicas.items()
        ]

    def hold(self) -> None:
        """Hold the slice for a measurement."""
        self.holds += 1
        self._changed()

    def release(self, now_us: int) -> None:
        """Release the slice, as the measurement is over."""
        self.holds -= 1
        self.free_since_us = now_us
        self._changed()

    def begin(self, batch: RunBatch) -> None:
        """Note a batch that is sent here."""
        self.running[batch.id] = batch
        if batch.staged:
            self._staged = batch
        self._changed()
        self._look_around(batch, batch.started_us - self.free_since_us <= batch.typical_us)

    def settle(self, batch_id: int, now_us: int) -> RunBatch:
        """Take a batch that is back: it makes room, or starts the batch that was sent ahead. Unless another
        is as late, the slice is no longer suspect."""
        batch = self.running.pop(batch_id)
        self._latest = batch.replica
        self.free_since_us = now_us
        batch.joined = batch.turns != self.device.turns
        if self._staged is not None:
            self._staged.started_us = now_us
            self._look_around(self._staged, at_once=True)
            self._staged = None
        self.suspect = self.suspect and any(now_us >= _suspect_us(late) for late in self.running.values())
        self._changed()
        return batch

    def alive(self, batch_id: int, now_us: int) -> RunBatch:
        """Note that a batch has answered a row: it is given up only after a silence from now on."""
        batch = self.running[batch_id]
        if now_us > batch.started_us + batch.longest_us:
            batch.warned_us = now_us
            self._changed()
        return batch

    def leave(self) -> None:
        """Leave: the slice is gone."""
        self.roster.remove(self.number)
        self.device.busy -= self._busy
        self._busy = False

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and nothing waits for it."""
        taken = self.holds or self.running
        return not taken and not any(here.queue.backlog.rows for here in self.queues.values())

    def wanted(self) -> frozenset[str]:
        """Return the models with batches in flight here, or rows waiting that it could take."""
        waiting = [
            here.model
            for here in self.queues.values()
            if any(not here.replicas.keys().isdisjoint(lane.variants) for lane in here.lanes)
        ]
        return frozenset([*waiting, *(batch.model for batch in self.running.values())])

    @property
    def expected(self) -> int:
        """For a batch that starts now: ALONE, or BESIDE another slice of the device."""
        return BESIDE if self.device.busy > self._busy else ALONE

    def _look_around(self, batch: RunBatch, at_once: bool) -> None:
        """Note what is around a batch as it starts; `at_once`: right after the latest, not later than it will
        take."""
        batch.cold = not at_once or batch.replica != self._latest
        batch.beside = self.device.busy > self._busy
        batch.turns = self.device.turns

    def starts_us(self, now_us: int) -> int:
        """Return when a batch that is sent now is expected to start."""
        if not self.running:
            return now_us
        return max(now_us, min([batch.started_us + int(batch.typical_us) for batch in self.started]))

    def free_us(self, now_us: int) -> int:
        """Return when another batch may start here, as far as can be told."""
        if self._roomy:
            return now_us
        if now_us < self._first_due_us:
            return self._first_due_us + self._ahead_us
        return min([believed_us(due_us, now_us) for due_us in self._dues_us]) + self._ahead_us

    def doubts(self, now_us: int) -> list[Suspect | ReplaceWorker]:
        """Return the doubts about batches that are out here for too long."""
        found: list[Suspect | ReplaceWorker] = []
        if self.doubt_us <= now_us:
            if reason := self.suspected(now_us):
                found.append(Suspect(self.name, reason))
            if reason := self.stalled(now_us):
                found.append(ReplaceWorker(self.name, reason))
        return found

    def suspected(self, now_us: int) -> str:
        """Return in words what has just become suspicious here, once for each suspicion; "" if nothing
        has."""
        for batch in self.started:
            if not self.suspect and now_us >= _suspect_us(batch):
                self.suspect = True
                self._changed()
                late_us = now_us - batch.started_us
                return (
                    f"a {batch.model} batch of {batch.rows} rows is out for {late_us / 1000:.0f} ms, "
                    f"predicted {batch.longest_us / 1000:.1f}"
                )
        return ""

    def stalled(self, now_us: int) -> str:
        """Return in words what is later here than any batch may be, once; again only after as long a time. ""
        if nothing is."""
        for batch in self.started:
            if now_us >= self._given_up_us(batch):
                batch.warned_us = now_us
                self._changed()
                late_s = self._stall_us / 1e6
                return f"a {batch.model} batch of {batch.rows} rows was late by over {late_s:g} s"
        return ""

    def _changed(self) -> None:
        running = self.running
        if self._busy is not (len(running) > 0 or self.holds > 0):
            self._busy = not self._busy
            self.device.busy += 1 if self._busy else -1
            self.device.turns += self._busy
        self.free = self.holds == 0 and not running and not self.suspect
        self.opens_us, self.doubt_us = 0, NEVER_US
        self._roomy = not running and not self.suspect
        self._ahead_us = 0 if self._staged is None else int(self._staged.typical_us)
        if running:
            started = self.started
            self._dues_us = [batch.started_us + ceil(batch.typical_us) for batch in started]
            self._first_due_us = min(self._dues_us)
            self.doubt_us = min(map(self._given_up_us, started))
            if not self.suspect:
                self.doubt_us = min(self.doubt_us, *map(_suspect_us, started))
        if self.holds or self.suspect or len(running) > 1:
            self.opens_us = 0 if self.free else NEVER_US
        elif not self.free:
            (batch,) = running.values()
            lead_us = batch.lead_us
            self.opens_us = batch.started_us + int(batch.typical_us - lead_us) if lead_us else NEVER_US
        self.roster.note(self.number, self.suspect, FREE if self.free else self.opens_us, self.doubt_us)

    def _given_up_us(self, batch: RunBatch) -> int:
        return max(batch.started_us + int(batch.longest_us), batch.warned_us) + self._stall_us


def steady(slices: "Iterable[Slice]") -> int:
    """Return the number of reliable slices."""
    return sum([not live.suspect for live in slices])


def _suspect_us(batch: RunBatch) -> int:
    return suspect_us(batch.started_us, batch.longest_us)
