"""Reads from an nsys export (SQLite) what threads of the host did: calls, context switches, samples and names."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

import numpy as np
import pandas as pd

from profzoo.range_names import STEP, make_nvtx_name
from profzoo.tools.nsys.export_columns import UNKNOWN, existing_columns, sql_for_numbers
from profzoo.tools.nsys.timeline import LAUNCHING
from profzoo.tools.nsys.trace import (
    CALL_TABLE,
    PROCESS,
    PUSH_POP,
    RANGE_TEXT,
    open_export,
    read_integers,
    read_window_steps,
)

SYSTEM_CALLS, SWITCHES, SAMPLES = "OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS"
CALL_CHAINS, SAMPLE_CHAINS, THREAD_NAMES = "OSRT_CALLCHAINS", "SAMPLING_CALLCHAINS", "ThreadNames"
# By `--osrt-file-access=true` of newer releases.
FILE_ACCESSES, FILES = "OSRT_FILE_ACCESS_EVENTS", "OSRT_FILE_ACCESS_DESCRIPTORS"
# Columns without which a table says nothing.
NEEDED: Mapping[str, Sequence[str]] = {
    SYSTEM_CALLS: ("start", "end", "globalTid", "nameId"),
    SWITCHES: ("start", "isSchedIn", "globalTid"),
    SAMPLES: ("id", "start", "globalTid"),
    SAMPLE_CHAINS: ("id", "symbol", "module", "stackDepth"),
}
# What collects a table, for users who have not set it.
COLLECTED_BY: Mapping[str, str] = {
    SYSTEM_CALLS: "have osrt in nsys.traces",
    SWITCHES: "set nsys.cpuctxsw to process-tree",
    SAMPLES: "set nsys.sample to process-tree",
}
# What is unknown without a table, and what collects it.
LACKING: Mapping[str, str] = {
    SYSTEM_CALLS: "calls of the operating system, so it is unknown what threads waited for: "
    + COLLECTED_BY[SYSTEM_CALLS],
    SWITCHES: f"context switches, so time on and off the CPU is unknown: {COLLECTED_BY[SWITCHES]}",
    SAMPLES: f"CPU samples, so it is unknown which functions ran: {COLLECTED_BY[SAMPLES]}",
}
# Threads that nsys and CUPTI start within a traced process. They do nothing for it and are left out.
THREADS_OF_TOOLS = ("[NSys]", "[NSys Comms]", "CUPTI worker thread")
# The bits of a globalTid that name the thread; 0 where the export does not know it.
THREAD = 0xFFFFFF


@dataclass(frozen=True)
class HostEvents:
    """What threads of the host did in a trace; times in ns; a thread is nsys's globalTid.

    Attributes:
        steps: `process`, `step` (counted from 0 in each process), `start`, `end` and `thread`, which ran it.
        os_calls: `thread`, `start`, `end`, `name` and `chain`, a row per call of the operating system's libraries that
            no other call of its thread contains. chain: the number of the call stack, 0 for none.
        cuda_calls: the same of CUDA calls, without `chain`; names without their versions.
        switches: `thread`, `start`, `cpu`, `enters` (1 where the thread comes to the CPU, 0 where it leaves), and
            `state` in which it leaves (export_columns.UNKNOWN where the export does not say).
        samples: `thread`, `start` and `sample`, the number of the sample.
        files: `number`, `start`, `end` and `file`, a row per access to a file: the thread's number in the operating
            system, and the file's name without its folder. Only newer releases of nsys record them, where asked for.
        cuda: whether the trace has calls of CUDA; none where none was made, and where they were not traced.
        names: names of threads.
        lacking: tables of the export that were not recorded or cannot be used, each with what is unknown without it.
    """

    steps: pd.DataFrame
    os_calls: pd.DataFrame
    cuda_calls: pd.DataFrame
    switches: pd.DataFrame
    samples: pd.DataFrame
    files: pd.DataFrame
    cuda: bool
    names: Mapping[int, str]
    lacking: Mapping[str, str]

    def identify(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table with the numbers of process and thread instead of nsys's `thread`, and the thread's `name`."""
        whole = table["thread"].to_numpy(dtype=np.int64)
        named = [self.names.get(number, "") for number in whole.tolist()]
        return table.assign(process=whole >> 24 & 0xFFFFFF, thread=whole & THREAD, name=named)


