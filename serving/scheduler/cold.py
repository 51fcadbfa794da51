"""What waits for variants that are not loaded: they are asked for, and who cannot wait so long is told."""

from collections.abc import Callable, Mapping, Sequence

from serving.scheduler.commands import Miss
from serving.scheduler.models.cold_variant import ColdVariant
from serving.scheduler.models.models import ScheduledModel
from serving.scheduler.waiting.lanes import Lane
from serving.scheduler.waiting.requests import Request
from serving.values.vocabulary import NEVER_US

MISS_EVERY_US = 100_000
"""A variant that nobody loads is asked for again after so long, while it is wanted: what kept control from
loading it (batches in flight of all that could make room for it) may be over."""


class ColdStarts:
    """Over all models of a scheduler. `look_us`: when `look` is due."""

    __slots__ = ("_models", "look_us")

    def __init__(self, models: Mapping[str, ScheduledModel]) -> None:
        self._models = models
        self.look_us = NEVER_US

    def mark(self, model: ScheduledModel, variant: str, load_us: int, now_us: int, reason: str = "") -> None:
        """Note that a variant can be loaded within `load_us`. NEVER_US: it cannot be loaded, for the given
        `reason` if the reason lasts."""
        model.forecast.begin(now_us)
        model.hopeless.pop(variant, None)
        if load_us == NEVER_US and reason:
            model.hopeless[variant] = reason
        absent = model.absent.get(variant)
        if load_us == NEVER_US:
            model.absent.pop(variant, None)
        elif absent is not None and absent.cold:
            absent.load_us = load_us  # where a Miss was declined, it is not said again at once
        else:
            model.absent[variant] = ColdVariant(load_us, now_us)
        self.look_us = now_us

    def expect(self, model: ScheduledModel, variant: str, ready_us: int, now_us: int) -> None:
        """Note that a variant is being loaded, and will be there at about `ready_us`."""
        model.forecast.begin(now_us)
        model.hopeless.pop(variant, None)
        absent = model.absent.setdefault(variant, ColdVariant(max(ready_us - now_us, 0), now_us))
        absent.ready_us = ready_us
        self.look_us = now_us

    def ask(self, model: ScheduledModel, variants: tuple[str, ...], now_us: int) -> Sequence[Miss]:
        """Ask for the nearest of these variants, as a request wants one. Ask for none if one is live or the
        nearest was asked for already."""
        if model.resides(variants):
            return ()
        variant = model.nearest(variants, now_us)
        absent = model.absent.get(variant)
        if absent is None or not absent.cold or absent.ask_us > now_us:
            return ()
        absent.ask_us = now_us + MISS_EVERY_US
        return (Miss(model.served.name, variant),)

    def wait(self, model: ScheduledModel, request: Request, now_us: int) -> Sequence[Miss]:
        """Ask for the variant that a request waits for, as it has joined the queue, and look at it in
        time."""
        misses = self.ask(model, request.variants, now_us)
        self._watch(model, request.variants, request.pieces[0].deadline_us, request.bucket, now_us)
        return misses

    def look(self, give_up: Callable[[Request], object], now_us: int) -> list[Miss]:
        """Give up what cannot be answered in time any more, and ask for what the others wait for.

        `give_up` ends a request, or lets it be due later.
        """
        self.look_us = NEVER_US
        misses: list[Miss] = []
        for model in self._models.values():
            if model.absent and model.queue.backlog.rows:
                for lane in list(model.queue.lanes):
                    self._give_up(model, lane, give_up, now_us)
                for lane in model.queue.lanes:  # what is left: a request may have waited in several
                    misses += self._ask_for(model, lane, now_us)
        return misses

    def _give_up(
        self, model: ScheduledModel, lane: Lane, give_up: Callable[[Request], object], now_us: int
    ) -> None:
        answer_us = NEVER_US
        if not model.resides(lane.variants):
            answer_us = model.first_us(lane.variants, lane.bucket, now_us)
        while lane.pieces and lane.pieces[0].deadline_us < answer_us < NEVER_US:
            give_up(lane.pieces[0].request)

    def _ask_for(self, model: ScheduledModel, lane: Lane, now_us: int) -> Sequence[Miss]:
        if model.resides(lane.variants):
            return ()
        misses = self.ask(model, lane.variants, now_us)
        self._watch(model, lane.variants, lane.pieces[0].deadline_us, lane.bucket, now_us)
        return misses

    def _watch(
        self, model: ScheduledModel, variants: tuple[str, ...], deadline_us: int, bucket: int, now_us: int
    ) -> None:
        """Set when to look again at what is due then and waits for one of these variants. By then it may be
        hopeless, or the variant is to be asked for again."""
        variant = model.nearest(variants, now_us)
        absent = model.absent.get(variant)
        if absent is None or model.resides(variants):
            return
        self.look_us = min(self.look_us, absent.doubt_us(deadline_us - model.row_us(variant, bucket)))
        if absent.cold:
            self.look_us = min(self.look_us, absent.ask_us)
