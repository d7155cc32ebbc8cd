"""Removes the files that the workflow made, then the folders that this leaves empty."""

from collections.abc import Iterable
from pathlib import Path


def main(made: Iterable[str], results: str) -> str:
    """Remove these files; returns how many there were, and how many files are left, in words."""
    paths = [Path(path) for path in made]
    for path in paths:
        path.unlink(missing_ok=True)
    root = Path(results)
    found = [root, *root.rglob("*")] if root.is_dir() else []
    folders = [path for path in found if path.is_dir() and not path.is_symlink()]
    for folder in sorted(folders, reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    left = sum(path.is_file() for path in root.rglob("*"))
    return f"removed {len(paths)} files" + (f"; left {left} that the workflow did not make" if left else "")
