"""Finds extensions, which users add to profzoo from outside the checkout, and passes them to every process of a run.

An extension is a folder with any of these:

    figures/NAME.py        a figure, as profzoo/figures has them
    rules.yaml             rules for verdicts, and causes under `causes`
    words.yaml             words of the page and what they mean, by group
    sets.yaml              section sets of Nsight Compute, by name
    tools/NAME/            a tool, as profzoo/tools has them, and its rules of Snakemake in NAME.smk
    models/NAME.py         a model, as models/ has them

The configuration names extensions under `extensions`, as folders or importable packages; installed packages name their
own by an entry point of GROUP. The workflow calls `use` once, at its start. This sets the environment variable PASSED
to the folders as a JSON list; scripts, collecting jobs and measured processes inherit it. To run a model by hand with
extensions, set this variable. All other code calls `folders` or `files`.

The folder /home/me/lab is the package `profzoo.extensions.lab`: its files import each other by such names, and
`python -m profzoo.extensions.lab.tools.perf.sampler` runs one.
"""

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from profzoo.errors import ConfigError

# Makes this module a package, whose parts are the extensions.
__path__: list[str] = []
PASSED = "PROFZOO_EXTENSIONS"
GROUP = "profzoo.extensions"
CONTENTS = ("figures/*.py", "rules.yaml", "words.yaml", "sets.yaml", "tools/*/schema.yaml", "models/*.py")
# The value of PASSED that was last looked at, and the folders in it.
_in_use: dict[str, Any] = {}
WHERE = "a folder, or a package that can be imported"


def use(given: object = None) -> None:
    """Set the extensions of the configuration, and of installed packages, for this process and its children.

    given: the configuration's `extensions`, a list or a comma-separated text.

    Raises:
        ConfigError: a folder or package does not exist or has no content of an extension, or two have the same name.
    """
    asked = given.split(",") if isinstance(given, str) else (given or [])
    if not isinstance(asked, Sequence) or not all(isinstance(one, str) for one in asked):
        raise ConfigError(f"extensions = {given!r} is not a list of names: name each as {WHERE}")
    found = [_folder(one.strip(), f"extensions = '{one.strip()}'") for one in asked if one.strip()]
    for point in metadata.entry_points(group=GROUP):
        found.append(_folder(point.value, f"the installed extension '{point.name}' ({point.value})"))
    found = list(dict.fromkeys(found))
    names: dict[str, Path] = {}
    for folder in found:
        other = names.setdefault(extension_name(folder), folder)
        if other != folder:
            raise ConfigError(
                f"extensions: {other} and {folder} are both called '{extension_name(folder)}': rename one folder"
            )
    os.environ[PASSED] = json.dumps(list(map(str, found)))
    folders()


def folders() -> tuple[Path, ...]:
    """Return the folders of the extensions in use, in their order."""
    passed = os.environ.get(PASSED, "")
    if _in_use.get("passed") != passed:
        _in_use.update(passed=passed, folders=_registered(passed))
    return _in_use["folders"]


def inherited_variables() -> dict[str, str]:
    """Return the variable for a process that inherits only a few variables; empty without extensions."""
    return {PASSED: os.environ[PASSED]} if folders() else {}


def files(*patterns: str) -> tuple[Path, ...]:
    """Return the files that match patterns relative to an extension's folder, without hidden files of editors."""
    return tuple(
        path
        for folder in folders()
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
        if not path.name.startswith(".")
    )


def extension_name(folder: Path) -> str:
    """Return the name of the extension in a folder.

    >>> extension_name(Path("/home/me/my-lab"))
    'my_lab'
    """
    return re.sub(r"\W", "_", folder.name)


def find_extension(path: Path) -> Path | None:
    """Return the folder of the extension that contains a file; None for a file of no extension."""
    return next((folder for folder in folders() if path.is_relative_to(folder)), None)


def module_name(path: Path) -> str:
    """Return the dotted name by which a file of an extension is imported; empty for a file of no extension."""
    if not (folder := find_extension(path)):
        return ""
    parts = [part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"]
    return ".".join([__name__, extension_name(folder), *parts])


def split_module_name(dotted: str) -> tuple[Path, str] | None:
    """Return the folder of an extension, and the rest of a dotted name in it; None for modules of no extension."""
    prefix, _, rest = dotted.partition(f"{__name__}.")
    if prefix or not rest:
        return None
    first, _, inner = rest.partition(".")
    return next(((folder, inner) for folder in folders() if extension_name(folder) == first), None)


def refuse_clashes(what: str, found: Iterable[tuple[str, Path]], shipped: Iterable[str]) -> None:
    """Raise ConfigError for the first name that an extension shares with profzoo or with another extension.

    what: kind of thing, such as "figure". found: names with the files that define them. shipped: profzoo's own names.
    """
    taken = dict.fromkeys(shipped, "profzoo's own")
    for one, path in found:
        if one in taken:
            raise ConfigError(f"{path}: the {what} '{one}' has the name of {taken[one]}: give it another")
        taken[one] = f"that of {path}"


def _folder(asked: str, where: str) -> Path:
    path = Path(asked).expanduser()
    if not path.is_dir() and "/" not in asked and (package := _package(asked)):
        path = package
    if not path.is_dir():
        raise ConfigError(f"{where}: there is no such folder or package from {Path.cwd()}: give {WHERE}")
    path = path.resolve()
    if not extension_name(path).isidentifier():
        raise ConfigError(f"{where}: a folder called '{path.name}' cannot be imported: begin its name with a letter")
    if not any(any(path.glob(pattern)) for pattern in CONTENTS):
        raise ConfigError(f"{where}: {path} holds nothing of an extension: put in any of {', '.join(CONTENTS)}")
    return path


def _package(asked: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(asked)
    except (ImportError, AttributeError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _registered(passed: str) -> tuple[Path, ...]:
    """Return the folders in a value of PASSED, each made a package below this module; earlier packages are removed."""
    found = tuple(map(Path, json.loads(passed))) if passed else ()
    for old in [one for one in sys.modules if one.startswith(f"{__name__}.")]:
        del sys.modules[old]
    for folder in found:
        package = ModuleType(f"{__name__}.{extension_name(folder)}")
        package.__path__ = [str(folder)]
        sys.modules[package.__name__] = package
        setattr(sys.modules[__name__], extension_name(folder), package)
    return found


# Whoever imports a part of an extension imports this first.
folders()
