"""Reads what `nsys stats` printed as CSV: the summary of kernels, or the trace of all work of the GPU."""

import csv
import io
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import sidecars
from profzoo.foreign_reports.ncu_text import decode
from profzoo.foreign_reports.nsys_of_torch import COPY_TABLE, PROCESS, SET_TABLE, copy_kind, create_tables, insert_rows
from profzoo.io.scripts import write_csv, write_json
from profzoo.tools.ncu.raw_page import ValueFormatError, base_unit, function_name
from profzoo.tools.nsys import TOOL
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.events.launches import CONFIGURATION
from profzoo.tools.nsys.events.trace import KERNEL_TABLE
from profzoo.tools.nsys.steps import steps as nsys_steps

SUMMARY, TRACE = "summary of kernels", "trace of the GPU"
# Such as `Start (ns)`, `Start(nsec)` or, of a report's own format, `Start:ts_ns`.
UNIT = re.compile(r"\s*(?:\(|:(?:ts|dur|mem|thru)_)([^()]*?)\)?$")
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
    lines = decode(path, AGAIN).splitlines()
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
    factors = _factors(
        path, heading, {column: place for column, place in known.items() if column.endswith("ns") or column == "start"}
    )
    for column, place in known.items():
        texts = [row[place] for row in rows]
        if column in ("name", "grid", "block", "device"):
            columns[column] = texts
            continue
        columns[column] = _numbers(path, heading[place], texts, factors.get(column, 1))
    return _checked(path, pd.DataFrame(columns), max(factors.values()))


def _factors(path: str | Path, heading: Sequence[str], timed: Mapping[str, int]) -> dict[str, int]:
    """Return how many ns the unit of each column of times is.

    Versions of nsys that write no unit, of one or of all columns, print ns.

    Raises:
        DataError: a unit is none of time that is known.
    """
    found = {}
    for column, place in timed.items():
        unit = UNIT.search(heading[place].strip())
        try:
            base, factor = base_unit(unit[1]) if unit else ("ns", 1)
        except ValueFormatError:
            base, factor = "", 1
        if base != "ns":
            raise DataError(f"{path}: column {heading[place]!r} is in a unit of time that is not known: {AGAIN}")
        found[column] = factor
    return found


def _checked(path: str | Path, table: pd.DataFrame, unit_ns: int) -> pd.DataFrame:
    """Return a table of sums if they can be; raise DataError if one is below 0, or outside its least and most.

    unit_ns: the largest unit, to which numbers may be rounded.
    """
    if "total_ns" not in table:
        return table
    wrong = (table["total_ns"] < 0) | (table["launches"] < 1)
    if {"min_ns", "max_ns"} <= set(table):
        mean = table["total_ns"] / table["launches"].where(table["launches"] > 0)
        wrong |= (mean < table["min_ns"] * 0.99 - unit_ns) | (mean > table["max_ns"] * 1.01 + unit_ns)
    for row in table[wrong].head(1).itertuples():
        raise DataError(
            f"{path}: the sums of kernel {row.name[:60]} cannot be: {row.launches:,.0f} launches of "
            f"{row.total_ns:,.0f} ns in all, below 0 or outside the least and most of one: {AGAIN}"
        )
    return table


def _numbers(path: str | Path, name: str, texts: Sequence[str], factor: int) -> list[float | None]:
    try:
        return [float(text.replace(",", "")) * factor if text not in ("", "-") else None for text in texts]
    except ValueError as error:
        raise DataError(f"{path}: column {name} holds what is not a number ({error}): {AGAIN}") from None


# Converts CSV of `nsys stats` to what profzoo makes of a report of nsys, as far as it goes.

ONLY_SUMS = "it is a summary: neither steps, nor ranges, nor idle time, nor calls are known of it, only sums by kernel"
COPY = ("[cuda memcpy", "[cuda memset")


def import_stats(path: str, model: str, outputs: Mapping[str, str], say: Callable[[str], object] = print) -> None:
    """Read a summary of kernels; write the table `csv`, `steps` without rows, `told` beside the table, an export
    `sqlite` without rows, and its `sidecar`.

    Raises:
        DataError: the file cannot be used.
    """
    sidecars.refuse_other_tool(path, TOOL)
    found = read_stats(path).table
    table = _grouped(found)
    write_csv(table, outputs["csv"])
    write_csv(pd.DataFrame(columns=nsys_steps.COLUMNS), outputs["steps"])
    total = np.array([max(round(table["total_ns"].sum()), 1)], dtype=np.int64)
    steps = sidecars.step_facts("all kernels of the summary, added up", total, total) | {"whole": True}
    files = [sidecars.file_facts(path, "summary of nsys stats as CSV")]
    facts = sidecars.report_facts(TOOL, model, (sidecars.UNKNOWN_GPU, "cuda"), steps, files)
    facts["imported"]["coverage"] = [ONLY_SUMS]
    for name in ("told", "sidecar"):
        write_json(facts | {"capture": "window"}, outputs[name])
    with closing(sqlite3.connect(outputs["sqlite"])) as database:
        create_tables(database)
        database.commit()
    say(f"{path}: {len(table)} kernels; {ONLY_SUMS}")


