"""`penstock import`: what it writes, and what it says."""

from pathlib import Path

import typer

from router.verbs.importing.options import ImportOptions
from router.verbs.importing.torchserve import CODE, unpack_archive
from router.verbs.importing.triton import Imported, read_model
from router.verbs.target.asked import slo_ms_of
from router.verbs.target.described import signature_of
from router.verbs.target.errors import TargetError
from router.verbs.target.target import Target
from router.verbs.target.writing import derived_slo_ms, entry, model_text, write_file
from serving.worker.backends.signature import ALL


def import_models(asked: ImportOptions) -> int:
    """Write settings for all models that can be imported; returns 0, 1 if some were refused, or 2 if nothing
    can be imported as asked."""
    try:
        slo_ms = slo_ms_of(asked.slo or None)
        if asked.to.exists():
            raise TargetError(f"{asked.to} is there already; expected a new folder: --to FOLDER")
        if (asked.triton is None) == (asked.torchserve is None):
            raise TargetError("nothing to import; expected --triton REPOSITORY or --torchserve FILE.mar")
        if asked.torchserve is not None:
            return _import_archive(asked, asked.torchserve, slo_ms)
        folders = _folders(asked.triton or Path())
    except TargetError as error:
        typer.echo(str(error), err=True)
        return 2
    return _import_folders(asked, folders, slo_ms)


def _import_archive(asked: ImportOptions, file: Path, slo_ms: float | None) -> int:
    models = asked.to / "models"
    found = unpack_archive(file, asked.example, models)
    stated = slo_ms
    if stated is None:
        target = Target(str(file), found.name, "python", str((models / found.name / CODE).resolve()))
        stated = derived_slo_ms(signature_of(target, {}).latency_ms)
    settings = asked.to / "penstock.yaml"
    head = f"# `penstock import --torchserve {file}` wrote this. Each core is a slice.\nmodels:\n"
    write_file(settings, head + entry(f"models/{found.name}", stated))
    batches = f"batches of up to {found.batch_max} rows" if found.batch_max > 1 else "one row at a time"
    typer.echo(f"imported  {found.name}: its handler, {batches}, SLO {stated:g} ms (as derived or stated)")
    for note in found.notes:
        typer.echo(f"          note: {note}")
    typer.echo(f"`penstock serve {settings}` serves it")
    return 0


def _import_folders(asked: ImportOptions, folders: list[Path], slo_ms: float | None) -> int:
    entries = []
    for folder in folders:
        try:
            found = read_model(folder, asked.server)
            stated = found.slo_ms or slo_ms or _derived(found)
            written = asked.to / "models" / found.target.name
            write_file(written / "model.yaml", _text(found))
            for version in found.versions:
                (written / version.name).symlink_to(version.resolve(), target_is_directory=True)
        except TargetError as error:
            typer.echo(f"refused   {folder.name}: {error}", err=True)
            continue
        entries.append(entry(f"models/{found.target.name}", stated))
        _say(found, stated)
    if entries:
        head = f"# `penstock import --triton {asked.triton}` wrote this. Each core is a slice.\nmodels:\n"
        write_file(asked.to / "penstock.yaml", head + "".join(entries))
        typer.echo(
            f"`penstock serve {asked.to / 'penstock.yaml'}` serves {len(entries)} of {len(folders)} models"
        )
    return 0 if len(entries) == len(folders) else 1


def _folders(repository: Path) -> list[Path]:
    if not repository.is_dir():
        raise TargetError(f"{repository} is no folder; expected a model repository of Triton")
    found = sorted(each for each in repository.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not found:
        raise TargetError(f"{repository} has no models; expected folders, each with a config.pbtxt")
    return found


def _derived(found: Imported) -> float:
    """Return an SLO from what a row takes here, or there. Raises TargetError if the model does not run."""
    return derived_slo_ms(signature_of(found.target, {ALL: 1}, stated=found.signature).latency_ms)


def _text(found: Imported) -> str:
    return model_text(
        found.target, found.signature, {}, f"`penstock import` found this in {found.target.text}"
    )


def _say(found: Imported, slo_ms: float) -> None:
    backend = "asks Triton" if found.target.backend == "remote" else found.target.backend
    why = "its queue's timeout" if found.slo_ms else "as derived or stated"
    typer.echo(f"imported  {found.target.name}: {backend}, SLO {slo_ms:g} ms ({why})")
    for note in found.notes:
        typer.echo(f"          note: {note}")
