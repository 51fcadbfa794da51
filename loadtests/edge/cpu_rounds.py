"""CPU of this process by call: a client in another process asks cases in turns, one order a round."""

import asyncio
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import process_time_ns
from typing import TypeVar

Case = TypeVar("Case")


async def measured_us(
    cases: Mapping[str, Case],
    ask: Callable[[Connection, tuple[Case, ...]], None],
    calls: int,
    rounds: int,
) -> dict[str, list[float]]:
    """Return the us of CPU of a call in each round, by case. The first round warms up and is left out.

    `ask` runs in the client. For each order, the number of a case, it sends `calls` calls and answers how
    many of them went well; None ends it.
    """
    ours, theirs = get_context("spawn").Pipe()
    client = get_context("spawn").Process(target=ask, args=(theirs, tuple(cases.values())))
    client.start()
    theirs.close()  # so that its end is seen
    taken: dict[str, list[float]] = {name: [] for name in cases}
    try:
        for _ in range(rounds + 1):
            for at, name in enumerate(cases):
                taken[name].append(await _round_us(ours, at, calls))
    finally:
        ours.send(None)
        client.join()
    return {name: each[1:] for name, each in taken.items()}


async def _round_us(client: Connection, case: int, calls: int) -> float:
    begin_ns = process_time_ns()
    client.send(case)
    answered = await asyncio.to_thread(client.recv)
    taken_us = (process_time_ns() - begin_ns) / 1e3 / calls
    if answered != calls:
        raise RuntimeError(f"{answered} of {calls} calls were answered")
    return taken_us
