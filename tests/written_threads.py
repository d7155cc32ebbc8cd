"""Writes small exports of nsys with what threads of the host did, in the tables and columns of nsys 2025.3."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from profzoo.range_names import make_nvtx_name

PROCESS = 7 << 24
# The main thread of process 7, its autograd thread, one that holds locks, and a worker of process 9.
MAIN, AUTOGRAD, HOLDER, WORKER = PROCESS + 7, PROCESS + 8, PROCESS + 11, (9 << 24) + 9
RUNS, SLEEPS = 1, 2
TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, globalTid INTEGER, text TEXT, textId INTEGER, eventType INTEGER, "
    "domainId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, correlationId INTEGER, globalTid INTEGER, nameId INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, correlationId INTEGER, globalPid INTEGER, "
    "demangledName INTEGER",
    "OSRT_API": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
    "nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER, callchainId INTEGER NOT NULL",
    "SCHED_EVENTS": "start INTEGER NOT NULL, cpu INTEGER NOT NULL, isSchedIn INTEGER NOT NULL, globalTid INTEGER, "
    "threadState INTEGER, threadBlock INTEGER",
    "COMPOSITE_EVENTS": "id INTEGER NOT NULL PRIMARY KEY, start INTEGER NOT NULL, cpu INTEGER, threadState INTEGER, "
    "globalTid INTEGER, cpuCycles INTEGER NOT NULL",
    **dict.fromkeys(
        ("SAMPLING_CALLCHAINS", "OSRT_CALLCHAINS"),
        "id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, kernelMode INTEGER, thumbCode INTEGER, "
        "unresolved INTEGER, specialEntry INTEGER, originalIP INTEGER, unwindMethod INTEGER, stackDepth INTEGER NOT NULL, "
        "PRIMARY KEY (id, stackDepth)",
    ),
    "OSRT_FILE_ACCESS_EVENTS": "fileAccessId INTEGER NOT NULL, threadId INTEGER NOT NULL, startedAt INTEGER NOT NULL, "
    "endedAt INTEGER NOT NULL, eventType INTEGER NOT NULL, apiCallId INTEGER NOT NULL, bytesProcessed INTEGER NOT NULL, "
    "context TEXT NOT NULL",
    "OSRT_FILE_ACCESS_DESCRIPTORS": "fileAccessId INTEGER NOT NULL, processId INTEGER NOT NULL, openedAt INTEGER NOT NULL, "
    "closedAt INTEGER NOT NULL, filePath TEXT NOT NULL",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
}
Frame = tuple[str, str]


@dataclass
class Trace:
    """What a trace holds; times in ns.

    ranges: name, start, end and thread. calls: of CUDA: name, start, end, correlation and thread. kernels: start, end,
    correlation. os_calls: name, start, end, thread, and stack (functions and modules, the innermost first). switches:
    start, thread, cpu, whether it comes to the CPU, and its state. samples: start, thread, and stack. files: path, start,
    end and thread of accesses. names: of threads.
    """

    ranges: Sequence[tuple[str, int, int, int]] = ()
    calls: Sequence[tuple[str, int, int, int, int]] = ()
    kernels: Sequence[tuple[int, int, int]] = ()
    os_calls: Sequence[tuple] = ()
    switches: Sequence[tuple[int, int, int, bool, int]] = ()
    samples: Sequence[tuple[int, int, Sequence[Frame]]] = ()
    files: Sequence[tuple[str, int, int, int]] = ()
    names: dict[int, str] = field(default_factory=dict)

    def write(self, path: Path, without: Sequence[str] = ()) -> Path:
        """Write the export, without some tables (`OSRT_API`) or columns (`SCHED_EVENTS.threadState`)."""
        strings: dict[str, int] = {}

        def number(text: str) -> int:
            return strings.setdefault(text, len(strings) + 1)

        rows = {table: [] for table in TABLES}
        rows["NVTX_EVENTS"] = [
            (start, end, thread, make_nvtx_name(name), None, 59, 0) for name, start, end, thread in self.ranges
        ]
        rows["CUPTI_ACTIVITY_KIND_RUNTIME"] = [
            (start, end, correlation, thread, number(name)) for name, start, end, correlation, thread in self.calls
        ]
        rows["CUPTI_ACTIVITY_KIND_KERNEL"] = [
            (start, end, correlation, PROCESS, number("k")) for start, end, correlation in self.kernels
        ]
        for place, (name, start, end, thread, *stack) in enumerate(self.os_calls, 1):
            chain = place if stack else 0
            rows["OSRT_API"].append((start, end, 27, thread, number(name), 0, 0, chain))
            rows["OSRT_CALLCHAINS"] += _stack(chain, stack[0] if stack else (), number)
        rows["SCHED_EVENTS"] = [
            (start, cpu, int(enters), thread, state, 0) for start, thread, cpu, enters, state in self.switches
        ]
        for place, (start, thread, stack) in enumerate(self.samples, 1):
            rows["COMPOSITE_EVENTS"].append((place, start, 0, RUNS, thread, 1))
            rows["SAMPLING_CALLCHAINS"] += _stack(place, stack, number)
        for place, (name, start, end, thread) in enumerate(self.files, 1):
            rows["OSRT_FILE_ACCESS_EVENTS"].append((place, thread & 0xFFFFFF, start, end, 3, number("read"), 1, ""))
            rows["OSRT_FILE_ACCESS_DESCRIPTORS"].append((place, 7, 0, end, name))
        rows["ThreadNames"] = [(number(name), 20, thread) for thread, name in self.names.items()]
        rows["StringIds"] = [(one, text) for text, one in strings.items()]
        with closing(sqlite3.connect(path)) as database:
            for table, columns in TABLES.items():
                if table in without or not (rows[table] or table == "StringIds"):
                    continue
                database.execute(f"CREATE TABLE {table} ({columns})")
                marks = ", ".join("?" * len(database.execute(f"PRAGMA table_info({table})").fetchall()))
                database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[table])
            for table, column in (one.split(".") for one in without if "." in one):
                database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            database.commit()
        return path


def _stack(chain: int, stack: Sequence[Frame], number) -> list[tuple]:  # type: ignore[no-untyped-def]
    return [
        (chain, number(function), number(f"/lib/{module}"), None, None, None, None, 0, 1, depth)
        for depth, (function, module) in enumerate(stack)
    ]
