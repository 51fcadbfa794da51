"""What the selection asks of its driver, which carries it out after the event's call has returned."""

from dataclasses import dataclass

from serving.ports import Call, Reply


@dataclass(frozen=True, slots=True)
class AskMember:
    """Submit `call` for one member of an open call, and report its reply as `member_answered`."""

    call_id: int
    member: int
    call: Call


@dataclass(frozen=True, slots=True)
class CancelMember:
    """Cancel what a member was asked, if it has not answered yet."""

    call_id: int
    member: int


@dataclass(frozen=True, slots=True)
class DeliverReply:
    """Give a call its one reply. `refused`: no member was asked, so no other part has counted the call."""

    call_id: int
    reply: Reply
    refused: bool = False


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Report `expire` at this instant, instead of at an earlier request's."""

    at_us: int


Command = AskMember | CancelMember | DeliverReply | WakeAt
