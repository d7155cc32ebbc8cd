"""Records the files that the workflow makes in the working folder, and removes them and empty folders.

Names tell nothing: the user's own files may look like the workflow's, and a model, variant or section set that another
command line named makes files that this one does not know.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from profzoo.machine import results_lock

# A path a line, from the working folder, in the bytes that it has there, or in quotes as JSON has them; beside what
# Snakemake itself keeps.
RECORD = Path(".snakemake/profzoo/made.txt")
QUOTE = b'"'


def record_paths(paths: Iterable[str]) -> None:
    """Add these paths to the record, which is on the disk once this returns, before any of them is made."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(RECORD, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        # Some file systems have no locks; Snakemake's own keeps other runs out of the working folder.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        found = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        kept = found[: found.rfind(b"\n") + 1]
        known = set(_read(kept)[0])
        new = [path for path in dict.fromkeys(map(_from_here, paths)) if path not in known]
        _append(descriptor, len(kept), b"".join(map(_line, new)))
    finally:
        os.close(descriptor)
    _sync(RECORD.parent)


def read_recorded_paths() -> list[str]:
    """Recorded paths; empty without a record."""
    return _read(RECORD.read_bytes())[0] if RECORD.exists() else []


def main(results: str) -> str:
    """Remove the recorded files under the folder and their record.

    Returns: how many files there were, and how many are left, in words.
    """
    root = Path(results)
    known, damaged = _read(RECORD.read_bytes()) if RECORD.exists() else ([], 0)
    below = _below(root)
    mine = {path: rest for path in known if (rest := below(path)) is not None}
    removed = sum(_removed(Path(path), root, rest) for path, rest in mine.items())
    found = [root, *root.rglob("*")] if root.is_dir() else []
    folders = [path for path in found if path.is_dir() and not path.is_symlink()]
    for folder in sorted(folders, reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    if known or damaged:
        _replace([path for path in known if path not in mine])
    # The run that this is a job of holds the folder, and removes that at its end.
    left = sum(path.is_file() for path in root.rglob("*") if path != root / results_lock.NAME)
    said = f"removed {removed} files"
    if left:
        said += f"; left {left} that the workflow did not make"
        said += "" if mine else f", as far as is known here: {RECORD} names none under {results}"
        said += f"; {damaged} lines of {RECORD} were damaged, and may have named some" if damaged else ""
    return said


def _from_here(path: str) -> str:
    """Path relative to the working folder, without `..`, which links could lead elsewhere.

    >>> _from_here(f"{os.getcwd()}/results/a.csv"), _from_here("./results/../results/a.csv")
    ('results/a.csv', 'results/a.csv')
    """
    given = Path(path)
    return os.path.relpath(given.parent.resolve() / given.name if ".." in given.parts else given)


def _line(path: str) -> bytes:
    """Encode a path as one line, whatever characters it contains."""
    plain = os.fsencode(path)
    return (json.dumps(path).encode() if b"\n" in plain or plain.startswith(QUOTE) else plain) + b"\n"


def _read(content: bytes) -> tuple[list[str], int]:
    """Paths in a record, and the number of its damaged lines.

    A last line without its end was cut off as it was written, before any of its run's files were made. It may read like
    the name of a folder that is the user's.
    """
    paths, damaged = [], 0
    for line in filter(None, content.split(b"\n")[:-1]):
        try:
            path = json.loads(line) if line.startswith(QUOTE) else os.fsdecode(line)
        except ValueError:
            path = "\0"
        # No name has one, while what a disk lost with its power reads so.
        if "\0" in path:
            damaged += 1
        else:
            paths.append(path)
    return paths, damaged


def _append(descriptor: int, size: int, lines: bytes) -> None:
    """Append and sync these lines after `size` bytes of a file: all of them, or none."""
    os.ftruncate(descriptor, size)
    try:
        if (written := os.write(descriptor, lines)) < len(lines):
            os.write(descriptor, lines[written:])
    except OSError:
        os.ftruncate(descriptor, size)
        raise
    os.fsync(descriptor)


def _replace(paths: Iterable[str]) -> None:
    """Replace the record by these paths atomically."""
    new = RECORD.with_name(f"{RECORD.name}.new")
    with new.open("wb") as file:
        file.write(b"".join(map(_line, paths)))
        file.flush()
        os.fsync(file.fileno())
    new.replace(RECORD)
    _sync(RECORD.parent)


def _sync(folder: Path) -> None:
    """Sync a folder's list of names to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Not every file system can.
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _below(root: Path) -> Callable[[str], Path | None]:
    """Make a function that returns a path relative to this folder, resolving links; None if it is outside."""
    resolved = cache(os.path.realpath)
    there = resolved(root)

    def rest(path: str) -> Path | None:
        parents = [parent for parent in reversed(Path(path).parents) if resolved(parent) == there]
        return Path(path).relative_to(parents[0]) if parents else None

    return rest


def _removed(path: Path, root: Path, rest: Path) -> int:
    """Remove a path, or the files in it; returns how many files were removed.

    rest: where below the root it lies.
    """
    if ".." in rest.parts or (root.resolve() / rest).parent != path.parent.resolve():
        # In a folder that a link leads to, which is the user's.
        return 0
    if path.is_dir() and not path.is_symlink():
        count = sum(file.is_file() for file in path.rglob("*"))
        shutil.rmtree(path)
        return count
    there = path.is_symlink() or path.exists()
    path.unlink(missing_ok=True)
    return int(there)