def _grouped(found: pd.DataFrame) -> pd.DataFrame:
    """Return the table of launches that a summary tells, a row per kernel and, where it has them, grid and block."""
    table = found.reindex(columns=["name", "launches", *_TIMES, "grid", "block"])
    for what in ("grid", "block"):
        sizes = table[what].astype("object").fillna("").astype("str").str.findall(r"\d+")
        for place, axis in enumerate("xyz"):
            table[f"{what}_{axis}"] = [int(one[place]) if len(one) == 3 else 0 for one in sizes]
    table = table.assign(kernel=table["name"], mangled=table["name"], range="",
                         function=table["name"].map(function_name))  # fmt: skip
    table[[name for name in CONFIGURATION if name not in table]] = 0
    key = ["kernel", "mangled", "function", "range", *CONFIGURATION]
    alike = table.groupby(key, sort=False)
    made = alike.agg({"launches": "sum", "total_ns": "sum", "median_ns": "first", "min_ns": "min", "max_ns": "max",
                      "std_ns": "first"}).reset_index()  # fmt: skip
    several = (alike.size() > 1).to_numpy()
    # Of several rows in one, medians and deviations are not known.
    made.loc[several, ["median_ns", "std_ns"]] = np.nan
    made = made.astype({"launches": "int64"}).assign(mean_ns=made["total_ns"] / made["launches"])
    made["total_ns"] = made["total_ns"].round().astype("int64")
    made["share"] = made["total_ns"] / made["total_ns"].sum()
    ordered = made.sort_values(["total_ns", "kernel"], ascending=[False, True], ignore_index=True)
    return ordered[nsys_tables.COLUMNS]


_TIMES = ("total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns")


def write_trace(path: str, sqlite: str) -> None:
    """Write a trace of the GPU, as `nsys stats` prints it, as an export: work of the GPU without calls and ranges.

    Raises:
        DataError: the file cannot be used.
    """
    found = read_stats(path)
    if found.kind != TRACE:
        raise DataError(f"{path} holds a summary of kernels and no trace of the GPU: {AGAIN}")
    table = found.table
    copies = table["name"].str.lower().str.startswith(COPY)
    with closing(sqlite3.connect(sqlite)) as database:
        create_tables(database)
        names = {name: number for number, name in enumerate(dict.fromkeys(table["name"]), 1)}
        insert_rows(database, "StringIds", {"id": list(names.values()), "value": list(names)})
        devices = sorted(set(table["device"]) - {""}) if "device" in table else []
        database.execute("CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT)")
        # Such as `NVIDIA H200 (0)`.
        names_of_gpus = [re.sub(r"\s*\(\d+\)$", "", name) for name in devices]
        insert_rows(database, "TARGET_INFO_GPU", {"id": list(range(len(devices))), "name": names_of_gpus})
        kernels = table[~copies]
        number = kernels["name"].map(names).tolist()
        sizes = {column: _whole(kernels, name) for column, name in _SIZES.items()}
        alike = dict.fromkeys(("mangledName", "demangledName", "shortName"), number)
        insert_rows(database, KERNEL_TABLE, _shared(kernels) | alike | sizes)
        sets = table["name"].str.lower().str.startswith("[cuda memset")
        kinds = [copy_kind(name) for name in table.loc[copies & ~sets, "name"]]
        insert_rows(database, COPY_TABLE, _shared(table[copies & ~sets]) | {"copyKind": kinds})
        insert_rows(database, SET_TABLE, _shared(table[sets]))
        database.commit()


_SIZES = {"gridX": "grid_x", "gridY": "grid_y", "gridZ": "grid_z", "blockX": "block_x", "blockY": "block_y",
          "blockZ": "block_z", "registersPerThread": "registers"}  # fmt: skip


def _shared(table: pd.DataFrame) -> dict[str, Any]:
    start = table["start"].round().astype("int64")
    return {
        "start": start.tolist(), "end": (start + table["ns"].round().astype("int64")).tolist(),
        "correlationId": [None] * len(table), "globalPid": [PROCESS] * len(table),
        "streamId": _whole(table, "stream"),
    }  # fmt: skip


def _whole(table: pd.DataFrame, name: str) -> list[int]:
    if name not in table:
        return [0] * len(table)
    return [int(value) for value in pd.to_numeric(table[name], errors="coerce").fillna(0)]
