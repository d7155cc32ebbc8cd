"""What jobs inherit from the process that starts them: where modules and programs are found, what spares HOME."""

import os
import shutil
import sys
from pathlib import Path

from profzoo.errors import ConfigError

# Otherwise ncu copies its section files to HOME as it starts, which jobs of several nodes may do at once.
NO_DEPLOYMENT = "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT"


def make_importable(folder: str) -> None:
    """Put the folder, and the current one, on PYTHONPATH for all processes that this one starts."""
    paths = [folder, str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def put_first(folder: str) -> None:
    """Put a folder of programs first in PATH, of this process and those that it starts."""
    os.environ["PATH"] = os.pathsep.join([folder, *os.environ.get("PATH", "").split(os.pathsep)])


def use_own_python() -> None:
    """Have `python` be the interpreter that runs this, for all processes that this one starts.

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
    """Have ncu, of all processes that this one starts, read its section files where it is installed."""
    os.environ.setdefault(NO_DEPLOYMENT, "1")
