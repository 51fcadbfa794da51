"""`python -m serving.compiled`: compile what decides, unless that has been done from these very sources."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import chdir
from pathlib import Path

from serving.compiled import GROUP, ROOT, folder, sources

KEPT = 6  # compiled versions beside each other: of branches that one goes to and fro between

OPTIONS = ("--config-file=", "--explicit-package-bases", "--ignore-missing-imports")
"""What mypyc passes to mypy: no package of type stubs is needed, because only `make test` installs these.

`make lint` checks the types strictly. An error here would leave the code interpreted.
"""

BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup
group, scratch, *arguments = sys.argv[1:]
arguments.append(f"--cache-dir={scratch}/mypy")
extensions = mypycify(arguments, group_name=group, target_dir=f"{scratch}/c", opt_level="2")
setup(
    name="compiled",
    ext_modules=extensions,
    script_args=["-q", "build_ext", f"--build-temp={scratch}/temp", f"--build-lib={scratch}/lib"],
)
"""
"""A process of its own: mypyc holds some 0.5 GB, and setuptools wants a program's arguments."""


def obstacle() -> str:
    """Return why nothing can be compiled here; "" where it can."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if not header.exists():
        return f"there is no {header} (Debian and Ubuntu have it in the package python3-dev)"
    return ""


def build() -> str:
    """Compile; returns what went wrong, "" where nothing has."""
    where = folder()
    where.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=where.parent) as scratch, chdir(ROOT):
        command = [sys.executable, "-c", BUILD, GROUP, scratch, *OPTIONS, *map(str, sources())]
        # Python's own flags ask for debug information, which takes a third of the time.
        # Names of symbols, which no one reads, are half of the file.
        flags = {
            "CFLAGS": f"{os.environ.get('CFLAGS', '')} -g0",
            "LDFLAGS": f"{os.environ.get('LDFLAGS', '')} -s",
        }
        environment = {**os.environ, **flags}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            return (done.stdout + done.stderr)[-4000:]
        shutil.rmtree(where, ignore_errors=True)
        Path(scratch, "lib").rename(where)
    others = sorted(where.parent.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in others[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return ""


def main() -> int:
    """Say in a line what is done; nothing where it was done before."""
    if folder().exists():
        return 0
    reason = obstacle()
    if reason:
        print(f"    {reason}: decisions are interpreted, which takes twice the time")
        return 0
    print("==> decisions as machine code (mypyc and the C compiler, a minute or two)", flush=True)
    failure = build()
    if failure:
        print(f"{failure}\n    they could not be compiled: they are interpreted, which takes twice the time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
