"""Reads what a trace of nsys knows of the kernels whose counters ncu reports: their names and shared memory."""

import numpy as np
import pandas as pd

from profzoo.io import csv_tables
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.trace import KERNEL_TABLE, open_export

SHARED_MEMORY = ["smem_static_bytes", "smem_dynamic_bytes"]
GEOMETRY = [name for name in nsys_launches.CONFIGURATION if name not in (*SHARED_MEMORY, "registers")]


def read_names(traced: str) -> dict[str, str]:
    """Return the demangled names of kernels by their identity in a trace, or in a table of launches."""
    if traced.endswith(".csv"):
        table = csv_tables.read(traced, nsys_tables.TABLE)
        return dict(zip(table["mangled"], table["kernel"], strict=True))
    with open_export(traced) as (database, tables):
        return {own or shown: shown for own, shown, _ in nsys_launches.kernel_names(database, tables).values()}


def read_shared_memory(traced: str) -> dict[tuple[str | int, ...], tuple[int, int]]:
    """Return static and dynamic shared memory by kernel, grid and block, where a trace has one of each alone.

    A table of launches, of which nsys writes no shared memory, gives none.
    """
    if traced.endswith(".csv"):
        return {}
    with open_export(traced) as (database, tables):
        if KERNEL_TABLE not in tables:
            return {}
        names = nsys_launches.kernel_names(database, tables)
        launches = nsys_launches.read_launches(database, tables)
    launches = launches[launches["graph"] < 0]
    columns = nsys_launches.unpack_configurations(launches)
    numbers = next(values for name, values in columns.items() if name == "mangled")
    frame = pd.DataFrame({name: columns[name] for name in (*GEOMETRY, *SHARED_MEMORY)})
    frame.insert(0, "mangled", [names[number][0] or names[number][1] for number in np.asarray(numbers).tolist()])
    frame = frame.drop_duplicates()
    frame = frame[~frame.duplicated(["mangled", *GEOMETRY], keep=False)]
    keys = zip(*(frame[name].tolist() for name in ("mangled", *GEOMETRY)), strict=True)
    return dict(zip(keys, zip(*(frame[name].tolist() for name in SHARED_MEMORY), strict=True), strict=True))
