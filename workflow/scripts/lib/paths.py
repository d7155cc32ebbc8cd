"""Lets jobs import the project's modules wherever they run."""

import os
from pathlib import Path


def make_importable(folder: str) -> None:
    """Put the folder, and the current one, on PYTHONPATH for all processes that this one starts."""
    paths = [folder, str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
