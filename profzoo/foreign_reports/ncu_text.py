"""Finds the tables in what ncu printed as CSV, with a program's output around them, byte-order marks, or CRLF."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profzoo.errors import DataError
from profzoo.foreign_reports.sidecars import GZIP

PRINT_AGAIN = "print it again with `ncu --import REPORT --page raw --csv`"
# What a heading begins with, quoted or not; and lines of ncu's own.
HEADING = re.compile(r'^\s*"?ID"?\s*([,;\t])\s*"?[A-Za-z]')
NOISE = re.compile(r"^==[A-Z]+== ")
KERNEL, METRIC, UNIT, VALUE = "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"


@dataclass(frozen=True)
class PrintedTable:
    """A table of a file: heading, the row of units of a raw page (empty for other forms), and rows as printed.

    long: whether each row is of one metric.
    """

    heading: Sequence[str]
    units: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def long(self) -> bool:
        """Whether each row is of one metric, as on the details page."""
        return METRIC in self.heading


def find_tables(path: str | Path) -> list[PrintedTable]:
    """Return the tables of a file.

    Raises:
        DataError: it cannot be read, holds no table of ncu's, or one without rows.
    """
    lines = [line for line in decode(path).splitlines() if not NOISE.match(line)]
    starts = [place for place, line in enumerate(lines) if HEADING.match(line) and "Kernel Name" in line]
    if not starts:
        raise DataError(f"{path} holds no table of ncu's, whose heading has ID and Kernel Name: {PRINT_AGAIN}")
    found = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        table = _read("\n".join(lines[start:end]) + "\n", HEADING.match(lines[start])[1])  # type: ignore[index]
        if table.rows:
            found.append(table)
    if not found:
        raise DataError(f"{path} holds a heading and no launch: ncu profiled none, or the file is cut off")
    return found


def decode(path: str | Path, again: str = PRINT_AGAIN) -> str:
    """Return the text of a file, of UTF-8 or UTF-16, gzipped or not, without a mark of the order of bytes.

    again: how to make such a file.

    Raises:
        DataError: it cannot be read, or is not a text.
    """
    try:
        content = Path(path).read_bytes()
        content = gzip.decompress(content) if content.startswith(GZIP) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is cut off or damaged ({error}): copy it again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if b"\0" in content[:4096] and encoding != "utf-16":
        raise DataError(f"{path} is not a text: {again}")
    return content.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def _read(text: str, separator: str) -> PrintedTable:
    """Read a table up to what is not a row of it, such as the program's output behind it."""
    reader = csv.reader(io.StringIO(text), delimiter=separator)
    heading = [name.strip() for name in next(reader)]
    units: list[str] = []
    rows = []
    # Rows of metrics on a details page end with one empty field, those of rules with their own.
    for row in reader:
        if len(row) > len(heading) or len(row) < 2:
            continue
        full = [field.strip() for field in row] + [""] * (len(heading) - len(row))
        if full[0].isdecimal():
            rows.append(full)
        elif not full[0] and not rows and not units:
            units = full
    return PrintedTable(heading, units, _renumber(heading, rows))


def _renumber(heading: Sequence[str], rows: Sequence[list[str]]) -> Sequence[list[str]]:
    """Return rows whose launches have numbers of their own, where numbers begin again in another process or run.

    A number begins again where a row repeats it, and on a page with a row per metric the metric too.

    >>> rows = [["0", "11"], ["1", "11"], ["0", "12"], ["0", "12"]]
    >>> [row[0] for row in _renumber(["ID", "Process ID"], rows)]
    ['0', '1', '2', '3']
    """
    of_process, of_metric = (
        [heading.index(name) for name in names if name in heading]
        for names in (("Process ID", "Host Name"), ("Section Name", METRIC))
    )
    runs: dict[tuple[str, ...], tuple[int, str, set[tuple[str, ...]]]] = {}
    keys = []
    for row in rows:
        process, told = tuple(row[at] for at in of_process), (row[0], *(row[at] for at in of_metric))
        run, last, seen = runs.get(process, (0, "", set()))
        if told in seen and (not of_metric or (last != row[0] and told[-1])):
            run, seen = run + 1, set()
        seen.add(told)
        runs[process] = run, row[0], seen
        keys.append((process, run, row[0]))
    numbers = {key: str(place) for place, key in enumerate(dict.fromkeys(keys))}
    if len(numbers) == len({row[0] for row in rows}):
        return rows
    return [[numbers[key], *row[1:]] for key, row in zip(keys, rows, strict=True)]
