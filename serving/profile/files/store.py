"""Profiles on disk: `profiles/<device kind>/<model>.<variant>.json` is committed; in
`profiles/local/<device kind>/` is what gateways on this machine measured by themselves. Of both the newest
counts, share by share.

A damaged, foreign or outdated file is named in `problems` and otherwise treated as absent.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from serving.profile.curve import Profile
from serving.profile.files.corun import CoRun
from serving.profile.files.corun import parse as parse_co_runs
from serving.profile.files.corun import render as render_co_runs
from serving.profile.files.document import parse, render
from serving.profile.files.shared_files import alone, read_regular, replace_file
from serving.profile.profiles import ProfileSet
from serving.values.slice_specs import Share

LOCAL = "local"
INTERFERENCE = "interference.json"


class ProfileStore:
    """Reads profiles and keeps what was measured here; `folder` is the project's `profiles/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []

    def read(self, device_kind: str, model: str, variant: str, share: Share) -> Profile | None:
        """Return the newest profile of that share, None where there is none."""
        found = self.read_set(device_kind, model, variant)
        return found.of(share) if found else None

    def read_set(self, device_kind: str, model: str, variant: str) -> ProfileSet | None:
        """Return the profiles of all shares; None where there is no sound file."""
        found: ProfileSet | None = None
        for root in (self.folder / LOCAL, self.folder):
            each = self._sound(root / device_kind / f"{model}.{variant}.json", (model, variant, device_kind))
            if each is not None:
                found = found.joined(each.profiles) if found else each
        return found

    def kinds(self) -> list[str]:
        """Return the device kinds that have profiles."""
        roots = (self.folder, self.folder / LOCAL)
        found = {path.name for root in roots if root.is_dir() for path in root.iterdir() if path.is_dir()}
        return sorted(found - {LOCAL})

    def sets(self, device_kind: str) -> list[ProfileSet]:
        """Return everything that is known of a device kind, by model and variant."""
        folders = (self.folder / device_kind, self.folder / LOCAL / device_kind)
        names = sorted({path.stem for folder in folders for path in folder.glob("*.*.json")})
        found = (self.read_set(device_kind, *name.split(".", 1)) for name in names)
        return [each for each in found if each is not None]

    def write_local(self, profile: Profile) -> Path:
        """Keep what this machine measured by itself by now, in the place of what it knew of that share."""
        origin = replace(profile.origin, measured=datetime.now(UTC).isoformat(timespec="seconds"))
        return self._write(self.folder / LOCAL, replace(profile, origin=origin))

    def write(self, profile: Profile) -> Path:
        """Keep what was measured to be committed, in the place of what was known of that share."""
        return self._write(self.folder, profile)

    def co_runs(self, device_kind: str) -> tuple[CoRun, ...]:
        """Return the measurements of variants that ran at the same time, () if there is no sound file."""
        path = self.folder / device_kind / INTERFERENCE
        try:
            return parse_co_runs(read_regular(path), device_kind)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except (OSError, ValueError) as error:
            self._complain(path, error)
            return ()

    def write_co_runs(self, device_kind: str, runs: Iterable[CoRun]) -> Path:
        """Keep `runs` to be committed, in the place of what was known of the same tenants side by side."""
        path = self.folder / device_kind / INTERFERENCE
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(self.folder):
            known = {(run.tenant, run.others): run for run in (*self.co_runs(device_kind), *runs)}
            replace_file(path, render_co_runs(device_kind, known.values()))
        return path

    def _write(self, root: Path, profile: Profile) -> Path:
        """Write the profile in one step, so that no reader sees half a file, and one writer after the other.
        Another slice or another gateway may store another share of the same variant at this moment."""
        path = root / profile.device_kind / f"{profile.model}.{profile.variant}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        identity = (profile.model, profile.variant, profile.device_kind)
        with alone(root):
            known = self._sound(path, identity) or ProfileSet(*identity, ())
            others = tuple(each for each in known.profiles if each.share != profile.share)
            content = render(ProfileSet(*identity, others).joined([profile]))
            replace_file(path, content)
        return path

    def _sound(self, path: Path, identity: tuple[str, str, str]) -> ProfileSet | None:
        try:
            return parse(read_regular(path), identity, str(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            self._complain(path, error)
            return None

    def _complain(self, path: Path, error: OSError | ValueError) -> None:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        problem = f"{path}: ignored: {why}"
        if problem not in self.problems:
            self.problems.append(problem)
