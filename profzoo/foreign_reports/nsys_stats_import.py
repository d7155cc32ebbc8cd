"""Converts CSV of `nsys stats` to what profzoo makes of a report of nsys, as far as it goes."""

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import sidecars
from profzoo.foreign_reports.nsys_of_torch import (
    COPY_TABLE,
    PROCESS,
    SET_TABLE,
    copy_kind,
    create_tables,
    insert_rows,
)
from profzoo.foreign_reports.nsys_stats import AGAIN, TRACE, read_stats
from profzoo.io.scripts import write_csv, write_json
from profzoo.tools.ncu.raw_page import function_name
from profzoo.tools.nsys import TOOL
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.launches import CONFIGURATION
from profzoo.tools.nsys.trace import KERNEL_TABLE

ONLY_SUMS = "it is a summary: neither steps, nor ranges, nor idle time, nor calls are known of it, only sums by kernel"
COPY = ("[cuda memcpy", "[cuda memset")


def main(path: str, model: str, outputs: Mapping[str, str], say: Callable[[str], object] = print) -> None:
    """Read a summary of kernels; write the table `csv`, `steps` without rows, `told` beside the table, an export
    `sqlite` without rows, and its `sidecar`.

    Raises:
        DataError: the file cannot be used.
    """
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
