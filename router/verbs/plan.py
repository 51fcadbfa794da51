"""What a settings file would serve, in lines for the operator: the plan of `penstock check`."""

from collections.abc import Iterator, Sequence
from math import inf

from router.observing.isolation import isolate_lines, shared_out
from router.protocol.dialects.catalogue import endpoints_of
from router.protocol.explanation import REHEARSED_FIELD
from router.settings import Settings
from router.settings.keys import KeySpec
from router.settings.machine.slices import default_slices
from router.settings.served.floors import ENSEMBLE, accuracy_text, objectives
from router.settings.served.scaling import span
from router.settings.served.tenants import rate_text
from router.settings.values.problems import one_of
from router.verbs.feasibility import promised_text, tier_text
from router.verbs.gpu_plan import gpu_lines
from serving.values.nodes import NodesSpec
from serving.values.objectives import BALANCED, CHEAPEST, MOST_ACCURATE, Objective
from serving.values.slice_specs import ORPHAN_S, WorkersSpec
from serving.values.specs import DEFAULT_TENANT, ModelSpec, RecordingSpec, ServedModel, TenantSpec, guards_of

_AIMS = {
    MOST_ACCURATE: "the most accurate that the load allows",
    BALANCED: "balanced between accurate and cheap",
    CHEAPEST: "the cheapest",
}


def plan_lines(settings: Settings) -> Iterator[str]:
    """Yield a line a model, indented ones on what is promised of it and on its replicas, and one each for
    slices that the file leaves out, scaling, TLS, tenants, cache and recording where there are any."""
    beside = shared_out(settings.models, settings.slices)
    for model in settings.models:
        yield plan_line(model)
        yield from promise_lines(model)
        yield from replica_lines(model)
        yield from isolate_lines(model, beside)
        yield from guard_lines(model)
        yield from endpoint_lines(model.spec)
        yield from header_lines(model.spec)
    yield from rehearsal_lines(settings)
    yield from slice_lines(settings)
    yield from python_lines(settings)
    yield from gpu_lines(settings)
    yield from node_lines(settings)
    yield from cell_lines(settings)
    yield from worker_lines(settings.workers)
    yield from scaling_lines(settings)
    yield from tls_lines(settings)
    yield from tenant_lines(settings.tenants)
    yield from cache_lines(settings)
    yield from recording_lines(settings.recording)


def plan_line(model: ServedModel) -> str:
    """Return one line of the plan: SLO, largest batch, slices, variants with accuracy; `*` answers alone."""
    variants = []
    for name in model.variants:
        accuracy = model.spec.variant(name).accuracy
        star = "*" if name == model.answering_variant and not model.needs.chooses else ""
        variants.append(f"{name}{star}" + (f" {accuracy:.3f}" if accuracy is not None else ""))
    rows = min(model.batching.size or model.spec.batch_max, model.spec.batch_max)
    metric = f" ({model.spec.accuracy_metric})" if model.spec.accuracy_metric else ""
    on = ", ".join(model.slices)
    return (
        f"{model.name}:{_version(model)} SLO {promised_text(model.own)}, "
        f"batches of up to {rows} rows, on {on}; "
        f"variants {', '.join(variants)}{metric}{_candidate(model)}"
    )


def _version(model: ServedModel) -> str:
    """Return which version has the model's own name."""
    named = model.spec.version and model.name == model.spec.model_name
    return f" version {model.spec.version}," if named else ""


def _candidate(model: ServedModel) -> str:
    """Return what a candidate is rolled out for, and how, after a semicolon."""
    spec = model.rollout
    if spec is None:
        return ""
    steps = ", ".join(f"{step * 100:g}" for step in spec.steps)
    copies = f" copies of {spec.shadow * 100:g} % first, then" if spec.shadow else ""
    hold_s = spec.hold_us / 1e6
    return f"; candidate for {spec.of}:{copies} {steps} % of its requests, each for {hold_s:g} s at least"


def promise_lines(model: ServedModel) -> Iterator[str]:
    """Yield lines on the promises of the model and each tier: accuracy, variants, what is optimised, and how
    many are in time. Also yield how answers are made of several. Skip a tier that says no more than the
    model's line."""
    for each in objectives(model):
        same = (each.slo_us, each.slo_rows, each.percentile, each.variants) == (
            model.own.slo_us,
            model.own.slo_rows,
            model.own.percentile,
            model.own.variants,
        )
        if each.tier and same and len(each.variants) == 1:
            continue
        if each.tier or model.needs.chooses or model.needs.percentile is not None:
            yield f"  {tier_text(each)}{_promise(model, each)}"
    if model.selection is not None:
        chosen = model.selection
        learnt = f"learnt from feedback ({chosen.policy}) of"
        how = "a weighted vote of" if chosen.policy == ENSEMBLE else learnt
        yield f"  selection: {how} {', '.join(chosen.members)}, by {chosen.output}"


