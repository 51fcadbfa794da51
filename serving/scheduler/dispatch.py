"""Which batch runs where, and what is in flight."""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from serving.policy.arbitration import decide
from serving.policy.batching.interface import Choice, PieceView
from serving.policy.estimates.latency import EITHER
from serving.policy.limits.admission import QueueLength
from serving.scheduler.commands import RunBatch
from serving.scheduler.models.models import ScheduledModel
from serving.scheduler.slices.roster import LikeSlices, Roster
from serving.scheduler.slices.slices import Slice, SliceQueue
from serving.scheduler.waiting.lanes import USED_US, Lane
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.vocabulary import NEVER_US

GiveUp = Callable[[Request], bool]
"""Ends a request that is still waiting, and takes it out of its queue at once. False where it was tightened
for others: it has its own deadlines back instead, and what was decided of its queue is decided again."""

MANY = 12  # models with a policy that every decision asks: some 10 us each
_AGAIN_US = -1  # at once: what was to run was given up, or what was to be given up waits on


class Dispatch:
    """Gives every free slice its best batch. Ids of batches are unique, also over slices that were lost."""

    def __init__(
        self,
        slices: Mapping[str, Slice],
        models: Mapping[str, ScheduledModel],
        waiting: QueueLength,
        roster: Roster,
        ahead: bool,
    ) -> None:
        """Dispatch to slices. `waiting`: what waits of all models together."""
        self._slices = slices
        self._waiting = waiting
        self._models = models
        self._roster = roster
        self._numbered: dict[int, Slice] = {}
        self._ahead = ahead
        self._running: dict[int, Slice] = {}  # batch id -> its slice
        self._count = 0
        self._lasts = False  # what waits would wait as long on the slices like the one that was last asked

    def settle(self, batch_id: int, now_us: int) -> RunBatch | None:
        """Return the batch that is back. None for an unknown batch, or for a batch of a slice that was given
        up."""
        live = self._running.pop(batch_id, None)
        return None if live is None else live.settle(batch_id, now_us)

    def enter(self, live: Slice) -> None:
        """Take in a slice that is new."""
        self._numbered[live.number] = live

    def alive(self, batch_id: int, now_us: int) -> RunBatch | None:
        """Note that a batch has just answered a row: however late it is, it goes on. Return the batch; None
        as `settle`."""
        live = self._running.get(batch_id)
        return None if live is None else live.alive(batch_id, now_us)

    def forget(self, live: Slice) -> None:
        """Forget a slice that is gone, and what ran on it."""
        del self._numbered[live.number]
        for batch_id in live.running:
            del self._running[batch_id]
        live.leave()

    def plan(self, give_up: GiveUp, now_us: int) -> tuple[list[RunBatch], int]:
        """Return the batches to run now, and when to ask again; give up the requests that can no longer be
        met."""
        batches: list[RunBatch] = []
        wake_us = NEVER_US
        if not self._waiting.rows:
            return batches, wake_us
        wanted = self._wanted()
        for ahead in (False, True):  # nothing is sent ahead that a free slice could start
            wake_us = min(wake_us, self._offer(wanted, ahead, batches, give_up, now_us))
        return batches, self._look_us(wanted, give_up, wake_us, now_us) if self._waiting.rows else wake_us

    def _wanted(self) -> list[LikeSlices]:
        """Return the like slices that hold a model that waits."""
        if len(self._models) == 1 or len(self._roster.alike) == 1:
            return self._roster.alike
        found: dict[LikeSlices, None] = {}
        for model in self._models.values():
            if model.queue.backlog.rows:
                found.update(dict.fromkeys(model.alike))
        return [*found]

    def _offer(
        self,
        wanted: Sequence[LikeSlices],
        ahead: bool,
        batches: list[RunBatch],
        give_up: GiveUp,
        now_us: int,
    ) -> int:
        """Let slices take batches, free ones or `ahead` those that take one ahead, in the order in which they
        came; return when to ask again.

        Where the first free one of like slices lets its batch wait for more rows, the others would too: their
        replicas take about as long. So they are not asked, unless a row waits for a slice of its own. Where
        the first has no batch that would be in time, the next one may be quicker.
        """
        wake_us = NEVER_US
        self._roster.ripen(now_us)
        heads = [
            (numbers[0], 0, there) for there in wanted if (numbers := there.ripe if ahead else there.free)
        ]
        heapify(heads)  # the next slice of each: its number, and its place among those that may be asked
        while heads and self._waiting.rows:
            number, place, there = heads[0]
            wake_us = min(wake_us, self._fill(self._numbered[number], ahead, batches, give_up, now_us))
            numbers = there.ripe if ahead else there.free
            place += place < len(numbers) and numbers[place] == number  # else it took a batch, and has left
            if self._lasts or place >= len(numbers):
                heappop(heads)
            else:
                heapreplace(heads, (numbers[place], place, there))
        return wake_us

    def _look_us(self, wanted: Sequence[LikeSlices], give_up: GiveUp, wake_us: int, now_us: int) -> int:
        """Return when to ask again at the latest, as a slice takes a batch ahead from then on, or as requests
        beside a suspect slice become hopeless; give up those that are."""
        roster, models = self._roster, self._models
        for number in [*roster.suspects]:
            wake_us = min(wake_us, _clear(self._numbered[number], give_up, now_us))
        if roster.opens_us < wake_us:
            for there in wanted:
                if any(models[name].queue.backlog.rows for name in there.models):
                    wake_us = min(wake_us, there.opens_us(now_us))
        return wake_us

    def _fill(self, live: Slice, ahead: bool, batches: list[RunBatch], give_up: GiveUp, now_us: int) -> int:
        """Add the batches that start here at once, or `ahead` of another's end; return when to ask again."""
        while live.free is not ahead and live.opens_us <= now_us:
            live.device.expected = live.expected
            batch, ask_us = self._choose(live, give_up, now_us)
            live.device.expected = EITHER
            if batch is not None:
                batches.append(batch)
            elif ask_us != _AGAIN_US:
                return ask_us
        return NEVER_US

    def _choose(self, live: Slice, give_up: GiveUp, now_us: int) -> tuple[RunBatch | None, int]:
        """Return the slice's next batch, if one should go now; and when to ask again, if none.

        Where it would have to wait for one that runs, it is chosen as of that one's expected end.
        """
        self._lasts = False
        start_us = live.starts_us(now_us)
        queues, choices, wake_us, lasts = _ask(live, give_up, start_us, now_us)
        if not choices:
            self._lasts = lasts
            return None, wake_us
        used = _used(queues, start_us)
        slices = max(self._roster.steady, 1)
        elsewhere_us = None
        if len(queues) > 1 and slices > 1:
            elsewhere_us = [here.elsewhere_us(start_us) for here in queues]
        index, ask_us = decide(choices, slices, start_us, used, elsewhere_us)
        if index < 0:
            self._lasts = lasts
            return None, min(wake_us, ask_us)
        here, choice = queues[index], choices[index]
        lane = choice.lane
        assert isinstance(lane, Lane)  # noqa: S101  # the policy was shown nothing else
        if not live.free and not _is_full(choice, lane, here):
            self._lasts = lasts
            return None, NEVER_US  # it may still grow until the one that runs is back
        ended = [give_up(request) for request in _requests(choice.drop)]
        if not all(ended):
            return None, _AGAIN_US
        # Less than was chosen, where one that was given up had pieces further back:
        pieces = [piece for piece in choice.pieces if isinstance(piece, Piece) and piece.lane is lane]
        if not pieces:
            return None, _AGAIN_US
        parts = {lane: pieces, **join(here, choice, pieces, start_us)}
        return self._dispatch(live, here, parts, choice.variant, start_us), NEVER_US

    def _dispatch(
        self, live: Slice, here: SliceQueue, parts: Mapping[Lane, list[Piece]], variant: str, start_us: int
    ) -> RunBatch:
        """Take pieces, of one lane or of kin, into a batch of a variant."""
        lane = next(iter(parts))
        pieces = list[Piece]()
        for each, taken in parts.items():
            if len(each.variants) > 1:
                word = here.selector.downgrade(each.wants, variant, taken[0], start_us)
                for piece in taken:
                    piece.downgrade = word
            here.queue.take(each, taken)
            pieces += taken
        replica = here.replicas[variant]
        self._count += 1
        batch = RunBatch(self._count, live.name, pieces, sum(piece.rows for piece in pieces))
        batch.model = here.model
        batch.variant = variant
        batch.replica = replica.id
        batch.bucket = lane.bucket
        batch.size = max([piece.size for piece in pieces]) if lane.bucket else 0
        batch.staged = not live.free
        batch.started_us = start_us
        predicted_us = replica.predict_us(batch.rows, batch.size)
        declared_us = batch.declared_us = lane.declared_us
        batch.predicted_us = predicted_us + declared_us
        batch.typical_us = replica.typical_us(batch.rows, batch.size) + declared_us
        batch.longest_us = replica.longest_us(predicted_us) + declared_us
        batch.lead_us = replica.lead_us(here.lateness_us) if self._ahead else 0
        batch.full = bool(lane.pieces)
        batch.downgrade = pieces[0].downgrade
        backlog = here.queue.backlog
        idle_us = 0 if batch.staged else start_us - live.free_since_us
        for piece in pieces:
            request = piece.request
            if not request.started_us:
                request.started_us = start_us
                request.filling_us = max(0, min(idle_us, start_us - request.arrived_us))
            request.waiting -= 1
            if request.waiting == 0:
                backlog.requests -= 1
        live.begin(batch)
        self._running[batch.id] = live
        return batch


