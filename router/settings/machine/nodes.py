"""`nodes:` as a NodesSpec, and the slices that are on nodes: of machines that this one cannot look at."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from router.settings.door.auth import is_loopback
from router.settings.door.tls import TlsSettings
from router.settings.machine.gpus import check_processes, read_share
from router.settings.machine.prices import Prices, machine_kind, share_price, slice_price
from router.settings.values.fields import Port, Text
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, shown
from router.settings.values.schema import Section, SliceSection
from serving.values.nodes import TOKEN_ENV, NodesSpec
from serving.values.slice_specs import SliceSpec

LOC: Final = ("nodes",)
SHIP: Final[Literal["ship"]] = "ship"
TOKEN_CHARS_MIN: Final = 16
"""A shorter token could be guessed from a recorded greeting: a million tries take a second."""
_CORES: Final = range(4096)


class NodesSection(Section):
    """`nodes:`; the defaults are those of NodesSpec. `token_env` names a variable."""

    token_env: Text = TOKEN_ENV
    host: Text | None = None
    port: Port | None = None
    models: Literal["ship", "shared"] = SHIP


def read_nodes(
    findings: Findings, slices: Sequence[SliceSpec], tls: TlsSettings | None, ports: Sequence[int]
) -> NodesSpec | None:
    """Return the section; None if there is none, or if it is faulty. `ports`: of the other doors."""
    names = tuple(dict.fromkeys(each.node for each in slices if each.node))
    value = findings.document.at(LOC)
    if not isinstance(value, dict):
        _check_missing(findings, value)
        return None
    section = findings.parse(NodesSection, LOC)
    if section is None:
        return None
    token = read_token(findings, LOC, section.token_env, "nodes")
    spec = NodesSpec(token=token, ship=section.models == SHIP, names=names)
    spec = replace(spec, host=section.host or spec.host)
    spec = replace(spec, port=spec.port if section.port is None else section.port)
    if spec.port and spec.port in ports:
        findings.add((*LOC, "port"), fault("the port of another door", spec.port, "a port of its own"))
    if tls is None and not is_loopback(spec.host):
        message = (
            f"whoever sees the network of {spec.host} sees tensors and model files; "
            "expected `tls:` in `server:`, or a network of your own"
        )
        findings.warn((*LOC, "host"), message)
    return spec


def read_token(findings: Findings, section: Loc, name: str, others: str) -> str:
    """Return the token in the variable `name`, which `token_env` of a section names. `others`: what has the
    same token."""
    token = os.environ.get(name, "")
    if len(token) < TOKEN_CHARS_MIN:
        got = f"{len(token)} characters as" if token else "no"
        wanted = f"a token of {TOKEN_CHARS_MIN} characters or more"
        expected = f"{wanted} there, as `openssl rand -hex 16` prints, the same on all {others}"
        stated = findings.document.at((*section, "token_env")) is not None
        at = (*section, "token_env") if stated else section
        findings.add(at, f"the environment has {got} {shown(name)}; expected {expected}")
    return token


def _check_missing(findings: Findings, value: object) -> None:
    """Add the slices that name a node without a door for it."""
    entries = findings.document.at(("slices",))
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if value is None and isinstance(entry, dict) and isinstance(entry.get("node"), str):
            message = (
                f"node {shown(entry['node'])} has no door to call at; expected `nodes: {{host: 0.0.0.0}}`"
            )
            findings.add(("slices", index, "node"), message)


def far_slices(
    findings: Findings, sections: Sequence[SliceSection | None], prices: Prices
) -> dict[int, list[SliceSpec]]:
    """Return the slices on nodes, by the index of their entry. Cores are dealt from those of each node."""
    taken = defaultdict[str, set[int]](set)
    for section in sections:
        if section is not None and isinstance(section.cores, tuple):
            for node in node_names(section):
                taken[node].update(section.cores)
    return {
        index: _entry(findings, ("slices", index), section, prices, taken)
        for index, section in enumerate(sections)
        if section is not None and section.node is not None
    }


def node_names(section: SliceSection) -> tuple[str, ...]:
    """Return the nodes of an entry: several are numbered from 1."""
    if section.node is None:
        return ()
    if section.node_count is None:
        return (section.node,)
    return tuple(f"{section.node}-{number}" for number in range(1, section.node_count + 1))


def on_nodes(count: int | None, node_count: int | None) -> int | None:
    """Return the `count` of an entry over all of its nodes; None if its one slice has no number."""
    return count if node_count is None else (count or 1) * node_count


def _entry(
    findings: Findings, loc: Loc, section: SliceSection, prices: Prices, taken: Mapping[str, set[int]]
) -> list[SliceSpec]:
    spec = _on_gpu(findings, loc, section, prices) if section.device else _on_cores(section)
    if spec is None:
        return []
    each_node = (section.count or 1) * section.processes
    nodes = [node for node in node_names(section) for _ in range(each_node)]
    named = len(nodes) == 1 and on_nodes(section.count, section.node_count) is None
    names = [section.name] if named else [f"{section.name}-{n}" for n in range(1, len(nodes) + 1)]
    found: list[SliceSpec] = []
    for number, (name, node) in enumerate(zip(names, nodes, strict=True)):
        cores = section.cores if isinstance(section.cores, tuple) else _deal(section.cores or 0, taken[node])
        instance = f"{node}/{section.name} {number // section.processes}" if section.processes > 1 else ""
        each = replace(spec, name=name, cores=cores, instance=instance)
        device = f"{node}/{spec.device}" if spec.rehearsed else spec.device
        each = replace(each, device=device, node="" if spec.rehearsed else node)
        if not section.device and section.price is None:
            price = slice_price(prices, len(cores) or section.threads, spot=section.spot, kind=section.kind)
            each = replace(each, price=price)
        found.append(each)
    return found


def _deal(count: int, taken: set[int]) -> tuple[int, ...]:
    """Return as many cores that no slice of the node has."""
    free = [core for core in _CORES if core not in taken][:count]
    taken.update(free)
    return tuple(free)


def _on_cores(section: SliceSection) -> SliceSpec:
    spec = SliceSpec("", (), section.threads, price=section.price or 0.0, spot=section.spot)
    memory_bytes = round((section.memory_mb or 0) * (1 << 20))
    own = section.kind in (None, machine_kind())
    return replace(spec, memory_bytes=memory_bytes, kind="" if own else section.kind or "")


def _on_gpu(findings: Findings, loc: Loc, section: SliceSection, prices: Prices) -> SliceSpec | None:
    """Return a slice of a node's GPU. Only the node can look at that: it does when the slice starts."""
    share = read_share(findings, loc, section.share)
    device = section.device or ""
    if not device.startswith("cuda:") or not device[5:].isdecimal():
        expected = "one GPU as the node counts them, such as cuda:0"
        findings.add((*loc, "device"), fault("no GPU of a node", device, expected))
        return None
    if section.kind is None or not section.kind.startswith("gpu-"):
        expected = "its kind, such as gpu-nvidia-h200; `penstock node` prints those of a node"
        findings.add((*loc, "kind"), fault("no kind of a GPU", section.kind, expected))
        return None
    if share is None or not check_processes(findings, loc, section, share):
        return None
    whole = share_price(prices, section.kind, share, spot=section.spot)
    price = whole / section.processes if section.price is None else section.price
    spec = replace(_on_cores(section), device=device, kind=section.kind, price=price)
    spec = replace(spec, part=share.with_processes(section.processes))
    if findings.rehearse:
        return replace(spec, rehearsed=True)
    return spec
