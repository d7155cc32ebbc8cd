"""Finds the tables in what ncu printed as CSV, with a program's output around them, byte-order marks, or CRLF."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profzoo.errors import DataError

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


def decode(path: str | Path) -> str:
    """Return the text of a file, of UTF-8 or UTF-16, without a mark of the order of bytes.

    Raises:
        DataError: it cannot be read, or is no text.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if b"\0" in content[:4096] and encoding != "utf-16":
        raise DataError(f"{path} is no text: {PRINT_AGAIN}")
    return content.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def _read(text: str, separator: str) -> PrintedTable:
    """Read a table up to what is no row of it, such as the program's output behind it."""
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
    return PrintedTable(heading, units, rows)
