"""Writes every table of a folder of results as Parquet, Arrow or JSON."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from profzoo.catalog import csv_files
from profzoo.catalog.csv_files import File
from profzoo.errors import DataError
from profzoo.io import table_formats


def list_tables(results: Path) -> Iterator[tuple[Path, File]]:
    """Yield each declared CSV of a folder of results, with its kind, sorted by path."""
    for path in sorted(results.rglob("*.csv")):
        found = csv_files.find_file(path.relative_to(results).as_posix())
        if found is not None:
            yield path, found[1]


def convert_tables(
    results: Path, folder: Path, format_: str, required: Collection[Path], say: Callable[[object], None]
) -> None:
    """Write every table below `results` into a folder, under its name with another ending.

    format_: one of table_formats.FORMATS. required: tables of the present run. Tables of earlier runs are written too;
    one that cannot be read is left out, which `say` tells.

    Raises:
        ConfigError: the package for the format is not installed.
        DataError: a required table does not match its declaration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path, kind in list_tables(results):
        name = path.relative_to(results)
        try:
            frame, table = csv_files.read_file(path, name.as_posix())
        except DataError as error:
            if path in required:
                raise
            say(f"warning: left out of tables.{format_}: {error}")
            continue
        target = folder / name.with_suffix(f".{format_}")
        target.parent.mkdir(parents=True, exist_ok=True)
        about = {"title": name.as_posix(), "holds": kind.holds, "row": kind.row}
        table_formats.write_table(frame, table, about, target, format_)


def main(results: str, folder: str, format_: str, required: Collection[str], say: Callable[[object], None]) -> None:
    """Write every table below `results` into a folder; paths are given as text."""
    convert_tables(Path(results), Path(folder), format_, set(map(Path, required)), say)