def _used(queues: Sequence[SliceQueue], now_us: int) -> list[float] | None:
    """Return, in overload, each model's use of the slices over its entitled share. None if that does not
    matter, as no model has had so little that it would go short."""
    if len(queues) < 2 or not all(here.queue.fair_share for here in queues):
        return None
    used = [here.queue.used_us(now_us) / (USED_US * here.queue.fair_share) for here in queues]
    return used if any(had < here.queue.floor for had, here in zip(used, queues, strict=True)) else None


def _ask(
    live: Slice, give_up: GiveUp, start_us: int, now_us: int
) -> tuple[list[SliceQueue], list[Choice], int, bool]:
    """Return the queues with a batch that could start at `start_us`, with those batches; if there is none,
    when to ask again; and whether none of what waits needs another slice: to be in time, or as its own.

    Of many queues the most urgent are asked first. The others follow only if none of those is ready, or if a
    paper's rule picks the model by something else.
    """
    queues: list[SliceQueue] = []
    choices: list[Choice] = []
    wake_us, lasts = NEVER_US, True
    for place, here in enumerate(_by_urgency(live)):
        if place == MANY and _is_enough(choices):
            break
        lasts = lasts and not here.queue.homed
        choice = here.recall(start_us)
        if choice is None:
            left = _drop_hopeless(here, give_up, start_us)
            choice = here.policy.choose(here, start_us)
            if choice.lane is None:
                wake_us = min(wake_us, choice.wake_us)
                lasts = lasts and choice.wake_us < NEVER_US
                continue
            if choice.lane in left:
                if not here.replicas[choice.variant].untried(start_us):
                    wake_us = min(wake_us, _next_deadline_us(here, now_us))
                    lasts = False
                    continue
            else:
                here.remember(choice)
        queues.append(here)
        declared_us = choice.lane.declared_us if choice.lane is not None else 0
        choices.append(choice.lasting(declared_us) if declared_us else choice)
    return queues, choices, wake_us, lasts


