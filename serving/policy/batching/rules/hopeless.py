"""What is given up while it waits, as it would be late even if it ran next and alone.

Where no batch has borne the estimate out for long, one piece is kept to try: an estimate that has become
far too high must not silence what could correct it.
"""

from collections.abc import Callable, Sequence

from serving.policy.batching.interface import LaneView, PieceView, QueueView, ReplicaView

Alone = Callable[[str, ReplicaView, PieceView, LaneView], float]
"""(variant, its replica, a piece, its lane) -> the microseconds that it would take at least."""


def typically(_variant: str, replica: ReplicaView, piece: PieceView, _lane: LaneView) -> float:
    """Return how long the piece usually takes: an `Alone`."""
    return replica.typical_us(piece.rows, piece.size)


def find_hopeless(
    view: QueueView, doubtful: bool, now_us: int, alone: Alone = typically
) -> Sequence[tuple[LaneView, int]]:
    """Return each lane with the number of leading pieces that would be late even alone. If in doubt, keep one
    piece of a lane to try. This is an answer for `BatchingPolicy.hopeless`."""
    found = []
    for lane in view.lanes:
        here = view.quickest(lane)
        if here is None:
            continue
        variant, replica = here
        count = 0
        for piece in lane.pieces:
            if piece.deadline_us >= now_us + alone(variant, replica, piece, lane):
                break
            other = view.quickest(lane, piece.rows) if len(lane.variants) > 1 else None
            if other is not None and piece.deadline_us >= now_us + alone(*other, piece, lane):
                break
            count += 1
        if count and count == len(lane.pieces) and doubtful:
            count -= 1
        if count:
            found.append((lane, count))
    return found
