"""Finds the files of a cell's processes on several GPUs, each named by host and rank."""

from collections.abc import Iterable
from pathlib import Path

from profzoo.errors import DataError


def files_by_rank(paths: Iterable[Path], ending: str, processes: int, what: str) -> list[tuple[str, int, Path]]:
    """Return (host, rank, path) of each process of a cell, by rank; files are named `{host}.{rank}{ending}`.

    what: what the files are, for messages, such as `trace`.

    Raises:
        DataError: a process has no file, or several.
    """
    found = {}
    for path in paths:
        host, _, number = path.name.removesuffix(ending).rpartition(".")
        if not number.isascii() or not number.isdecimal() or int(number) in found:
            raise DataError(
                f"{path} is not named as the {what} of a process (HOST.RANK), or it occurs twice: delete it"
            )
        found[int(number)] = (host, int(number), path)
    missing = sorted(set(range(processes)) - set(found))
    if missing:
        raise DataError(f"{processes} processes, but no {what} of rank {', '.join(map(str, missing))}")
    return [found[number] for number in sorted(found)]
