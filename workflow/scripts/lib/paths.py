"""What jobs inherit from the process that starts them: where modules and programs are found, what spares HOME."""

import os
from pathlib import Path

# Otherwise ncu copies its section files to HOME as it starts, which jobs of several nodes may do at once.
NO_DEPLOYMENT = "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT"


def make_importable(folder: str) -> None:
    """Put the folder, and the current one, on PYTHONPATH for all processes that this one starts."""
    paths = [folder, str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def put_first(folder: str) -> None:
    """Put a folder of programs first in PATH, of this process and those that it starts."""
    os.environ["PATH"] = os.pathsep.join([folder, *os.environ.get("PATH", "").split(os.pathsep)])


def leave_home_alone() -> None:
    """Have ncu, of all processes that this one starts, read its section files where it is installed."""
    os.environ.setdefault(NO_DEPLOYMENT, "1")
