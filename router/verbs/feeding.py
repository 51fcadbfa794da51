"""How many requests a second the gateway's core can carry on this machine, beside what the slices compute.

One core accepts, schedules and answers all requests (docs/decisions/0003-one-gateway-process.md), so a large
fleet may compute more than it is fed. The costs below were measured on one machine; `slowness` says how many
times longer this one takes for the same Python code.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from time import perf_counter_ns
from typing import NamedTuple

from router.verbs.feasibility import Measurements
from serving.compiled import is_compiled
from serving.values.specs import ModelSpec, TensorSpec
from serving.values.tensor import ITEM_BYTES

REQUEST_US = {True: 25.0, False: 47.8}
"""CPU of a REST request of one row of 256 bytes, decisions compiled or not:
`loadtests.edge.rest_throughput`."""
KILOBYTE_US = 1.1
"""CPU of each further 1,024 bytes in or out over a socket: `loadtests.edge.shm_cost`, 600 KB over REST."""
SPIN_NS = 536_000
"""What `_spin` took there at best."""
_TRIES, _TURNS = 7, 20_000


class Feed(NamedTuple):
    """What is known of a model.

    `row_us`: CPU of the gateway for a row that comes alone. `slices_rows_s`: what each of its slices
    computes, the most first; () where one of them was not measured.
    """

    name: str
    row_us: float
    slices_rows_s: tuple[float, ...]


def slowness(clock_ns: Callable[[], int] = perf_counter_ns) -> float:
    """Return how many times longer than the machine of the costs this one takes, at its best of 7 tries."""
    return min(_spin(clock_ns) for _ in range(_TRIES)) / SPIN_NS


def _spin(clock_ns: Callable[[], int]) -> int:
    began_ns, kept = clock_ns(), {}
    for turn in range(_TURNS):
        kept[turn & 63] = turn
    return clock_ns() - began_ns


def row_us(spec: ModelSpec, slow: float) -> float:
    """Return the microseconds of gateway CPU for one row of a model; dimensions left open count as 1."""
    size = sum(map(_row_bytes, (*spec.inputs, *spec.outputs)))
    return slow * (REQUEST_US[is_compiled()] + KILOBYTE_US * size / 1024)


def _row_bytes(tensor: TensorSpec) -> int:
    return ITEM_BYTES.get(tensor.datatype, 4) * prod(max(each, 1) for each in tensor.shape[1:])


def feed_of(measured: Measurements, slow: float) -> Feed:
    """Return what the gateway's core can carry of a model, and what its slices compute of it."""
    model = measured.model
    size, most = model.spec.sizes[0], model.spec.batch_max
    rates = []
    for each in measured.slices:
        latency = measured.of(model.answering_variant, each.name)
        if latency is None:
            return Feed(model.name, row_us(model.spec, slow), ())
        rates.append(max(rows * 1e6 / latency.predict_us(rows, size) for rows in (1, most)))
    return Feed(model.name, row_us(model.spec, slow), tuple(sorted(rates, reverse=True)))


def feed_lines(feeds: Sequence[Feed]) -> Iterator[str]:
    """Yield a line on what one gateway can be asked, and one on each model that has slices to spare then."""
    if not feeds:
        return
    most, least = min(feeds, key=_cost_us), max(feeds, key=_cost_us)
    fed = f"about {_rounded(_fed(most)):,} requests/s of {most.name}"
    if least is not most:
        fed += f", or {_rounded(_fed(least)):,} of {least.name}"
    yield f"gateway: its core feeds {fed}, at one row a request"
    for each in feeds:
        enough = _enough(each)
        if enough < len(each.slices_rows_s):
            yield (
                f"  {each.name}: {enough} of its {len(each.slices_rows_s)} slices compute that many; "
                f"try more rows a request, or more gateways that divide the slices"
            )


def _enough(feed: Feed) -> int:
    """Return how many slices, the quickest first, compute what the core feeds, or all of them."""
    reached = 0.0
    for count, rate in enumerate(feed.slices_rows_s, 1):
        reached += rate
        if reached >= _fed(feed):
            return count
    return len(feed.slices_rows_s)


def _cost_us(feed: Feed) -> float:
    return feed.row_us


def _fed(feed: Feed) -> float:
    return 1e6 / feed.row_us


def _rounded(rate: float) -> int:
    """Return a rate with two digits, as no more of it is known."""
    digits = max(len(str(int(rate))) - 2, 0)
    return int(round(rate, -digits))