def join(here: SliceQueue, choice: Choice, pieces: Sequence[Piece], start_us: int) -> dict[Lane, list[Piece]]:
    """Return the pieces that can join the batch: the first pieces of kin lanes that the same variant would
    answer now. It takes as many as there is room for while all of them are in time."""
    found: dict[Lane, list[Piece]] = {}
    lane, room = choice.lane, choice.room
    if room < 1 or not isinstance(lane, Lane):
        return found
    replica, rows = here.replicas[choice.variant], sum([piece.rows for piece in pieces])
    due_us = min([piece.deadline_us for piece in pieces])
    for other in here.queue.kin(lane):
        answering = here.answering(other, start_us)
        if answering is None or answering[0] != choice.variant:
            continue
        size = max(lane.size, other.size)
        for piece in other.pieces:
            together_us = min(due_us, piece.deadline_us)
            if piece.rows > room or rows + piece.rows > replica.rows_in(together_us - start_us, size):
                break
            due_us = together_us
            found.setdefault(other, []).append(piece)
            rows += piece.rows
            room -= piece.rows
    return found


def _is_enough(choices: Sequence[Choice]) -> bool:
    """Return whether the most urgent of all is among these."""
    return any(not choice.patient for choice in choices) and not any(choice.rule for choice in choices)


