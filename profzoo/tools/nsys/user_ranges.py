"""Reads the NVTX ranges that a program opened itself from an nsys export (SQLite), and the launches made in them."""

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.range_names import DOMAIN, PREFIX
from profzoo.tools import user_ranges
from profzoo.tools.nsys import TOOL as TOOL
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys import launches_by_step
from profzoo.tools.nsys.export_columns import existing_columns, sql_for_numbers
from profzoo.tools.nsys.trace import (
    CALL_TABLE,
    PROCESS,
    PUSH_POP,
    RANGE_TEXT,
    START_END,
    open_export,
    read_integers,
    read_window_steps,
)
from profzoo.tools.user_ranges import NEVER, UserRanges

# Event type by which an export names a domain.
DOMAIN_NAMES = 75
# Domains of libraries, which annotate every program that uses them.
LIBRARIES = ("NCCL", "CCCL", "cuBLAS", "cuBLASLt", "cuDNN", "cuSPARSE", "cuSOLVER", "cuFFT", "NVSHMEM", "Thrust", "CUB")
# What emit_nvtx of torch writes for each operator, and nsys' own option for PyTorch; what NCCL does in a domain that
# the export does not name; and the ranges of profzoo.
OTHERS = re.compile(rf"{PREFIX}.*|module:[^:]*:\w+|.*, (seq|op_id|sizes) = .*|nccl[A-Z]\w*")
# The joint name of range and domain, as options of nsys have it.
AT = "@"


@dataclass(frozen=True)
class TracedRanges:
    """User ranges in a trace, and the launches of its steps.

    launches: `process`, `correlation`, `range` (the path, empty outside of all) and `ns` on the GPU, a row per kernel
    launch or CUDA graph traced as a whole. by_step: launches of kernels as launches_by_step has them, with `range` as
    `user_range`. steps: how many a process ran.
    """

    found: UserRanges
    launches: pd.DataFrame
    by_step: pd.DataFrame
    steps: int


def read_user_ranges(path: str | Path, whole_run: bool = False) -> TracedRanges | None:
    """Return the program's own ranges and the launches of the window's steps; None without such ranges or steps.

    whole_run: whether more was traced than the window.

    Raises:
        DataError: the file is no export of nsys.
    """
    with open_export(path) as (database, tables):
        if "NVTX_EVENTS" not in tables:
            return None
        ranges = _read_instances(database)
        steps = read_window_steps(database, tables, whole_run) if len(ranges) else pd.DataFrame()
        if steps.empty:
            return None
        found = user_ranges.nest_ranges(ranges, steps.assign(thread=_threads_of_steps(database, steps)))
        launches = nsys_launches.read_launches(database, tables, placed=True)
        launches = launches[~nsys_launches.is_outside_steps(launches, steps)].reset_index(drop=True)
        threads = _launching_threads(database, tables, launches)
    if found.ranges.empty:
        return None
    made = nsys_launches.launch_times(launches)
    paths = found.find_paths(made, launches["process"].to_numpy(), threads)
    launches = launches[["process", "correlation", "ns"]].assign(range=paths)
    by_step = launches_by_step.read_step_launches(path, whole_run, with_calls=True)
    known = launches.drop_duplicates(["process", "correlation"])[["process", "correlation", "range"]]
    by_step = by_step.merge(known.rename(columns={"range": "user_range"}), on=["process", "correlation"], how="left")
    by_step = by_step.assign(user_range=by_step["user_range"].fillna("")).drop(columns="correlation")
    return TracedRanges(found, launches, by_step, int(steps.groupby("process").size().max()))


def _read_instances(database: sqlite3.Connection) -> pd.DataFrame:
    """Return all ranges but those of profzoo and of libraries, with the columns of user_ranges."""
    thread = sql_for_numbers(database, "NVTX_EVENTS", ["globalTid"])["globalTid"]
    # The declared columns do not have it, as older exports are without.
    domain = "coalesce(domainId, 0)" if "domainId" in existing_columns(database, "NVTX_EVENTS") else "0"
    rows = database.execute(
        f"SELECT {RANGE_TEXT}, start, coalesce(end, start - 1), {thread}, {domain}, eventType FROM NVTX_EVENTS "
        f"WHERE eventType IN ({PUSH_POP}, {START_END})"
    ).fetchall()
    table = pd.DataFrame(rows, columns=["name", "start", "end", "thread", "domain", "kind"])
    domains = _read_domains(database, domain)
    ours = [DOMAIN, *LIBRARIES]
    theirs = table["name"].notna() & ~table["domain"].isin([one for one, name in domains.items() if name in ours])
    table = table[theirs & ~table["name"].astype("str").str.fullmatch(OTHERS)]
    # With a type of its own, as pandas takes an empty list for numbers, which it cannot append to strings of pyarrow.
    ends = pd.Series(
        [f"{AT}{domains[number]}" if number in domains else "" for number in table["domain"]], table.index, dtype="str"
    )
    return pd.DataFrame(
        {
            "name": table["name"].astype("str") + ends,
            "start": table["start"].astype("int64"),
            # What is open still when the trace ends has no end; exports of schema 2 have 0 then.
            "end": table["end"].astype("int64").where(table["end"] >= table["start"], NEVER),
            "process": table["thread"].astype("int64") & PROCESS,
            "thread": table["thread"].astype("int64"),
            "shared": table["kind"] == START_END,
        }
    ).reset_index(drop=True)


def _read_domains(database: sqlite3.Connection, domain: str) -> dict[int, str]:
    """Return the names of domains by number; domain: how SQL reads the number."""
    rows = database.execute(f"SELECT {domain}, {RANGE_TEXT} FROM NVTX_EVENTS WHERE eventType = {DOMAIN_NAMES}")
    return {number: name for number, name in rows if name}


def _threads_of_steps(database: sqlite3.Connection, steps: pd.DataFrame) -> np.ndarray:
    """Return the thread that opened each step."""
    thread = sql_for_numbers(database, "NVTX_EVENTS", ["globalTid"])["globalTid"]
    rows = database.execute(f"SELECT start, end, {thread} FROM NVTX_EVENTS WHERE eventType = {PUSH_POP}")
    known = {(start, end, number & PROCESS): number for start, end, number in rows}
    return np.array([known[key] for key in zip(steps["start"], steps["end"], steps["process"], strict=True)])


def _launching_threads(database: sqlite3.Connection, tables: set[str], launches: pd.DataFrame) -> np.ndarray:
    """Return the thread of each launching call; 0, which is none, where the call was not traced."""
    if CALL_TABLE not in tables:
        return np.zeros(len(launches), dtype=np.int64)
    read = sql_for_numbers(database, CALL_TABLE, ["correlationId", "globalTid"])
    rows = database.execute(f"SELECT {', '.join(read.values())} FROM {CALL_TABLE}")
    calls = pd.DataFrame(read_integers(rows).reshape(-1, 2), columns=["correlation", "thread"])
    calls = calls.assign(process=calls["thread"] & PROCESS).drop_duplicates(["process", "correlation"])
    threads = launches[["process", "correlation"]].merge(calls, on=["process", "correlation"], how="left")["thread"]
    return threads.fillna(0).astype("int64").to_numpy()
