"""Names the files of the workflow: those beside the package in a checkout, and those that an installed package holds.

setup.py runs this file before the package can be imported, so it imports nothing from the package.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

# Folder of an installed package in which setup.py puts the files.
INSTALLED = "project_files"
# Neither is part of the project: the bytecode of its modules, and what a run leaves.
LEFT_OUT = {"__pycache__", ".snakemake"}


def find_folder(package: Path) -> Path:
    """Find the folder with the files of the workflow: within an installed package, or above a checkout's."""
    installed = package / INSTALLED
    return installed if installed.is_dir() else package.parent


def list_files(folder: Path) -> list[Path]:
    """List the files that a new folder gets besides the package, relative to the folder that contains them.

    pyproject.toml names them by patterns.

    Raises:
        FileNotFoundError: no file has the name that a pattern asks for, or there is no pyproject.toml.
    """
    patterns = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["profzoo"]["new-folder"]
    found: set[Path] = set()
    for pattern in patterns:
        matched = list(folder.glob(pattern))
        if not matched:
            raise FileNotFoundError(f"{folder} has no {pattern}, which pyproject.toml lists")
        found.update(file for path in matched for file in list_folder(path))
    return sorted(path.relative_to(folder) for path in found)


def list_folder(path: Path) -> Iterator[Path]:
    """Yield the files of a folder, or a file itself."""
    if path.is_file():
        yield path
    elif path.name not in LEFT_OUT and path.name != INSTALLED:
        for inner in path.iterdir():
            yield from list_folder(inner)
