"""The files that the processes of a cell on several GPUs leave, each named by host and rank."""

from collections.abc import Iterable
from pathlib import Path

from profzoo.errors import DataError


def files_by_rank(paths: Iterable[Path], ending: str, processes: int, what: str) -> list[tuple[str, int, Path]]:
    """Host, rank and file of each of a cell's processes, by rank; files are named `{host}.{rank}{ending}`.

    Raises:
        DataError: a process has none, or several; the message calls it by what it is.
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