def read_host_events(path: str | Path, whole_run: bool = False) -> HostEvents:
    """Return what threads of the host did in a trace with the window's steps.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is no export of nsys.
    """
    with open_export(path) as (database, tables):
        steps = _steps(database, tables, whole_run)
        return replace(read_threads(database, tables), steps=steps)


def read_threads(database: sqlite3.Connection, tables: set[str], unread: Collection[str] = ()) -> HostEvents:
    """Return what threads did, without steps; for a connection that is open. unread: tables that nobody needs.

    Threads of nsys itself are left out.
    """
    lacking = {table: why for table in LACKING if (why := explain_missing(database, tables, table))}
    names = {int(number): str(value) for number, value in database.execute("SELECT id, value FROM StringIds")}
    usable = tables - set(lacking) - set(unread)
    calls = _numbers(database, usable, SYSTEM_CALLS, ["globalTid", "start", "end", "nameId", "callchainId"])
    calls = calls[calls["end"] > calls["start"]]
    cuda = _numbers(database, usable, CALL_TABLE, ["globalTid", "start", "end", "nameId"])
    samples = _numbers(database, usable, SAMPLES, ["globalTid", "start", "id", "cpuCycles"])
    switches = _numbers(database, usable, SWITCHES, ["globalTid", "start", "cpu", "isSchedIn", "threadState"])
    threads = _numbers(database, tables, THREAD_NAMES, ["globalTid", "nameId"])
    known = {int(thread): names.get(int(name), "") for thread, name in threads.itertuples(index=False)}
    of_tools = [thread for thread, name in known.items() if name in THREADS_OF_TOOLS]
    calls, cuda, samples, switches = (
        events[~events["globalTid"].isin(of_tools)] for events in (calls, cuda, samples, switches)
    )
    return HostEvents(
        steps=pd.DataFrame(columns=["process", "step", "start", "end", "thread"], dtype="int64"),
        os_calls=_outermost(_named(calls, names)).assign(chain=lambda held: held["chain"].clip(lower=0)),
        cuda_calls=_outermost(_named(cuda, names)),
        switches=_ordered(switches).assign(enters=lambda held: (held["enters"] != 0).astype("int64")),
        # Other stacks are of context switches, not of what ran.
        samples=_ordered(samples[samples["cpuCycles"] != 0])[["thread", "start", "sample"]],
        files=_files(database, tables - set(unread)),
        cuda=CALL_TABLE in tables,
        names=known,
        lacking=lacking,
    )


def explain_missing(database: sqlite3.Connection, tables: set[str], table: str) -> str | None:
    """Return why nothing can be read from a table of LACKING, or None."""
    if table not in tables:
        return f"the trace holds no {LACKING[table]}"
    absent = [name for name in NEEDED[table] if name not in existing_columns(database, table)]
    return f"the export's table {table} has no column {absent[0]}, so it counts as not recorded" if absent else None


def launching_calls(calls: pd.DataFrame, process: int, span: tuple[int, int]) -> pd.DataFrame:
    """Return the CUDA calls of a process that launch work within a span of ns, in the order of their ends.

    calls: HostEvents.cuda_calls.
    """
    own = (calls["thread"] & PROCESS == process) & (calls["end"] > span[0]) & (calls["start"] < span[1])
    mine = calls[own]
    return mine[mine["name"].str.startswith(LAUNCHING)].sort_values("end", kind="stable")


