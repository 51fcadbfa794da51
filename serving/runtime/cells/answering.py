"""This gateway's end of another one's connection: calls come in, and each gets its reply."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from serving.ports import Reply, Serving
from serving.runtime.calls.pending_calls import stating
from serving.runtime.cells.connection import CellConnection
from serving.runtime.cells.messages import (
    Asked,
    OtherModelError,
    number_of,
    pack_part,
    pack_reply,
    unpack_call,
)
from serving.runtime.nodes.notes import Ping, Pong, pack_note, unpack_note
from serving.values.specs import DEFAULT_TENANT
from serving.values.tensor import Tensor
from serving.values.vocabulary import NO_REPLICA
from serving.worker.frames.wire import Frame, FrameKind, ProtocolError

logger = logging.getLogger(__name__)


class Answering(CellConnection):
    """The calls of one other cell."""

    def __init__(self, serving: Serving, name: str, ended: Callable[["Answering"], None]) -> None:
        super().__init__()
        self.name = name
        self.under_way: dict[int, int] = {}  # our number of each call, by the caller's
        self._serving = serving
        self._ended = ended

    def take(self, frame: Frame) -> None:
        if frame.kind is FrameKind.CALL:
            self._submit(frame)
        elif frame.kind is FrameKind.CANCEL:
            request_id = self.under_way.pop(number_of(frame), 0)
            if request_id:
                self._serving.cancel(request_id)
        elif frame.kind is FrameKind.NOTE:
            note = unpack_note(frame)
            if isinstance(note, Ping):
                self.write((pack_note(Pong(note.number, self._serving.now_us())),))
        else:
            raise ProtocolError(f"sends {frame.kind.name} where a call was due")

    def lost(self, reason: str) -> None:
        logger.info("cell %s calls no more: it %s", self.name, reason)
        self._ended(self)
        under_way, self.under_way = [*self.under_way.values()], {}
        for request_id in under_way:
            self._serving.cancel(request_id)

    def _submit(self, frame: Frame) -> None:
        serving = self._serving
        now = serving.now_us()
        try:
            asked = unpack_call(frame, serving.models)
        except KeyError:
            self._answer(number_of(frame), now, Reply(NO_REPLICA, "it is not served there"))
            return
        except OtherModelError as error:
            self._answer(number_of(frame), now, Reply(NO_REPLICA, f"that gateway {error}"))
            return
        self._take(asked, now)

    def _take(self, asked: Asked, now: int) -> None:
        number, call, age_us = asked
        call.arrived_us = now - age_us
        if call.tenant not in self._serving.tenants:
            call.tenant = DEFAULT_TENANT
        if call.model.spec.decoupled:
            call.on_answer = partial(self._give, number)
        self.under_way[number] = 0
        # The caller may know another version under the model's name.
        deliver = stating(call.model.spec.version, call, partial(self._answer, number, now))
        request_id = self._serving.submit(call, deliver)
        if number in self.under_way:
            self.under_way[number] = request_id

    def _give(self, number: int, outputs: Sequence[Tensor], version: int) -> None:
        if number in self.under_way:
            self.write(pack_part(number, outputs, version))

    def _answer(self, number: int, began_us: int, reply: Reply) -> None:
        self.under_way.pop(number, None)
        self.write(pack_reply(number, reply, self._serving.now_us() - began_us))