def _promise(model: ServedModel, objective: Objective) -> str:
    floor = f"at least {accuracy_text(objective.accuracy_min)} accurate, " if objective.accuracy_min else ""
    cost = f", a million rows for at most {objective.cost_max:g}" if objective.cost_max < inf else ""
    in_time = f"{objective.percentile:g} % within {promised_text(objective)}"
    return f"{floor}by {_who(model, objective)}{cost}; {in_time}"


def _who(model: ServedModel, objective: Objective) -> str:
    if model.selection is not None:
        return "its selection"
    if len(objective.variants) == 1:
        return f"{objective.variants[0]} alone"
    return f"{one_of(objective.variants)}, {_AIMS[objective.optimize]}"


def replica_lines(model: ServedModel) -> Iterator[str]:
    """Yield how many replicas a scaled model has; nothing for other models."""
    spec, there = model.replicas, len(model.slices)
    if spec is None:
        return
    most = there if spec.most is None else spec.most
    where = f"of its {there} slices" if there > 1 else "of its 1 slice"
    first = f"; priority {spec.priority}" if spec.priority else ""
    if spec.least == most:
        yield f"  replicas: {most} {where}{first}"
        return
    idle = "; let go while nobody is likely to ask for it" if spec.least == 0 else ""
    yield f"  replicas: {spec.least} to {most} {where}, as its load asks for{idle}{first}"


def guard_lines(model: ServedModel) -> Iterator[str]:
    """Yield a line on each guarded output; none where no output is."""
    for name, guard in guards_of(model.spec).items():
        yield f"  guard: {name} is {guard}, or the request fails"


def endpoint_lines(spec: ModelSpec) -> Iterator[str]:
    """Yield a line on the applications' endpoints that a model serves; none where it declares none."""
    application = spec.application
    if application is None:
        return
    paths = ", ".join(path for each in endpoints_of(application.task) for path in each.paths)
    inputs = " and ".join(application.inputs)
    tokens = f"; texts of up to {application.tokens_max} tokens" if application.tokens_max else ""
    yield f"  endpoints: {paths}, by {inputs} and {application.output}{tokens}"


def header_lines(spec: ModelSpec) -> Iterator[str]:
    """Yield a line on the header fields that may state parameters; none where none may."""
    names = [each.name.lower() for each in spec.parameters if each.header]
    if names:
        yield f"  header fields that state parameters: {', '.join(names)}"


def worker_lines(workers: WorkersSpec) -> list[str]:
    """Return one line on what workers are given and held to; no line if all is as by default."""
    said = []
    if workers.memory_bytes:
        said.append(f"at most {workers.memory_bytes / (1 << 20):.10g} MB each")
    if workers.open_files:
        said.append(f"at most {workers.open_files} open files a process")
    if workers.processes:
        said.append(f"at most {workers.processes} processes and threads of their user")
    if not workers.spare:
        said.append("no spare after a kill")
    if workers.orphan_s != ORPHAN_S:
        said.append(_said_waits(workers.orphan_s))
    if given := [*dict(workers.environment), *workers.inherit]:
        said.append(f"given {', '.join(given)}")
    return [f"workers: {'; '.join(said)}"] if said else []


def _said_waits(orphan_s: float) -> str:
    return (
        f"wait {orphan_s:.10g} s for the next gateway after a crash" if orphan_s else "end with the gateway"
    )


def slice_lines(settings: Settings) -> list[str]:
    """Return one line on the slices if the file leaves them out: how many, and how to have others; else
    none."""
    stated = settings.document is not None and settings.document.at(("slices",)) is not None
    names = [each.name for each in settings.slices]
    if stated or names != [*default_slices()]:
        return []
    if len(names) == 1:
        return [f"slices: {names[0]}, on the one core that may be used; `slices:` would say otherwise"]
    many = f"slices: {names[0]} to {names[-1]}, one for each of {len(names)} cores, the gateway's included"
    return [f"{many}; `slices: [{{name: cpu, cores: 1, count: {len(names) - 1}}}]` would leave it one"]


def python_lines(settings: Settings) -> Iterator[str]:
    """Yield a line for each other interpreter: on which slices it computes."""
    for python in dict.fromkeys(each.python for each in settings.slices if each.python):
        names = (each.name for each in settings.slices if each.python == python)
        yield f"python: {python} on {', '.join(names)}"


