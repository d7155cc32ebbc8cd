"""Exports a section set of the ncu reports of a cell's processes to one tidy CSV: a row a launch, by host and rank."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from profzoo.errors import DataError
from profzoo.files import read_json, write_csv
from profzoo.tools.by_rank import by_rank
from profzoo.tools.ncu.export import tabulate


def main(
    pages: str, sidecar: str, census: str | None, launches: str | int, csv: str, say: Callable[[str], object] = print
) -> None:
    """Write the CSV.

    pages: folder of the printed pages, each named `{host}.{rank}.{mangled,demangled}.csv`. census: CSV of the first
    process's launches, of which the others have as many. launches: as of export_ncu.

    Raises:
        DataError: a process left no report, or has a metric in another unit than the others.
    """
    facts, frames = read_json(sidecar), []
    units: dict[str, tuple[int, str]] = {}
    ending = ".mangled.csv"
    printed = Path(pages).glob(f"*{ending}")
    for host, rank, path in by_rank(printed, ending, len(facts["ranks"]), "report"):
        both = [str(path), str(path).removesuffix(ending) + ".demangled.csv"]
        exported = tabulate(both, facts, census, launches)
        for note in exported.notes():
            say(f"{csv}, rank {rank}: {note}")
        for name, unit in exported.units.items():
            first, other = units.setdefault(name, (rank, unit))
            if unit != other:
                raise DataError(f"{csv}: rank {rank} has {name} in {unit}, rank {first} in {other}: profile them alike")
        table = exported.table
        table.insert(0, "host", host)
        table.insert(1, "rank", rank)
        frames.append(table)
    write_csv(pd.concat(frames, ignore_index=True), csv)
