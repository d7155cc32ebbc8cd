"""Sets the environment that jobs inherit: PYTHONPATH, PATH, and variables that keep tools out of HOME."""

import hashlib
import os
import shutil
import sys
import tempfile
from importlib.machinery import all_suffixes
from pathlib import Path

from profzoo.errors import ConfigError

# Folder for folders of links, relative to the folder that snakemake runs in.
LINKS = ".snakemake/profzoo/importable"
# Without this variable ncu copies its section files to HOME when it starts, and jobs on several nodes may collide.
NO_DEPLOYMENT = "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT"


def make_importable(folder: str) -> None:
    """Put the folder and the current folder on PYTHONPATH for all processes that this process starts.

    A file called `profile.py` in these folders must not hide Python's own module `profile`. PYTHONPATH comes before
    Python's own modules, so it gets folders of links without such files. PYTHONSAFEPATH keeps `python -m` from putting
    the current folder first.
    """
    own = [str(shield_folder(Path(one))) for one in (folder, Path.cwd())]
    paths = [*own, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ["PYTHONSAFEPATH"] = "1"


def shield_folder(folder: Path) -> Path:
    """Return a folder from which the folder's modules can be imported without hiding modules of Python.

    It is the folder itself if no name in it equals a module of Python. Otherwise it is a folder of links to the other
    files, without hidden files, which is created below LINKS in the current folder.
    """
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith((".", "__pycache__")))
    kept = [name for name in names if not _hides(folder / name)]
    if kept == names:
        return folder
    digest = hashlib.blake2b("\0".join([str(folder), *kept]).encode(errors="surrogateescape"), digest_size=8)
    place = Path.cwd() / LINKS / digest.hexdigest()
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=place.parent))
        for name in kept:
            (partial / name).symlink_to(folder.resolve() / name)
        try:
            partial.rename(place)
        except OSError:
            # Another process has created the folder in the meantime.
            shutil.rmtree(partial)
    return place


def _hides(path: Path) -> bool:
    """Whether this path is a module with the name of a standard-library module."""
    name, dot, suffix = path.name.partition(".")
    module = f"{dot}{suffix}" in all_suffixes() or (path / "__init__.py").exists()
    return module and name in sys.stdlib_module_names


def put_first(folder: str) -> None:
    """Put a folder first in PATH, for this process and all processes that it starts."""
    os.environ["PATH"] = os.pathsep.join([folder, *os.environ.get("PATH", "").split(os.pathsep)])


def use_own_python() -> None:
    """Make `python` mean this interpreter for all processes that this process starts.

    With this, snakemake can be called by its path without an active virtual environment. Containers are not affected,
    because they have a PATH and a Python of their own.

    Raises:
        ConfigError: there is no `python` beside this interpreter, and `python` in PATH is another interpreter.
    """
    folder, found = Path(sys.executable).parent, shutil.which("python")
    if found and Path(found).parent.resolve() == folder.resolve():
        return
    if (folder / "python").exists():
        put_first(str(folder))
        return
    if not (found and sys.prefix == sys.base_prefix and Path(found).samefile(sys.executable)):
        raise ConfigError(
            f"snakemake runs under {sys.executable}, which is not the `python` on PATH that jobs run "
            f"({found or 'there is none'}): run it in a virtual environment, such as that of `make env`"
        )


def leave_home_alone() -> None:
    """Make ncu, started below this process, read its section files from its installation, not from HOME."""
    os.environ.setdefault(NO_DEPLOYMENT, "1")
