"""Reads call stacks of CPU samples and of calls of the operating system from an nsys export (SQLite)."""

import sqlite3
from collections.abc import Collection
from pathlib import PurePath

import numpy as np
import pandas as pd

from profzoo.tools.nsys.export_columns import sql_for_numbers
from profzoo.tools.nsys.trace import read_integers

# What stands for functions whose names nsys did not find, of which each address would be another one.
UNRESOLVED = "[unresolved]"
# Names that nsys gives to ends of stacks, which are no functions.
NO_FUNCTIONS = ("[Max depth]", "[Broken backtraces]")


def read_stacks(database: sqlite3.Connection, tables: set[str], table: str, stacks: Collection[int]) -> pd.DataFrame:
    """Return one row per function of these stacks: `stack`, `function`, `module`, `depth`; the innermost have depth 0.

    table: SAMPLING_CALLCHAINS or OSRT_CALLCHAINS, which an export may lack. stacks: numbers of its stacks. `module` is
    the name of the file without its folder.
    """
    columns = ["stack", "symbol", "module", "depth"]
    rows = np.empty((0, len(columns)), dtype=np.int64)
    if table in tables and len(stacks):
        taken = sql_for_numbers(database, table, ["id", "symbol", "module", "stackDepth"])
        query = f"SELECT {', '.join(taken.values())} FROM {table} WHERE {taken['id']} BETWEEN ? AND ?"
        rows = read_integers(database.execute(query, (min(stacks), max(stacks)))).reshape(-1, len(columns))
    frames = pd.DataFrame(rows, columns=columns)
    frames = frames[frames["stack"].isin(list(stacks))].sort_values(["stack", "depth"], ignore_index=True)
    used = {int(number) for number in np.unique(frames[["symbol", "module"]].to_numpy())}
    found = database.execute("SELECT id, value FROM StringIds")
    names = {number: str(value) for number, value in found if number in used}
    symbols = {number: names.get(number, UNRESOLVED) for number in frames["symbol"].unique().tolist()}
    modules = {number: PurePath(names.get(number, "")).name for number in frames["module"].unique().tolist()}
    functions = frames["symbol"].map(symbols).astype("str").str.replace(r"^0x[0-9a-f]+$", UNRESOLVED, regex=True)
    named = frames.assign(function=functions, module=frames["module"].map(modules).astype("str"))
    return named[~named["function"].isin(NO_FUNCTIONS)][["stack", "function", "module", "depth"]]
