"""Writes the launches and calls of an imported torch.profiler trace as an export of Nsight Systems.

Kernel tables, idle time by cause, what-if simulation and verdicts are made of such an export. So a trace of
torch.profiler alone, which holds the same events, gives them all.
"""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from profzoo.foreign_reports.torch_import import NO_CALL
from profzoo.io.scripts import read_json, write_json
from profzoo.range_names import PARTS, STEP, make_nvtx_name
from profzoo.tools.nsys import TOOL
from profzoo.tools.nsys.events.export_columns import READ, TEXTS
from profzoo.tools.nsys.events.trace import CALL_TABLE, KERNEL_TABLE, PUSH_POP
from profzoo.tools.torch import losses, trace

COPY_TABLE, SET_TABLE = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
# A process of some number; a trace of torch.profiler has one.
PROCESS = 1 << 24
# CUPTI's kinds of copies, by what stands in their names.
KINDS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "DtoD": 8, "HtoH": 9, "PtoP": 10}
WORD, SPELLED_OUT = re.compile(r"\w+"), re.compile(r"(Host|Device|Array|Peer)-to-(Host|Device|Array|Peer)")
GRIDS = {"gridX": "grid_x", "gridY": "grid_y", "gridZ": "grid_z", "blockX": "block_x", "blockY": "block_y",
         "blockZ": "block_z", "dynamicSharedMemory": "smem_bytes"}  # fmt: skip
SAID = "no report of Nsight Systems: what stands under nsys is this trace of torch.profiler too"


def main(traced: str, sidecar: str, sqlite: str, written: str) -> None:
    """Read a trace and its sidecar; write the export `sqlite` and its sidecar `written`.

    Of a trace without a GPU it holds no row.
    """
    facts = read_json(sidecar)
    events = trace.read_trace(traced, lambda line: None)
    on_gpu = facts["device_type"] == "cuda"
    if on_gpu:
        lacking = losses.find_losses(events).lacking
        if 0 < len(lacking) < trace.count_steps(events):
            events = losses.drop_steps(events, sorted(lacking))
    with closing(sqlite3.connect(sqlite)) as database:
        create_tables(database)
        if on_gpu:
            _fill(database, events)
        database.commit()
    told = {key: value for key, value in facts.items() if key != "left_out"}
    told |= {"tool": TOOL, "capture": "window"}
    # What a program has recorded of itself was not imported.
    if "imported" in told:
        told["imported"] = {**told["imported"], "files": [], "coverage": [SAID] if on_gpu else []}
    write_json(told, written)


def create_tables(database: sqlite3.Connection) -> None:
    """Create the tables of an export that profzoo reads, without rows."""
    for table in ("StringIds", "NVTX_EVENTS", CALL_TABLE, KERNEL_TABLE, COPY_TABLE, SET_TABLE):
        columns = [f"{name} INTEGER" for name in READ[table]] + [f"{name} TEXT" for name in TEXTS.get(table, {})]
        database.execute(f"CREATE TABLE {table} ({', '.join(columns)})")


def _fill(database: sqlite3.Connection, events: trace.Trace) -> None:
    """Write calls, launches, and ranges of steps and their parts."""
    # 0 stands for no text.
    insert_rows(database, "StringIds", {"id": list(range(1, len(events.texts) + 1)), "value": events.texts})
    calls = events.calls
    real = calls["name"] != _code(events.texts, NO_CALL)
    made = {name: column[real].astype(np.int64) for name, column in calls.items()}
    insert_rows(database, CALL_TABLE, {
        "start": made["start"], "end": made["start"] + made["ns"], "correlationId": made["correlation"],
        "globalTid": PROCESS + 1 + made["thread"], "nameId": made["name"] + 1,
    })  # fmt: skip
    kinds = list(trace.DEVICE_KINDS.values())
    tables = {"kernel": KERNEL_TABLE, "memcpy": COPY_TABLE, "memset": SET_TABLE}
    for code, kind in enumerate(kinds):
        own = {name: column[events.launches["kind"] == code].astype(np.int64)
               for name, column in events.launches.items()}  # fmt: skip
        shared: dict[str, Any] = {
            "start": own["start"], "end": own["start"] + own["ns"], "correlationId": own["correlation"],
            "globalPid": np.full(len(own["start"]), PROCESS), "streamId": np.maximum(own["queue"], 0),
            "deviceId": _known(own["gpu"]),
        }  # fmt: skip
        if kind == "kernel":
            sizes = {column: np.maximum(own[name], 0) for column, name in GRIDS.items()}
            alike = dict.fromkeys(("mangledName", "demangledName", "shortName"), own["name"] + 1)
            shared |= alike | sizes
        else:
            shared["bytes"] = _known(own["bytes"])
        if kind == "memcpy":
            shared["copyKind"] = [copy_kind(events.texts[name]) for name in own["name"].tolist()]
        insert_rows(database, tables[kind], shared)
    starts, ends, codes = trace.range_spans(events, (STEP, *PARTS))
    names = [make_nvtx_name((STEP, *PARTS)[code]) for code in codes.tolist()]
    insert_rows(database, "NVTX_EVENTS", {
        "start": starts, "end": ends, "eventType": np.full(len(starts), PUSH_POP), "text": names,
        "globalTid": np.full(len(starts), PROCESS),
    })  # fmt: skip


def copy_kind(name: str) -> int:
    """Return CUPTI's number of a copy's kind, by its name under torch.profiler or nsys; 0 if the name does not tell it.

    >>> copy_kind("Memcpy HtoD (Pageable -> Device)"), copy_kind("[CUDA memcpy Host-to-Device]")
    (1, 1)
    >>> copy_kind("[CUDA memcpy DtoH]"), copy_kind("CopyHostToDevice")
    (2, 0)
    """
    short = SPELLED_OUT.sub(lambda found: f"{found[1][0]}to{found[2][0]}", name)
    return next((KINDS[kind] for kind in WORD.findall(short) if kind in KINDS), 0)


def _known(numbers: np.ndarray) -> list[int | None]:
    """Return numbers for a column of an export; a number below 0 stands for an unknown one."""
    return [number if number >= 0 else None for number in numbers.tolist()]


def _code(texts: Sequence[str], wanted: str) -> int:
    return texts.index(wanted) if wanted in texts else -1


def insert_rows(database: sqlite3.Connection, table: str, columns: dict[str, Any]) -> None:
    """Insert columns of a table."""
    rows = zip(*(column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()),
               strict=True)  # fmt: skip
    marks = ", ".join("?" * len(columns))
    database.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