def node_lines(settings: Settings) -> Iterator[str]:
    """Yield a line for each node: which slices it has, and how it joins."""
    nodes = settings.nodes or NodesSpec()
    for node in nodes.names:
        specs = [each for each in settings.slices if each.node == node]
        on = ", ".join(f"{each.name} ({each.device}, {each.share})" for each in specs)
        yield f"node {node}: {on}; it joins by `penstock node --join HOST:{nodes.port} --name {node}`"


def cell_lines(settings: Settings) -> Iterator[str]:
    """Yield a line on this gateway's cell, if it has one."""
    if (cells := settings.cells) is not None:
        door = cells.address or f"{cells.host}:{cells.port}"
        meets = f"it meets others at {cells.redis.place}, and they call it at {door}"
        yield f"cell {cells.name}: {meets}; each model is in one of the cells"


def rehearsal_lines(settings: Settings) -> list[str]:
    """Return a line that says how many slices are rehearsed; none where none is."""
    count = sum(each.rehearsed for each in settings.slices)
    if not count:
        return []
    devices = len({each.device for each in settings.slices if each.rehearsed})
    which = f"{count} of {len(settings.slices)} slices, on {devices} devices"
    return [f"REHEARSAL: {which}, load no model; their answers are made up and say {REHEARSED_FIELD}: true"]


def scaling_lines(settings: Settings) -> list[str]:
    """Return one line on how many slices are held at least and at most, and what that costs; none if no model
    is scaled."""
    if all(model.replicas is None for model in settings.models):
        return []
    scaling = settings.scaling
    target = "" if scaling.target is None else f" (target {scaling.target:g})"
    held = span(settings.models, settings.slices)
    low, high = len(held.least), len(held.most)
    slices = f"{low}" if low == high else f"{low} to {high}"
    line = f"scaling: {scaling.policy}{target}; {slices} of {len(settings.slices)} slices are held"
    if not any(each.price for each in settings.slices):
        return [line]
    least, most = f"{held.cost_least:.6g}", f"{held.cost_most:.6g}"
    line += f", at {least} an hour" if least == most else f", at {least} to {most} an hour"
    if scaling.cost_max < held.cost_most:
        line += f", of which {scaling.cost_max:.6g} may be spent"
    return [line]


def _rate(tenant: TenantSpec) -> str:
    return "" if tenant.rate is None else f", at most {rate_text(tenant.rate)}"


def tls_lines(settings: Settings) -> Iterator[str]:
    """Yield what is encrypted, and which clients' certificates count."""
    tls = settings.server.tls
    if tls is None:
        return
    shown = "" if tls.client_ca is None else ", a client's certificate counts"
    must = ", and each client needs one" if tls.requires else ""
    yield f"tls: all ports, by {tls.cert}{shown}{must}"


def tenant_lines(tenants: Sequence[TenantSpec]) -> list[str]:
    """Return one line with all tenants, the default one too; none if the settings list none."""
    if not tenants:
        return []
    default = [] if any(each.name == DEFAULT_TENANT for each in tenants) else [TenantSpec(DEFAULT_TENANT)]
    shares = [
        f"{each.name} (weight {each.weight:g}, priority {each.priority}{_tier(each)}{_rate(each)})"
        for each in (*tenants, *default)
    ]
    return [f"tenants: {', '.join(shares)}"]


def _tier(tenant: TenantSpec) -> str:
    return f", tier {tenant.tier}" if tenant.tier else ""


def cache_lines(settings: Settings) -> list[str]:
    """Return one line that names the models with kept answers; no line if there are none."""
    names = [model.name for model in settings.models if model.cache]
    if settings.cache is None or not names:
        return []
    size_mb, ttl_s = settings.cache.memory_bytes / (1 << 20), settings.cache.ttl_us / 1e6
    shared = ", shared by all tenants" if settings.cache.shared else ""
    redis = settings.cache.redis
    if redis is not None:
        shared += f"; with other gateways through {redis.place} as {redis.namespace}"
    return [f"cache: answers of {', '.join(names)}, at most {size_mb:g} MB, for {ttl_s:g} s{shared}"]


def key_lines(settings: Settings, keys: Sequence[KeySpec]) -> list[str]:
    """Return one line on how many keys there are, and what needs no key; no line if no caller needs a key."""
    if settings.auth is None:
        return []
    count = f"{len(keys)} {'key' if len(keys) == 1 else 'keys'}"
    open_doors = "health probes need none" if settings.auth.metrics else "health probes and metrics need none"
    return [f"keys: {count}, in {settings.auth.keys}; {open_doors}"]


def recording_lines(recording: RecordingSpec | None) -> list[str]:
    """Return one line on where arrivals are recorded; none if they are not recorded."""
    if recording is None:
        return []
    size_mb = recording.file_bytes / (1 << 20)
    return [f"recording: arrivals to {recording.folder}, at most {recording.files} files of {size_mb:g} MB"]
