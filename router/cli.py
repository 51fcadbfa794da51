"""The `penstock` command: one verb, one function. Heavy imports wait until their verb is called."""

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer

from router.commandline.commands import Verb, Verbs, command
from router.commandline.key_env import KEY_ENV, CaOption, KeyEnvOption
from router.commandline.node_options import NodeOptions
from router.commandline.status_options import StatusOptions
from router.security.auth.options import KeyOptions, KeysOption
from router.verbs.doctor.options import DoctorOptions
from router.verbs.explain.options import ExplainOptions
from router.verbs.importing.options import ImportOptions
from router.verbs.place.candidate.options import PredictOptions
from router.verbs.place.options import PlaceOptions
from router.verbs.profiling.options import ProfileOptions
from router.verbs.simulate.options import SimulateOptions
from router.verbs.target.options import ConfigOption, RehearseOption, ServeOptions
from serving.values.extras import cure

app = typer.Typer(cls=Verbs, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
key_app = typer.Typer(cls=Verbs, no_args_is_help=True, help="API keys for the callers of a gateway.")
app.add_typer(key_app, name="key")
rollout_app = typer.Typer(cls=Verbs, no_args_is_help=True, help="Guarded rollouts of a running gateway.")
app.add_typer(rollout_app, name="rollout")
ModelArgument = Annotated[str, typer.Argument(help="The model that has a candidate.")]
DOOR = "http://127.0.0.1:8004"
DoorOption = Annotated[str, typer.Option(help="The gateway's admin door.")]


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def penstock(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Run an inference serving gateway that keeps a latency promise."""


def _import_servers() -> None:
    """Import what serves. An import that fails does so again where it is needed, and is said there."""
    with suppress(ImportError):
        import router.startup.serve  # noqa: F401


def _serve(asked: ServeOptions) -> int:
    """Start the gateway and its workers; Ctrl-C or SIGTERM answers what was accepted, then ends.

    penstock serve model.onnx --slo 50ms

    penstock serve --config penstock.yaml
    """
    gc.disable()  # what a start makes stays: to look for garbage in it takes a seventh of the start
    try:
        return _started(asked)
    finally:
        gc.enable()  # `serve_settings` does so before there is a client


def _started(asked: ServeOptions) -> int:
    from router.settings import SettingsError, load_settings
    from router.settings.keys import check_keys
    from router.settings.tls_check import check_tls
    from router.settings.values.schema import LOG_FORMATS, LOG_LEVELS
    from router.verbs.target.asked import settings_file
    from router.verbs.target.errors import TargetError

    servers = Thread(target=_import_servers)  # while another process finds what a model takes
    servers.start()
    try:
        config = settings_file(asked.target, asked.config, asked.of_target)
        settings = load_settings(config, asked.rehearse)
        keys, warnings = check_keys(settings)
        warnings += check_tls(settings)
    except (SettingsError, TargetError) as error:
        typer.echo(str(error), err=True)
        return 1
    finally:
        servers.join()
    from router.startup.serve import serve_settings

    for warning in (*settings.warnings, *warnings):
        typer.echo(f"warning: {warning}", err=True)
    server, admin = settings.server, settings.admin
    server = replace(
        server,
        host=asked.host or server.host,
        rest_port=server.rest_port if asked.rest_port is None else asked.rest_port,
        grpc_port=server.grpc_port if asked.grpc_port is None else asked.grpc_port,
        metrics_port=server.metrics_port if asked.metrics_port is None else asked.metrics_port,
    )
    if asked.admin_port is not None:
        admin = replace(admin, port=asked.admin_port, socket=None)
    logs = replace(
        settings.logging,
        level=_one_of("--log-level", asked.log_level, LOG_LEVELS, settings.logging.level),
        format=_one_of("--log-format", asked.log_format, LOG_FORMATS, settings.logging.format),
    )
    whole = replace(settings, server=server, admin=admin, logging=logs)
    return serve_settings(whole, keys, asked.reload)


app.command("serve", cls=Verb)(command(ServeOptions, _serve))


@app.command(cls=Verb)
def check(
    config: Annotated[Path, typer.Argument(help="The settings file.")] = Path("penstock.yaml"),
    rehearse: RehearseOption = False,
) -> None:
    """Print every mistake of a settings file, and what it would serve."""
    from router.settings.profiles import measured_latency
    from router.verbs.check import check as check_settings

    report = check_settings(config, measured_latency, rehearse)
    typer.echo(str(report), err=not report.sound)
    raise typer.Exit(0 if report.sound else 1)


def _doctor(asked: DoctorOptions) -> int:
    """Say whether this machine can do what a settings file asks, and what would cure it.

    penstock doctor --config penstock.yaml

    Exit code 1: there is a fault; 2: the file cannot be used. It changes nothing.
    """
    from router.verbs.doctor.command import doctor

    return doctor(asked)


app.command("doctor", cls=Verb)(command(DoctorOptions, _doctor))


def _status(asked: StatusOptions) -> int:
    """Show a live table of the models, replicas and rates of a running gateway."""
    from router.observing.status import list_events, watch

    if asked.events:
        return list_events(asked.url, asked.as_json, asked.key_env)
    return watch(asked.url, asked.interval, asked.once, asked.as_json, asked.key_env)


app.command("status", cls=Verb)(command(StatusOptions, _status))


@app.command(cls=Verb)
def cells(
    url: Annotated[str, typer.Option(help="The gateway's REST address.")] = "http://127.0.0.1:8000",
    form: Annotated[
        str, typer.Option("--format", help="table, json, or envoy: routes for that load balancer.")
    ] = "table",
    key_env: KeyEnvOption = KEY_ENV,
    _ca: CaOption = "",
) -> None:
    """Show which gateway of several has which model."""
    from router.observing.cells.command import FORMATS, show_cells

    raise typer.Exit(show_cells(url, _one_of("--format", form, FORMATS, form), key_env))


def _explain(asked: ExplainOptions) -> int:
    """Explain why a variant answers, or what became of a request, and what would change that.

    penstock explain digits

    penstock explain --request last
    """
    if asked.request or asked.requests:
        from router.observing.requests.command import explain_request, list_requests

        if asked.request:
            return explain_request(asked.request, asked.url, asked.as_json, asked.key_env)
        return list_requests(asked.model, asked.url, asked.as_json, asked.key_env)
    if not asked.model:
        raise typer.BadParameter("expected a model, --request ID or --requests")
    from router.verbs.explain.main import explain

    return explain(asked.model, asked.url, asked.tier, asked.as_json, key_env=asked.key_env)


app.command("explain", cls=Verb)(command(ExplainOptions, _explain))


@app.command("infer", cls=Verb)
def infer_one(
    model: Annotated[str, typer.Argument(help="A model that is served.")],
    data: Annotated[
        str | None,
        typer.Option(help='Values such as {"x": [[1, 2]]}, a text, @FILE or -. Else an example is sent.'),
    ] = None,
    url: Annotated[str, typer.Option(help="The gateway's REST address.")] = "http://127.0.0.1:8000",
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")] = False,
    key_env: KeyEnvOption = KEY_ENV,
    _ca: CaOption = "",
) -> None:
    """Send one request to a running gateway, and print the answer."""
    from router.verbs.infer import infer

    raise typer.Exit(infer(model, data, url, as_json, key_env))


@app.command("new", cls=Verb)
def new_model(
    name: Annotated[str, typer.Argument(help="The model's name, and the new folder's.")],
    kind: Annotated[str, typer.Option(help="python, torch or sklearn.")] = "python",
) -> None:
    """Write a new folder with a model that runs, its test and a load script."""
    from router.verbs.target.errors import TargetError
    from router.verbs.target.scaffold import scaffold

    try:
        lines = scaffold(name, kind)
    except TargetError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    typer.echo("\n".join(lines))


@app.command("schema", cls=Verb)
def json_schema(
    of: Annotated[str, typer.Argument(help="settings (penstock.yaml) or model (model.yaml).")] = "settings",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a page for people instead.")] = False,
) -> None:
    """Print the JSON Schema of a file, for editors: every key, with its values and meaning."""
    import json

    from router.settings.json_schema import schema_of
    from router.settings.keys_page import page
    from router.settings.model_file.schema import ModelFile
    from router.settings.values.schema import GatewayFile, Section

    files: dict[str, tuple[str, type[Section]]] = {
        "settings": ("penstock.yaml", GatewayFile),
        "model": ("model.yaml", ModelFile),
    }
    if of not in files:
        raise typer.BadParameter(f"got {of!r}, expected settings or model")
    name, root = files[of]
    schema = schema_of(root)
    typer.echo(page(schema, of, name) if markdown else json.dumps(schema, indent=1), nl=not markdown)


@app.command(cls=Verb)
def dashboard() -> None:
    """Print a dashboard for Grafana 10 or later, as JSON: import it, or provision it."""
    import json

    from router.observing.telemetry.dashboards.grafana import dashboard as made

    typer.echo(json.dumps(made(), indent=1))


def _simulate(asked: SimulateOptions) -> int:
    """Simulate what a settings file would answer in time, on measured latencies.

    penstock simulate penstock.yaml --rate digits=50,minilm=20 --policy slo,static

    Exit code 1: what --require asks for does not hold; 2: nothing can be simulated as asked.
    """
    from router.verbs.simulate.main import simulate  # numpy: 0.1 s that the other verbs need not wait for

    return simulate(asked)


app.command("simulate", cls=Verb)(command(SimulateOptions, _simulate))


def _import(asked: ImportOptions) -> int:
    """Turn models of Triton or TorchServe into settings.

    penstock import --triton /models --to penstock --server localhost:8001

    penstock import --torchserve net.mar --example cat.jpg

    Exit code 1: some models were refused, with a sentence each; 2: nothing can be imported as asked.
    """
    from router.verbs.importing.command import import_models  # grpc: 0.2 s

    return import_models(asked)


app.command("import", cls=Verb)(command(ImportOptions, _import))


def _profile(asked: ProfileOptions) -> int:
    """Measure what a model costs on shares of a device, or show what was measured.

    penstock profile digits --shares 1,2

    penstock profile digits --show --html digits.html

    Exit code 1: the machine is too noisy, or the model fails; 2: nothing can be measured as asked.
    """
    from router.verbs.profiling.main import profile

    return profile(asked)


app.command("profile", cls=Verb)(command(ProfileOptions, _profile))


def _place(asked: PlaceOptions) -> int:
    """Plan which devices and shares carry a load with every SLO kept.

    penstock place penstock.yaml --rates digits=50,minilm=20

    Exit code 1: a promise cannot be kept; 2: nothing can be placed as asked.
    """
    from router.verbs.place.main import place  # the solvers: 0.5 s

    return place(asked)


app.command("place", cls=Verb)(command(PlaceOptions, _place))


@app.command("upgrade", cls=Verb)
def upgrade(
    config: ConfigOption = Path("penstock.yaml"),
    python: Annotated[
        Path | None, typer.Option(help="Start the next gateway with this Python, as of another environment.")
    ] = None,
) -> None:
    """Replace the gateway of these settings on this machine: no request is lost, no model is loaded again.

    The gateway starts the next one by its own command, and hands it listeners, connections and workers.
    Exit code 1: the gateway that serves goes on.
    """
    from router.startup.upgrade.asking import ask
    from router.startup.upgrade.going import UpgradeError

    try:
        pid = ask(config, "" if python is None else str(python.absolute()))
    except UpgradeError as error:
        typer.echo(f"penstock upgrade: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"process {pid} serves {config} now")


def _node(asked: NodeOptions) -> int:
    """Lend this machine to a gateway on another: it calls there, and runs workers for it.

    penstock node --join gateway.example:8005 --name box1

    penstock node --join gateway.example:8005 --ray auto

    Ctrl-C or SIGTERM says so to the gateway, and ends. Exit code 1: it may not join.
    """
    if asked.ray is not None:
        from router.startup.ray_nodes import serve_on_ray

        return serve_on_ray(asked)
    from router.startup.node import serve_node

    return serve_node(asked)


app.command("node", cls=Verb)(command(NodeOptions, _node))


@app.command("up", cls=Verb)
def up(
    config: ConfigOption = Path("penstock.yaml"),
    ray: Annotated[
        bool, typer.Option("--ray", help="Have Ray keep the nodes, in a cluster on this machine.")
    ] = False,
) -> None:
    """Try a file with nodes on this machine alone: start the gateway, and each of its nodes.

    Ctrl-C ends all of it. Exit code 1: the file cannot be tried so.
    """
    from router.startup.up import up as serve_all

    raise typer.Exit(serve_all(config, ray))


def _key_new(asked: KeyOptions) -> int:
    """Make a key and print it, once: the keys file has its hash only. A gateway that runs takes it at once.

    penstock key new --name app1 --tenant team-a --roles infer,read
    """
    from router.security.auth.command import new

    return new(asked)


key_app.command("new", cls=Verb)(command(KeyOptions, _key_new))


@key_app.command("list", cls=Verb)
def key_list(config: ConfigOption = Path("penstock.yaml"), keys: KeysOption = None) -> None:
    """Say which keys there are, and what each may do."""
    from router.security.auth.command import show

    raise typer.Exit(show(config, keys))


@key_app.command("revoke", cls=Verb)
def key_revoke(
    name: Annotated[str, typer.Argument(help="The name of a key.")],
    config: ConfigOption = Path("penstock.yaml"),
    keys: KeysOption = None,
) -> None:
    """Take a key out of the keys file: a gateway that runs refuses it from then on."""
    from router.security.auth.command import revoke

    raise typer.Exit(revoke(name, config, keys))


@rollout_app.command("status", cls=Verb)
def rollout_status(
    url: Annotated[str, typer.Option(help="The gateway's REST address.")] = "http://127.0.0.1:8000",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    key_env: KeyEnvOption = KEY_ENV,
    _ca: CaOption = "",
) -> None:
    """Show how far each rollout is, and why."""
    from router.management.rollouts.command import show_rollouts

    raise typer.Exit(show_rollouts(url, as_json, key_env))


def _rollout_predict(asked: PredictOptions) -> int:
    """Predict how many slices each step fills, and which share of the promises breaks.

    penstock rollout predict digits --config next.yaml --rates digits=50
    """
    from router.verbs.place.candidate.command import predict_rollout

    return predict_rollout(asked)


rollout_app.command("predict", cls=Verb)(command(PredictOptions, _rollout_predict))


def _rollout_verb(verb: str, meaning: str) -> None:
    def run(
        model: ModelArgument, url: DoorOption = DOOR, key_env: KeyEnvOption = KEY_ENV, _ca: CaOption = ""
    ) -> None:
        from router.management.rollouts.command import act

        raise typer.Exit(act(model, verb, url, key_env))

    run.__doc__ = meaning
    rollout_app.command(verb, cls=Verb)(run)


_rollout_verb("start", "Begin a rollout from its first step.")
_rollout_verb("promote", "Give the candidate all requests at once.")
_rollout_verb("abort", "Give the candidate no request any more.")


def _one_of(option: str, value: str | None, names: Sequence[str], default: str) -> str:
    """Return an option's value, which must be one of these names; without it the default."""
    if value is not None and value not in names:
        raise typer.BadParameter(f"expected {', '.join(names)}, got {value!r}", param_hint=option)
    return default if value is None else value


def main() -> None:
    """Run the `penstock` script. Say which extra of pip has a package that is missing."""
    try:
        app()
    except ModuleNotFoundError as error:
        if not (found := cure(error.name)):
            raise
        sys.exit(f"{error.name} is not installed here; {found}")


if __name__ == "__main__":
    main()
