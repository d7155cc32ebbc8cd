"""Reads what `nsys stats` printed as CSV: the summary of kernels, or the trace of all work of the GPU."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports.ncu_text import decode

SUMMARY, TRACE = "summary of kernels", "trace of the GPU"
UNITS = {
    "ns": 1,
    "nsec": 1,
    "us": 10**3,
    "usec": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "msec": 10**6,
    "s": 10**9,
    "sec": 10**9,
}
# Such as `Start (ns)`, `Start(nsec)` or, of a report's own format, `Start:ts_ns`.
UNIT = re.compile(r"\s*(?:\(|:(?:ts|dur|mem|thru)_)(\w+)\)?$")
# By what a column is, how its heading begins, in small letters and without its unit.
OF_SUMMARY = {"total_ns": ("total time",), "launches": ("instances", "kern inst"), "mean_ns": ("avg", "average"),
              "median_ns": ("med",), "min_ns": ("min",), "max_ns": ("max",), "std_ns": ("stddev",),
              "name": ("kernel name", "name"), "grid": ("gridxyz",), "block": ("blockxyz",)}  # fmt: skip
OF_TRACE = {"start": ("start",), "ns": ("duration",), "correlation": ("corrid",), "grid_x": ("grdx",),
            "grid_y": ("grdy",), "grid_z": ("grdz",), "block_x": ("blkx",), "block_y": ("blky",),
            "block_z": ("blkz",), "registers": ("reg/trd",), "stream": ("strm", "stream"), "device": ("device",),
            "name": ("name",)}  # fmt: skip
AGAIN = "print it again with `nsys stats --report cuda_gpu_kern_sum --format csv`, or cuda_gpu_trace"


@dataclass(frozen=True)
class PrintedStats:
    """A table of `nsys stats`: SUMMARY or TRACE, with columns of OF_SUMMARY or OF_TRACE, times in ns."""

    kind: str
    table: pd.DataFrame


def read_stats(path: str | Path) -> PrintedStats:
    """Return the table of kernels in a file, the trace of all work if it has that too.

    Raises:
        DataError: it holds neither, or a number that is none.
    """
    lines = decode(path).splitlines()
    for kind, columns, needed in ((TRACE, OF_TRACE, ("start", "ns", "grid_x", "name")),
                                  (SUMMARY, OF_SUMMARY, ("total_ns", "launches", "name"))):  # fmt: skip
        for place, line in enumerate(lines):
            heading = next(csv.reader([line]), [])
            known = _columns(heading, columns)
            if set(needed) <= set(known) and len(heading) > 3:
                rows = _rows("\n".join(lines[place + 1 :]), len(heading))
                if rows:
                    return PrintedStats(kind, _table(path, heading, known, rows))
    raise DataError(f"{path} holds no summary of kernels and no trace of the GPU as nsys prints them: {AGAIN}")


def _columns(heading: Sequence[str], wanted: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the place of each wanted column in a heading."""
    plain = [UNIT.sub("", name.strip().lower()).strip() for name in heading]
    found = {}
    for column, names in wanted.items():
        place = next((place for name in names for place, one in enumerate(plain) if one == name), None)
        if place is not None:
            found[column] = place
    return found


def _rows(text: str, width: int) -> list[list[str]]:
    """Return the rows of a table, up to the first line that is none of it."""
    found: list[list[str]] = []
    for row in csv.reader(io.StringIO(text)):
        if len(row) != width:
            break
        found.append([field.strip() for field in row])
    return found


def _table(
    path: str | Path, heading: Sequence[str], known: Mapping[str, int], rows: Sequence[Sequence[str]]
) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for column, place in known.items():
        texts = [row[place] for row in rows]
        if column in ("name", "grid", "block", "device"):
            columns[column] = texts
            continue
        unit = UNIT.search(heading[place].strip().lower())
        timed = column.endswith("ns") or column == "start"
        columns[column] = _numbers(path, heading[place], texts, UNITS.get(unit[1], 1) if unit and timed else 1)
    return pd.DataFrame(columns)


def _numbers(path: str | Path, name: str, texts: Sequence[str], factor: int) -> list[float | None]:
    try:
        return [float(text.replace(",", "")) * factor if text not in ("", "-") else None for text in texts]
    except ValueError as error:
        raise DataError(f"{path}: column {name} holds what is no number ({error}): {AGAIN}") from None