def _numbers(database: sqlite3.Connection, tables: set[str], table: str, columns: Sequence[str]) -> pd.DataFrame:
    """Return integer columns of a table, a row per entry; no row without the table."""
    if table not in tables:
        return pd.DataFrame(columns=list(columns), dtype="int64")
    taken = sql_for_numbers(database, table, columns)
    rows = database.execute(f"SELECT {', '.join(taken.values())} FROM {table}")
    found = pd.DataFrame(read_integers(rows).reshape(-1, len(columns)), columns=list(columns))
    if "globalTid" not in found:
        return found
    # Thread 0 is none: the kernel's idle one, or one that the export does not know.
    return found[(found["globalTid"] & THREAD != 0) & (found["globalTid"] != UNKNOWN)]


def _files(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """Return accesses to files by thread and start, as HostEvents has them."""
    columns = {"threadId": "number", "startedAt": "start", "endedAt": "end", "fileAccessId": "file"}
    found = _numbers(database, tables, FILE_ACCESSES, list(columns)).rename(columns=columns)
    names: dict[int, str] = {}
    if FILES in tables and {"fileAccessId", "filePath"} <= existing_columns(database, FILES):
        # Names of files may hold any bytes.
        rows = database.execute(f"SELECT fileAccessId, CAST(filePath AS BLOB) FROM {FILES}")
        names = {number: PurePath((path or b"").decode(errors="replace")).name for number, path in rows}
    texts = {number: names.get(number, "") for number in found["file"].unique().tolist()}
    named = found.assign(file=found["file"].map(texts).astype("str"), number=found["number"] & THREAD)
    return named.sort_values(["number", "start"], kind="stable", ignore_index=True)


def _named(calls: pd.DataFrame, names: Mapping[int, str]) -> pd.DataFrame:
    texts = {number: names.get(number, "") for number in calls["nameId"].unique().tolist()}
    shown = calls["nameId"].map(texts).astype("str").str.replace(r"_v\d+$", "", regex=True)
    return calls.assign(name=shown).drop(columns="nameId")


def _ordered(events: pd.DataFrame) -> pd.DataFrame:
    """Return events under the names that HostEvents has, by thread and start."""
    named = {"globalTid": "thread", "callchainId": "chain", "isSchedIn": "enters", "threadState": "state"}
    return events.rename(columns=named | {"id": "sample"}).sort_values(
        ["thread", "start"], kind="stable", ignore_index=True
    )


def _outermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Return the calls that no other call of their thread contains, by thread and start."""
    found = _ordered(calls.sort_values("end", ascending=False, kind="stable"))
    reached = found.groupby("thread")["end"].transform(lambda ends: ends.cummax().shift(fill_value=-(2**62)))
    return found[found["end"] > reached].reset_index(drop=True)


def _steps(database: sqlite3.Connection, tables: set[str], whole_run: bool) -> pd.DataFrame:
    """Return the window's steps with their number and the thread that ran each; UNKNOWN where no export says it."""
    steps = read_window_steps(database, tables, whole_run)[["process", "start", "end"]]
    numbered = steps.assign(step=steps.groupby("process").cumcount())
    if "NVTX_EVENTS" not in tables:
        return numbered.assign(thread=UNKNOWN).astype("int64")
    thread = sql_for_numbers(database, "NVTX_EVENTS", ["globalTid"])["globalTid"]
    rows = database.execute(
        f"SELECT {thread} & {PROCESS}, start, {thread} FROM NVTX_EVENTS WHERE eventType = ? AND {RANGE_TEXT} = ?",
        (PUSH_POP, make_nvtx_name(STEP)),
    ).fetchall()
    ran = {(process, start): number for process, start, number in rows if number & THREAD}
    found = [ran.get(key, UNKNOWN) for key in zip(numbered["process"], numbered["start"], strict=True)]
    return numbered.assign(thread=found).astype("int64")
