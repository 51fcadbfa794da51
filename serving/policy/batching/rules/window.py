"""The window drop: which waiting pieces make the batch that is worth running now, and which are given up.

From the head on, pieces are given up while the batch that still meets the head's deadline is smaller than
what carries the load (Nexus, SOSP 2019; Symphony, arXiv 2308.07470, "drop target"). Sheltered pieces, whose
tenants do not cause the overload, are never given up for that, and go first while they have time for a large
batch: taken in their turn they would each pin the batch to what their last moment leaves.
"""

from collections.abc import Sequence

from serving.policy.batching.interface import LaneView, PieceView, ReplicaView, take_prefix

Window = tuple[Sequence[PieceView], Sequence[PieceView], int]
"""Pieces to take, at least one; pieces to give up for them; the rows of those taken."""


def window(lane: LaneView, replica: ReplicaView, sustaining: int, cap: int, now_us: float) -> Window:
    """Return the first window of at least `sustaining` rows, at most `cap`, that meets its head's deadline;
    where there is none, the largest."""
    pieces, left = lane.pieces, lane.rows
    if replica.rows_in(pieces[-1].deadline_us - now_us, 0) < 1:
        return _in_hope(lane, replica, sustaining, cap, now_us)
    if lane.protected:
        return _around_protected(lane, replica, sustaining, cap, now_us)
    best_rows, best_skip, best_fitting = 0, len(pieces) - 1, 1
    for skip, piece in enumerate(pieces):
        in_time = replica.rows_in(piece.deadline_us - now_us, lane.size)
        if in_time < cap and lane.size:
            in_time = max(in_time, _together(pieces, skip, replica, cap, now_us))
        fitting = min(cap, in_time)
        if min(fitting, left) > best_rows and in_time >= piece.rows:
            best_rows, best_skip, best_fitting = min(fitting, left), skip, fitting
        if fitting >= min(sustaining, left, cap):
            break
        left -= piece.rows
    if not best_rows and lane.size:  # small ones would have been met, had there been any
        return _in_hope(lane, replica, sustaining, cap, now_us)
    count, rows = take_prefix(pieces, best_fitting, best_skip)
    return pieces[best_skip : best_skip + count], pieces[:best_skip], rows


def _together(pieces: Sequence[PieceView], first: int, replica: ReplicaView, cap: int, now_us: float) -> int:
    """Return the rows, from piece `first` on, that meet its deadline together, at the size of the largest
    among them. Pieces that wait further back may be larger."""
    budget_us = pieces[first].deadline_us - now_us
    rows = in_time = 0
    size = -1
    for place in range(first, len(pieces)):
        piece = pieces[place]
        if piece.size > size:
            size = piece.size
            in_time = replica.rows_in(budget_us, size)
        if rows + piece.rows > min(in_time, cap):
            break
        rows += piece.rows
    return rows


def target_window(lane: LaneView, replica: ReplicaView, target: int, now_us: float) -> Window:
    """Return Symphony's window for a batch that starts now. It holds at least `target` rows, or as many as
    can still meet their deadlines together, if fewer. It holds more if its head's deadline allows.

    (`IncrementalBatchPolicy` of its code: the longest suffix that can run as one batch bounds the target.
    Pieces before it that could meet that batch's finish rejoin it, and it then grows for free.)
    """
    together = 0
    for piece in reversed(lane.pieces):
        rows = together + piece.rows
        if replica.rows_in(piece.deadline_us - now_us, lane.size) < rows:
            break
        together = rows
        if together >= target:
            break
    return window(lane, replica, max(1, min(target, together)), replica.rows_max(lane.bucket), now_us)


def _in_hope(lane: LaneView, replica: ReplicaView, sustaining: int, cap: int, now_us: float) -> Window:
    """Return the batch that typically is in time, if by the plan nothing here can be met and the slice would
    idle.

    Without this, a few slow batches could raise the estimate above the SLO, and it stays there while nothing
    runs. As with the plan, the head is given up if it would leave time for only a few rows.
    """
    pieces, left = lane.pieces, lane.rows
    best_rows, best_skip, best_fitting = 0, 0, 1
    for skip, piece in enumerate(pieces):
        fitting = _typically_in(replica, lane.size, piece.deadline_us - now_us, min(cap, left))
        if fitting > best_rows and fitting >= piece.rows:
            best_rows, best_skip, best_fitting = fitting, skip, fitting
        if best_rows >= min(sustaining, left, cap):
            break
        left -= piece.rows
    count, rows = take_prefix(pieces, best_fitting, best_skip)
    return pieces[best_skip : best_skip + count], pieces[:best_skip], rows


def _typically_in(replica: ReplicaView, size: int, budget_us: float, rows_most: int) -> int:
    """Return the largest batch up to `rows_most` that typically takes at most so long; may be 0."""
    low, high = 0, rows_most
    while low < high:
        rows = (low + high + 1) // 2
        if replica.typical_us(rows, size) <= budget_us:
            low = rows
        else:
            high = rows - 1
    return low


def _around_protected(
    lane: LaneView, replica: ReplicaView, sustaining: int, cap: int, now_us: float
) -> Window:
    """Return the protected pieces that meet their own head's deadline, and of the others what fits beside
    them."""
    head_us = lane.protected[0].deadline_us
    count, rows = take_prefix(lane.protected, min(cap, replica.rows_in(head_us - now_us, lane.size)))
    taken = list(lane.protected[:count])
    others = [piece for piece in lane.pieces if not piece.protected]
    left = lane.rows
    skip, fitting = 0, 0
    for piece in others:
        fitting = min(cap, replica.rows_in(min(piece.deadline_us, head_us) - now_us, lane.size))
        if fitting >= min(sustaining, left, cap) or piece.deadline_us >= head_us:
            break
        skip += 1
        left -= piece.rows
    for piece in others[skip:]:
        if rows + piece.rows > fitting:
            break
        taken.append(piece)
        rows += piece.rows
    return taken, others[:skip], rows
