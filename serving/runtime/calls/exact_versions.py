"""Requests that name a version are answered by it, and each answer is of one version, while versions change
names: what waits then may be computed by the version that has the name by now."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from serving.ports import Call, Reply, Serving
from serving.runtime.calls.batch_lanes import suits
from serving.runtime.calls.payloads import SEVERAL
from serving.runtime.calls.pending_calls import Deliver, hand_over
from serving.values.specs import ServedModel
from serving.values.versions import version_name
from serving.values.vocabulary import NO_REPLICA, Kind

TRIES: Final = 3
"""How often a call is asked again. One more is enough, unless names change again meanwhile."""


@dataclass(slots=True)
class _Asked:
    """A call. `version`: what its request names, 0 where any will do."""

    call: Call
    deliver: Deliver
    version: int
    left: int = TRIES


class ExactVersions:
    """What calls pass through on the way to `behind`."""

    def __init__(self, behind: Serving) -> None:
        self._behind = behind

    def submit(self, call: Call, deliver: Deliver) -> int:
        """See `serving.ports.Serving.submit`. A call that is asked again has another id then."""
        model = call.model
        version = model.spec.version
        if not version or not (model.stays or call.rows > 1):
            return self._behind.submit(call, deliver)
        return self._ask(_Asked(call, deliver, version if model.stays else 0))

    def _ask(self, asked: _Asked) -> int:
        call = asked.call
        if asked.version and not self._place(call, asked.version):
            return self._refuse(asked, f"version {asked.version} is served no more")
        return self._behind.submit(call, partial(self._answered, asked))

    def _place(self, call: Call, version: int) -> bool:
        """Give the call the name that its version has now; False if it has none, or is too different."""
        model = self._named(call.model.spec.model_name, version)
        if model is None or (model is not call.model and not suits(call, model)):
            return False
        call.model = model
        return True

    def _named(self, name: str, version: int) -> ServedModel | None:
        models = self._behind.models
        found = models.get(name)
        if found is None or found.spec.version != version:
            found = models.get(version_name(name, version))
        return None if found is None else found.pinned

    def _answered(self, asked: _Asked, reply: Reply) -> None:
        wrong = reply.version and (asked.version or reply.version == SEVERAL)
        if not wrong or reply.outcome.kind not in (Kind.COMPLETED, Kind.FAILED):
            asked.deliver(reply)
        elif asked.left:
            asked.left -= 1
            self._ask(asked)
        else:
            self._refuse(asked, "its versions change all the time")

    def _refuse(self, asked: _Asked, why: str) -> int:
        call = asked.call
        reply = Reply(NO_REPLICA, f"{call.model.spec.model_name} did not answer: {why}")
        self._behind.refused(call.model.name, reply.outcome, call.tenant)
        hand_over(asked.deliver, reply, call.model.name)
        return 0