def _by_urgency(live: Slice) -> list[SliceQueue]:
    """Return the queues that want the slice; where they are many, about in the order of their latest
    starts."""
    found = [
        here
        for here in live.queues.values()
        if here.queue.backlog.rows and (live.free or not here.waits_elsewhere)
    ]
    return sorted(found, key=SliceQueue.starts_us) if len(found) > MANY else found


def _is_full(choice: Choice, lane: Lane, here: SliceQueue) -> bool:
    """Return whether a batch could take in no piece that comes later."""
    left = len(lane.pieces) - len(choice.drop) - len(choice.pieces)
    return left > 0 or choice.rows >= here.replicas[choice.variant].rows_max(lane.bucket)


def _clear(live: Slice, give_up: GiveUp, now_us: int) -> int:
    """End what is hopeless, as beside a suspect slice nothing may ask for long; return when to look again."""
    look_us = NEVER_US
    for here in live.queues.values():
        _drop_hopeless(here, give_up, now_us)
        look_us = min(look_us, _next_deadline_us(here, now_us))
    return look_us


def _next_deadline_us(here: SliceQueue, now_us: int) -> int:
    """Return when the next piece of a queue will have been waited for in vain."""
    return min(
        (
            next((piece.deadline_us for piece in lane.pieces if piece.deadline_us > now_us), NEVER_US)
            for lane in here.lanes
        ),
        default=NEVER_US,
    )


def _drop_hopeless(here: SliceQueue, give_up: GiveUp, now_us: int) -> Sequence[Lane]:
    """Give up what the policy calls hopeless here; returns the lanes that are left to quicker slices.

    All is looked up before anything is given up: a request may wait in several lanes. What the policy keeps
    to try, though it is as late, is kept with its whole request.
    """
    doomed: dict[Request, None] = {}
    left = []
    for lane, first in here.policy.hopeless(here, now_us):
        assert isinstance(lane, Lane)  # noqa: S101  # the policy was shown nothing else
        alike = {(p.rows, p.size) for p in lane.pieces[: first + 1]}
        least_us = {(rows, size): here.least_us(lane, rows, size) for rows, size in alike}
        late = [p for p in lane.pieces[:first] if p.deadline_us < now_us + least_us[p.rows, p.size]]
        kept = lane.pieces[first : first + 1]
        kept = [p for p in kept if p.deadline_us < now_us + least_us[p.rows, p.size]]
        doomed |= _requests(late, kept)
        if len(late) < first == len(lane.pieces):
            left.append(lane)
    ended = [give_up(request) for request in doomed]
    return left if all(ended) else _drop_hopeless(here, give_up, now_us)


def _requests(pieces: Sequence[PieceView], kept: Sequence[PieceView] = ()) -> dict[Request, None]:
    """Return the requests of pieces, each once, in order, but for those that have a piece among the
    `kept`."""
    spared = {piece.request for piece in kept if isinstance(piece, Piece)}
    return {
        piece.request: None for piece in pieces if isinstance(piece, Piece) and piece.request not in spared
    }
