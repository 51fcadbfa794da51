"""Requests that name a version are answered by it, and each answer is of one version, while versions change
names: what waits then may be computed by the version that has the name by now."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from serving.ports import Call, Reply, Serving
from serving.runtime.calls.batch_lanes import suits
from serving.runtime.calls.payloads import SEVERAL
from serving.runtime.calls.pending_calls import Deliver, hand_over
from serving.values.specs import find_version
from serving.values.vocabulary import NO_REPLICA, Kind

TRIES: Final = 3
"""How often a call is asked again. One more is enough, unless names change again meanwhile."""


@dataclass(slots=True)
class _Asked:
    """A call. `version`: what its request names, 0 where any will do. `first_id`: what its edge cancels,
    `request_id`: what it is now."""

    call: Call
    deliver: Deliver
    version: int
    left: int = TRIES
    first_id: int = 0
    request_id: int = 0


class ExactVersions:
    """What calls pass through on the way to `behind`."""

    def __init__(self, behind: Serving) -> None:
        self._behind = behind
        self._again: dict[int, _Asked] = {}  # those that were asked again, by first id

    def submit(self, call: Call, deliver: Deliver) -> int:
        """See `serving.ports.Serving.submit`."""
        model = call.model
        version = model.spec.version
        if not version or not (model.stays or call.rows > 1):
            return self._behind.submit(call, deliver)
        asked = _Asked(call, deliver, version if model.stays else 0)
        self._ask(asked)
        asked.first_id = asked.request_id
        return asked.first_id

    def cancel(self, request_id: int) -> None:
        """See `serving.ports.Serving.cancel`."""
        asked = self._again.get(request_id)
        self._behind.cancel(request_id if asked is None else asked.request_id)

    def _ask(self, asked: _Asked) -> None:
        call = asked.call
        if asked.version and not self._place(call, asked.version):
            self._refuse(asked, f"version {asked.version} is served no more")
        elif request_id := self._behind.submit(call, partial(self._answered, asked)):
            asked.request_id = request_id  # else it was answered, or asked again, within

    def _place(self, call: Call, version: int) -> bool:
        """Give the call the name that its version has now; False if it has none, or is too different."""
        found = find_version(self._behind.models, call.model.spec.model_name, str(version))
        if found is None or not (found.pinned is call.model or suits(call, found.pinned)):
            return False
        call.model = found.pinned
        return True

    def _answered(self, asked: _Asked, reply: Reply) -> None:
        wrong = reply.version and (asked.version or reply.version == SEVERAL)
        if not wrong or reply.outcome.kind not in (Kind.COMPLETED, Kind.FAILED):
            self._again.pop(asked.first_id, None)
            asked.deliver(reply)
        elif asked.left:
            asked.left -= 1
            if asked.first_id:
                self._again[asked.first_id] = asked
            self._ask(asked)
        else:
            self._refuse(asked, "its versions change all the time")

    def _refuse(self, asked: _Asked, why: str) -> None:
        self._again.pop(asked.first_id, None)
        call = asked.call
        reply = Reply(NO_REPLICA, f"{call.model.spec.model_name} did not answer: {why}")
        self._behind.refused(call.model.name, reply.outcome, call.tenant)
        hand_over(asked.deliver, reply, call.model.name)
