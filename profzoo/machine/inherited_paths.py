"""Sets the environment that jobs inherit: PYTHONPATH, PATH, and variables that keep tools out of HOME."""

import hashlib
import os
import shutil
import sys
import tempfile
from importlib.machinery import all_suffixes
from pathlib import Path

from profzoo.errors import ConfigError

# Of folders of links, from the folder that snakemake runs in.
LINKS = ".snakemake/profzoo/importable"
# Otherwise ncu copies its section files to HOME as it starts, which jobs of several nodes may do at once.
NO_DEPLOYMENT = "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT"


def make_importable(folder: str) -> None:
    """Put the folder, and the current one, on PYTHONPATH for all processes that this process starts.

    What is on it comes before Python's own modules, and `python -m` would put the current folder before all: a file
    called `profile.py` there must not take the place of Python's `profile`.
    """
    own = [str(shield_folder(Path(one))) for one in (folder, Path.cwd())]
    paths = [*own, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ["PYTHONSAFEPATH"] = "1"


def shield_folder(folder: Path) -> Path:
    """Folder to import modules from; links to the safe ones if some would hide Python's own modules.

    The links are in a folder below LINKS of the current one, which is made if need be; hidden files have none.
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
            # Another process has made it meanwhile.
            shutil.rmtree(partial)
    return place


def _hides(path: Path) -> bool:
    """Whether a module at this path has the name of a standard-library module."""
    name, dot, suffix = path.name.partition(".")
    module = f"{dot}{suffix}" in all_suffixes() or (path / "__init__.py").exists()
    return module and name in sys.stdlib_module_names


def put_first(folder: str) -> None:
    """Put a folder first in PATH, for this process and all that it starts."""
    os.environ["PATH"] = os.pathsep.join([folder, *os.environ.get("PATH", "").split(os.pathsep)])


def use_own_python() -> None:
    """Make `python` mean this interpreter for all processes that this process starts.

    So snakemake can be called by its path, without a virtual environment being active. Containers have a PATH and a
    Python of their own.

    Raises:
        ConfigError: there is no `python` beside that interpreter, and the one in PATH is another.
    """
    folder, found = Path(sys.executable).parent, shutil.which("python")
    if found and Path(found).parent.resolve() == folder.resolve():
        return
    if (folder / "python").exists():
        put_first(str(folder))
        return
    if not (found and sys.prefix == sys.base_prefix and Path(found).samefile(sys.executable)):
        raise ConfigError(
            f"snakemake runs by {sys.executable}, which is not the `python` that jobs would find "
            f"({found or 'there is none'}): run it in a virtual environment, such as that of `make env`"
        )


def leave_home_alone() -> None:
    """Make ncu, started below this process, read its section files from its installation, not from HOME."""
    os.environ.setdefault(NO_DEPLOYMENT, "1")
