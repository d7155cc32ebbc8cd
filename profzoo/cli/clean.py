"""Records the files that the workflow makes in the working folder, and removes them and empty folders.

Names tell nothing: the user's own files may look like the workflow's, and a model, variant or section set that another
command line named makes files that this one does not know.
"""

import argparse
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from profzoo import formatting
from profzoo.cell import settings
from profzoo.config.configuration import SHARED
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.formatting import format_count
from profzoo.machine import file_locks
from profzoo.records import atomic_writes

# A path a line, from the working folder, in the bytes that it has there, or in quotes as JSON has them; beside what
# Snakemake itself keeps.
RECORD = Path(".snakemake/profzoo/made.txt")
QUOTE = b'"'
# Folders of the results that have a folder for each model.
BY_MODEL = ("logs", "benchmarks")
# Number of models and folders that are named.
MOST_NAMED = 24


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


def name_models(told: Mapping[str, object], selected: Sequence[str], removing: bool) -> list[str]:
    """Return the models that the command line names, with or without variants; empty if it names none.

    told: what the command line sets. selected: the models that the configuration selects, which includes the former.
    removing: whether their results are to be removed.

    Raises:
        ConfigError: phases or tools are named as well, but only results of whole models can be removed.
    """
    if removing and (other := sorted({"phases", "tool"} & told.keys())):
        raise ConfigError(f"{' and '.join(other)} cannot be chosen here, only models: leave {' and '.join(other)} out")
    return list(selected) if "models" in told else []


def find_made(results: str, models: Sequence[str] = ()) -> dict[str, list[Path]]:
    """Return the existing recorded paths under the folder by what they belong to: a model, else a folder or file.

    models: names whose paths are wanted; a name without a variant stands for all variants. Empty for all paths.
    """
    root, below = Path(results), _below(Path(results))
    found: dict[str, list[Path]] = {}
    for path in read_recorded_paths():
        rest = below(path)
        if (
            rest is not None
            and _belongs(rest, models)
            and os.path.lexists(path)
            and _lies_below(Path(path), root, rest)
        ):
            found.setdefault(_owner(rest), []).append(Path(path))
    return found


def describe_made(results: str, models: Sequence[str] = ()) -> list[str]:
    """Return lines with what `remove_made` would remove: number of files and their size, by what they belong to."""
    found = find_made(results, models)
    if not found:
        return [explain_nothing(results, models)]
    sizes = {name: [size for path in paths for size in _sizes(path)] for name, paths in found.items()}
    rows = sorted(sizes.items(), key=lambda row: (-sum(row[1]), row[0]))
    width = max(len(name) for name in sizes)
    lines = [
        f"  {name:<{width}}  {format_count(len(mine), 'file'):>12}  {formatting.size(sum(mine)):>9}"
        for name, mine in rows
    ]
    if len(lines) > MOST_NAMED:
        lines = [*lines[:MOST_NAMED], f"  and {len(lines) - MOST_NAMED} more"]
    total = [size for mine in sizes.values() for size in mine]
    return [f"would remove {format_count(len(total), 'file')} of {results}, {formatting.size(sum(total))}:", *lines]


def explain_nothing(results: str, models: Sequence[str]) -> str:
    """Say in one line that there is nothing to remove, and what there is instead."""
    if not models:
        return f"{results} has no file that the workflow is known to have made"
    there = [name for name, paths in find_made(results).items() if (Path(results) / name).is_dir()]
    others = sorted({*there} - SHARED)
    instead = suggest_nearest(models[0], others) if others else "no model has results there"
    return f"{results} has no files of {', '.join(models)}; {instead}"


def remove_made(results: str, models: Sequence[str] = ()) -> str:
    """Remove the recorded files under the folder and their record.

    models: as for `find_made`; what all models share, such as tables, stays where they are given.

    Returns: how many files there were, and how many are left, in words.
    """
    root = Path(results)
    known, damaged = _read(RECORD.read_bytes()) if RECORD.exists() else ([], 0)
    below = _below(root)
    mine = {path: rest for path in known if (rest := below(path)) is not None and _belongs(rest, models)}
    if models and not find_made(results, models):
        return explain_nothing(results, models)
    removed = sum(_removed(Path(path), root, rest) for path, rest in mine.items())
    found = [root, *root.rglob("*")] if root.is_dir() else []
    folders = [path for path in found if path.is_dir() and not path.is_symlink()]
    for folder in sorted(folders, reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    if known or damaged:
        atomic_writes.write_synced(RECORD, b"".join(_line(path) for path in known if path not in mine))
    # The run that this is a job of holds the folder, and removes that at its end.
    held = root / file_locks.NAME
    left = sum(path.is_file() and path != held and _belongs(path.relative_to(root), models) for path in root.rglob("*"))
    said = f"removed {format_count(removed, 'file')}"
    said += f" of {', '.join(models)}" if models else ""
    if left:
        said += f"; left {left} that the workflow did not make"
        said += "" if mine else f", because {RECORD} lists none under {results}"
        said += f"; damaged lines of {RECORD}, which may have listed some: {damaged}" if damaged else ""
    return said


def _belongs(rest: Path, models: Sequence[str]) -> bool:
    """Whether a path below the results belongs to one of these models; to any, if none is given."""
    owner = _owner(rest)
    return not models or owner in models or settings.split_variant(owner)[0] in models


def _owner(rest: Path) -> str:
    """Name of what a path below the results belongs to: a model, or the folder or file itself.

    >>> _owner(Path("lstm@bf16/weights.pt")), _owner(Path("logs/lstm/weights.log")), _owner(Path("report.html"))
    ('lstm@bf16', 'lstm', 'report.html')
    """
    by_model = len(rest.parts) > 2 and rest.parts[0] in BY_MODEL
    return rest.parts[1 if by_model else 0] if rest.parts else ""


def _sizes(path: Path) -> list[int]:
    """Size in bytes of a file, or of each file in a folder."""
    if path.is_dir() and not path.is_symlink():
        return [file.lstat().st_size for file in path.rglob("*") if file.is_file()]
    return [path.lstat().st_size]


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
    if not _lies_below(path, root, rest):
        return 0
    if path.is_dir() and not path.is_symlink():
        count = sum(file.is_file() for file in path.rglob("*"))
        shutil.rmtree(path)
        return count
    there = path.is_symlink() or path.exists()
    path.unlink(missing_ok=True)
    return int(there)


def _lies_below(path: Path, root: Path, rest: Path) -> bool:
    """Whether a path lies in the results, and not in a folder that a link leads to, which is the user's."""
    return ".." not in rest.parts and (root.resolve() / rest).parent == path.parent.resolve()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.cli.clean", description=__doc__)
    parser.add_argument("results", help="the folder of results")
    parser.add_argument("--models", nargs="*", default=[], help="models to remove, with or without variants")
    options = parser.parse_args(arguments)
    print(remove_made(options.results, options.models))
    return 0


if __name__ == "__main__":
    sys.exit(main())
