"""Keeps a record of what the workflow makes in the working folder, and removes that, then the folders left empty.

Names tell nothing: the user's own files may look like the workflow's, and a model, variant or section set that another
command line named makes files that this one does not know.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from profzoo.machine import results_lock

# A path a line, relative to the working folder; beside what Snakemake itself keeps there.
RECORD = Path(".snakemake/profzoo/made.txt")


def note(paths: Iterable[str]) -> None:
    """Add these paths to the record."""
    known = set(recorded())
    new = [path for path in dict.fromkeys(paths) if path not in known]
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    with RECORD.open("a", encoding="utf-8") as file:
        file.write("".join(f"{path}\n" for path in new))


def recorded() -> list[str]:
    """The paths of the record; none without one."""
    return RECORD.read_text(encoding="utf-8").splitlines() if RECORD.exists() else []


def main(results: str) -> str:
    """Remove what is recorded under the folder, and forget it.

    Returns: how many files there were, and how many are left, in words.
    """
    root, known = Path(results), recorded()
    mine = [path for path in known if Path(path).is_relative_to(root)]
    removed = sum(_removed(Path(path), root) for path in mine)
    found = [root, *root.rglob("*")] if root.is_dir() else []
    folders = [path for path in found if path.is_dir() and not path.is_symlink()]
    for folder in sorted(folders, reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    if known:
        RECORD.write_text("".join(f"{path}\n" for path in known if path not in set(mine)), encoding="utf-8")
    # The run that this is a job of holds the folder, and removes that at its end.
    left = sum(path.is_file() for path in root.rglob("*") if path != root / results_lock.NAME)
    said = f"removed {removed} files"
    if left:
        said += f"; left {left} that the workflow did not make"
        said += "" if mine else f", as far as is known here: {RECORD} names none under {results}"
    return said


def _removed(path: Path, root: Path) -> int:
    """How many files were removed with a path: itself, or those of the folder that it is."""
    if (root.resolve() / path.relative_to(root)).parent != path.parent.resolve():
        # In a folder that a link leads to, which is the user's.
        return 0
    if path.is_dir() and not path.is_symlink():
        count = sum(file.is_file() for file in path.rglob("*"))
        shutil.rmtree(path)
        return count
    there = path.is_symlink() or path.exists()
    path.unlink(missing_ok=True)
    return int(there)
