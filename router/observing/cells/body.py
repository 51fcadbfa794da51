"""What `GET /v2/cells` says."""

from typing import Final, TypedDict

ALONE: Final = "this gateway is alone: its penstock.yaml has no `cells:`"


class CellBody(TypedDict):
    """A cell.

    `slices`: how many can work; `work`: how many are busy; `reason`: why this gateway cannot call it, "" if
    it can; `passed`: calls that this gateway has passed on to it; `trip_us`: the way there and back.
    """

    name: str
    door: str
    rest: str
    grpc: str
    slices: float
    work: float
    models: list[str]
    reason: str
    trip_us: int
    passed: int


class CellsBody(TypedDict):
    """All cells.

    `name`: of this one. `fault`: why it does not meet the others now, "" if it does. `homes`: by model and
    cell, the share of its requests that goes there.
    """

    name: str
    version: int
    decided_by: str
    fault: str
    cells: list[CellBody]
    homes: dict[str, dict[str, float]]
