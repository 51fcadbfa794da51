"""How requests are cut into pieces, which travel in batches one by one."""

from serving.scheduler.models.models import ScheduledModel
from serving.scheduler.waiting.lanes import Lane
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.vocabulary import NEVER_US


def split(request: Request, model: ScheduledModel) -> None:
    """Queue a request in pieces of at most the batch b with 2 l(b) <= SLO.

    The deadline of the request, by which its answer is judged, stays what was promised. Its pieces are due
    one SLO after the other, the last one perhaps later than that, unless the client has said when all of it
    is: large requests so leave room between their pieces for small ones, and are answered late rather than
    not at all. Where the promise holds more SLOs than there are pieces, they are spread over it.
    Where no replica is there yet to say what l is, they are of the largest batch until one is: `settle`.
    """
    if request.rows == 1:  # most are: what follows comes to the same, for 0.4 us more
        piece = Piece(request, 0, 1)
        request.pieces = [piece]
        request.open_pieces = request.waiting = 1
        model.queue.insert(piece)
        return
    slack_us = request.deadline_us - request.arrived_us if request.expires_us == NEVER_US else 0
    rows_max = _rows_max(request, model)
    if not rows_max:
        rows_max = model.served.spec.batch_max
        model.unsettled[request.id] = request, slack_us
    request.pieces = _pieces(request, rows_max, slack_us)
    for piece in request.pieces:
        model.queue.insert(piece)
    request.latest_us = piece.deadline_us + request.declared_us
    request.open_pieces = request.waiting = len(request.pieces)


def settle(model: ScheduledModel) -> None:
    """Split the waiting requests again, as if the present replicas had been there when the requests came."""
    renewed: dict[Lane, dict[int, list[Piece]]] = {}
    for request, slack_us in list(model.unsettled.values()):
        rows_max = _rows_max(request, model)
        if not rows_max:
            continue
        del model.unsettled[request.id]
        before = request.pieces
        lane = before[0].lane
        if lane is None or (len(before) == 1 and before[0].rows <= rows_max):
            continue
        pieces = _pieces(request, rows_max, slack_us)
        request.latest_us = pieces[-1].deadline_us + request.declared_us
        if request.own_us is not None:  # the last of them was due the latest, and so was tightened
            request.own_us = [piece.deadline_us for piece in pieces]
            for piece in pieces:
                piece.deadline_us = min(piece.deadline_us, before[-1].deadline_us)
        for piece in pieces:
            piece.sequence = before[0].sequence + piece.first_row
        request.pieces = pieces
        request.open_pieces = request.waiting = len(pieces)
        renewed.setdefault(lane, {})[request.id] = pieces
    for lane, parts in renewed.items():
        others = [piece for piece in lane.pieces if piece.request.id not in parts]
        model.queue.replace(lane, [*others, *(piece for pieces in parts.values() for piece in pieces)])


def shrink(model: ScheduledModel) -> None:
    """Cut what waits into smaller batches, as the largest batch is smaller than before; each part is due as
    the whole was."""
    rows_max = model.served.spec.batch_max
    for lane in list(model.queue.lanes):
        if any(piece.rows > rows_max for piece in lane.pieces):
            parts: list[Piece] = []
            for piece in lane.pieces:
                cuts = cut(piece, rows_max)
                piece.request.waiting += len(cuts) - 1
                parts += cuts
            model.queue.replace(lane, parts)


def cut(piece: Piece, rows_max: int) -> list[Piece]:
    """Return the parts of a piece, of at most `rows_max` rows, that take its place in its request."""
    if piece.rows <= rows_max:
        return [piece]
    request, parts = piece.request, []
    for offset in range(0, piece.rows, rows_max):
        part = Piece(request, piece.first_row + offset, min(rows_max, piece.rows - offset))
        part.deadline_us, part.arrived_us = piece.deadline_us, piece.arrived_us
        part.protected, part.apart, part.returned = piece.protected, piece.apart, piece.returned
        part.sequence = piece.sequence + offset
        parts.append(part)
    place = request.pieces.index(piece)
    request.pieces[place : place + 1] = parts
    if request.own_us is not None:
        request.own_us[place : place + 1] = [request.own_us[place]] * len(parts)
    request.open_pieces += len(parts) - 1
    return parts


def _rows_max(request: Request, model: ScheduledModel) -> int:
    """Return the largest piece; 0 where no replica may answer the request yet."""
    return max([replica.piece_max(request.size) for replica in model.replicas(request)], default=0)


def _pieces(request: Request, rows_max: int, slack_us: int) -> list[Piece]:
    """Return pieces for all of the request's rows, each due later than the one before by the same span.
    `slack_us`, what its deadline leaves, holds `parts` SLOs, or with fewer pieces, as many equal spans."""
    pieces: list[Piece] = []
    count = -(-request.rows // rows_max)
    spans = min(request.parts, count)
    for first_row in range(0, request.rows, rows_max):
        piece = Piece(request, first_row, min(rows_max, request.rows - first_row))
        pieces.append(piece)
        piece.deadline_us += slack_us * len(pieces) // spans - slack_us
    return pieces
