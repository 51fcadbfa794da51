"""`penstock new NAME`: a folder with a model that runs, its test and a load, to be changed."""

import re
from pathlib import Path

from router.settings.values.problems import fault, unknown_name
from router.verbs.target.errors import TargetError
from router.verbs.target.templates import FILES, STEPS
from router.verbs.target.writing import write_file

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def scaffold(name: str, kind: str) -> list[str]:
    """Write the folder NAME and return what to do next, in lines.

    Raises TargetError if the name cannot be that of a Python module, if the kind is unknown, or if the folder
    is there already.
    """
    if kind not in FILES:
        raise TargetError(unknown_name("--kind: unknown kind", kind, FILES))
    if not _NAME.fullmatch(name):
        expected = "letters, digits and _, not a digit first: it is the name of a Python module too"
        raise TargetError(fault("NAME is no name of a model", name, expected))
    folder = Path(name)
    if folder.exists():
        raise TargetError(f"{name} is there already; expected a name that no file has")
    for file, text in FILES[kind].items():
        write_file(folder / file.replace("NAME", name), text.replace("NAME", name))
    return [f"{name}/ has {', '.join(each.replace('NAME', name) for each in FILES[kind])}", f"cd {name}"] + [
        step.replace("NAME", name) for step in STEPS[kind]
    ]
