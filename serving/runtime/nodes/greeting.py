"""How a caller and the door prove to each other that they have the same key, without saying it.

Each answers the other's nonce with an HMAC-SHA256 (RFC 2104) over both nonces, its own side, role and name.
So what is recorded on the way proves nothing a second time, and neither side can send the other's proof back.
Whoever can change packets on the way can still take over after that: TLS keeps that out.
"""

import hmac
import secrets
from collections.abc import Callable
from typing import Final, TypeVar

from serving.runtime.nodes.notes import Admitted, Challenge, Greet, Proof, Refused, Role
from serving.runtime.nodes.stream import NoteStream
from serving.worker.frames.wire import ProtocolError

_T = TypeVar("_T")
NONCE_BYTES: Final = 16
DOOR, CALLER = "door", "caller"


class NotAdmittedError(Exception):
    """The other side was not admitted, or does not admit; the text says why. `again`: it may later."""

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


def proof_of(key: str, side: str, greet: Greet, door_nonce: str) -> str:
    """Return what proves that `side` has the key."""
    said = "\0".join((side, greet.role, greet.name, greet.nonce, door_nonce))
    return hmac.digest(key.encode(), said.encode(), "sha256").hex()


async def call_at(stream: NoteStream, role: Role, name: str, key: str) -> None:
    """Greet a door, and return once it has admitted this side. Raises NotAdmittedError, ProtocolError or
    OSError."""
    greet = Greet(role, name, secrets.token_hex(NONCE_BYTES))
    stream.send(greet)
    challenge = await hear(stream, Challenge)
    if not hmac.compare_digest(challenge.proof, proof_of(key, DOOR, greet, challenge.nonce)):
        raise NotAdmittedError("the gateway has another token")
    stream.send(Proof(proof_of(key, CALLER, greet, challenge.nonce)))
    await hear(stream, Admitted)
    stream.known = True


async def admit(stream: NoteStream, key_of: Callable[[Greet], str]) -> Greet:
    """Return a caller's greeting once it has proved itself; the caller does not know yet that it is admitted.

    `key_of`: the key that it should have, "" if there is none. Raises NotAdmittedError or ProtocolError.
    """
    greet = await stream.expect(Greet)
    # An unknown name is found out as late as a wrong key, so that names cannot be guessed one by one.
    key = key_of(greet) or secrets.token_hex(NONCE_BYTES)
    nonce = secrets.token_hex(NONCE_BYTES)
    stream.send(Challenge(nonce, proof_of(key, DOOR, greet, nonce)))
    try:
        proof = await stream.expect(Proof)
    except ProtocolError:
        raise NotAdmittedError("has another token") from None
    if not hmac.compare_digest(proof.proof, proof_of(key, CALLER, greet, nonce)):
        raise NotAdmittedError("has another token")
    stream.known = True
    return greet


async def hear(stream: NoteStream, kind: type[_T]) -> _T:
    """Return the door's next note, which has to be of this kind. Raises NotAdmittedError if the door refuses,
    and ProtocolError."""
    read = await stream.read()
    if read is not None and isinstance(read[0], Refused):
        raise NotAdmittedError(f"the gateway {read[0].reason}", read[0].again)
    if read is None:
        raise ProtocolError("it closes the connection; is it TLS (--tls, --ca) that it expects?")
    if not isinstance(read[0], kind):
        raise ProtocolError("it does not answer as a gateway's door for nodes")
    return read[0]
