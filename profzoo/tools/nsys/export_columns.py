"""Declares which columns of an nsys export (SQLite) are read: what each may hold, and whether it may be NULL or absent.

Other columns are never read, so a release of nsys may add any. The declarations follow the schema that NVIDIA documents
for exports 3.7 (nsys 2023.4) to 3.25 (2026.2). Exports of schema 2 declare every column NOT NULL; they have 0 or an
empty text where later exports have NULL.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profzoo.tools.nsys.configuration_packing import PACKED

# Of nanoseconds, and of numbers that stand for strings.
TIMES, STRINGS, ANY = 2**62, 2**31 - 1, 2**63 - 1
# What stands for no correlation ID: no call launched an activity, and no activity is of a call.
NO_CALL, NO_ACTIVITY = -1, -2
# What stands for an unknown state of a thread, core or place.
UNKNOWN = -1


@dataclass(frozen=True)
class Column:
    """A column of integers from `least` to `most`.

    null: a value may be NULL. missing: an export may lack the column. instead: value to read in these cases.
    """

    most: int
    least: int = 0
    null: bool = False
    missing: bool = False
    instead: int = 0


TIME = Column(TIMES, -TIMES)
# What names a process, or a thread of it.
OWNER = Column(ANY, -ANY, null=True)
NAME, NUMBER = Column(STRINGS), Column(ANY)
# What a release may leave out, and an event may have none of.
PERHAPS = Column(ANY, -ANY, null=True, missing=True)
# Of tables that only a part of the results is made of: what reads the column says what is unknown without it.
LOOSE = Column(ANY, -ANY, null=True, missing=True, instead=UNKNOWN)
# Cycles of a sample; older exports hold nothing but samples.
ONCE = Column(ANY, -ANY, null=True, missing=True, instead=1)
# What kind of memory a copy reads: PAGEABLE, or another of ENUM_CUDA_MEM_KIND, whose number 7 means unknown.
PAGEABLE = 0
MEMORY = Column(STRINGS, null=True, missing=True, instead=7)
# Sizes in bytes and numbers of GPUs, and what stands for an unknown one.
UNKNOWN = -1
KNOWN = Column(ANY, null=True, missing=True, instead=UNKNOWN)
LAUNCHED = Column(2**40, -(2**40), null=True, instead=NO_CALL)
SIZES = {column: Column(2**bits - 1, null=True) for group in PACKED for _, column, bits in group}
# A range of cuDNN or cuBLAS.
LIBRARY = {"start": TIME, "end": TIME, "globalTid": PERHAPS}
EVENT = {"correlationId": PERHAPS, "streamId": PERHAPS, "eventId": PERHAPS, "eventSyncId": PERHAPS,
         "globalPid": PERHAPS}  # fmt: skip
ACTIVITY = {"start": TIME, "end": TIME, "correlationId": LAUNCHED, "globalPid": OWNER}

# By table and column.
READ: Mapping[str, Mapping[str, Column]] = {
    "StringIds": {"id": Column(2**40)},
    "ANALYSIS_DETAILS": {"duration": Column(TIMES, null=True)},
    "NVTX_EVENTS": {
        "start": TIME,
        # Of a range that was never closed.
        "end": Column(TIMES, -TIMES, null=True),
        "eventType": Column(STRINGS),
        "textId": Column(2**40, null=True),
        "globalTid": OWNER,
    },
    "CUPTI_ACTIVITY_KIND_RUNTIME": {
        "start": TIME,
        "end": TIME,
        "correlationId": Column(2**40, -(2**40), null=True, instead=NO_ACTIVITY),
        "globalTid": OWNER,
        "nameId": Column(2**40),
    },
    "CUPTI_ACTIVITY_KIND_KERNEL": {
        **ACTIVITY,
        **SIZES,
        # Of a kernel whose mangled name is not known, and of all before nsys 2022.
        "mangledName": Column(STRINGS, null=True, missing=True),
        "demangledName": NAME,
        "shortName": NAME,
        "streamId": NUMBER,
        "deviceId": KNOWN,
        "graphNodeId": PERHAPS,
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {
        **ACTIVITY,
        "streamId": NUMBER,
        "copyKind": NUMBER,
        "srcKind": MEMORY,
        "dstKind": MEMORY,
        "bytes": KNOWN,
        "deviceId": KNOWN,
        "srcDeviceId": KNOWN,
        "dstDeviceId": KNOWN,
    },
    "CUPTI_ACTIVITY_KIND_MEMSET": {**ACTIVITY, "streamId": NUMBER, "bytes": KNOWN, "deviceId": KNOWN},
    # A graph that CUPTI could not time has no end.
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {
        **ACTIVITY,
        "end": Column(TIMES, -TIMES, null=True),
        "graphId": NUMBER,
        "streamId": KNOWN,
        "deviceId": KNOWN,
    },
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {**EVENT, "syncType": PERHAPS},
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": EVENT,
    # Calls of the operating system's libraries, such as those by which threads wait.
    # Allocations and frees of GPU memory, and of pinned memory of the host.
    "CUDA_GPU_MEMORY_USAGE_EVENTS": {
        **dict.fromkeys(("start", "globalPid", "address"), PERHAPS),
        **dict.fromkeys(("deviceId", "bytes"), Column(ANY, null=True, missing=True, instead=-1)),
        "memKind": MEMORY,
        # Neither an allocation nor a free.
        "memoryOperationType": Column(STRINGS, null=True, missing=True, instead=2),
    },
    "OSRT_API": {"start": TIME, "end": TIME, "globalTid": PERHAPS, "nameId": Column(2**40), "callchainId": LOOSE},
    "OSRT_CALLCHAINS": dict.fromkeys(["id", "symbol", "module", "stackDepth"], LOOSE),
    # Accesses to files, and which file each was.
    "OSRT_FILE_ACCESS_EVENTS": dict.fromkeys(["fileAccessId", "threadId", "startedAt", "endedAt"], LOOSE),
    "OSRT_FILE_ACCESS_DESCRIPTORS": {"fileAccessId": LOOSE},
    # Context switches of threads, samples of what threads run, and names of threads.
    "SCHED_EVENTS": dict.fromkeys(["start", "cpu", "isSchedIn", "globalTid", "threadState"], LOOSE),
    "COMPOSITE_EVENTS": dict.fromkeys(["id", "start", "globalTid"], LOOSE) | {"cpuCycles": ONCE},
    "SAMPLING_CALLCHAINS": dict.fromkeys(["id", "symbol", "module", "unresolved", "stackDepth"], LOOSE),
    "ThreadNames": dict.fromkeys(["nameId", "globalTid"], LOOSE),
    "CUDNN_EVENTS": LIBRARY,
    "CUBLAS_EVENTS": LIBRARY,
}
# Columns of texts: whether they may be NULL.
TEXTS: Mapping[str, Mapping[str, bool]] = {"StringIds": {"value": False}, "NVTX_EVENTS": {"text": True}}


def existing_columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the column names of an export's table; empty if the table is missing."""
    return {name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")}


def has_option(database: sqlite3.Connection, name: str, value: str = "%") -> bool:
    """Return whether nsys collected with an option, by SQL patterns for its name and value in META_DATA_CAPTURE."""
    if not {"name", "value"} <= existing_columns(database, "META_DATA_CAPTURE"):
        return False
    found = database.execute("SELECT 1 FROM META_DATA_CAPTURE WHERE name LIKE ? AND value LIKE ?", (name, value))
    return found.fetchone() is not None


def sql_for_numbers(database: sqlite3.Connection, table: str, names: Sequence[str], alias: str = "") -> dict[str, str]:
    """Return SQL expressions that read declared columns as integers, by column; NULL and missing columns are replaced.

    alias: alias of the table in a query of several tables.
    """
    has, declared = existing_columns(database, table), READ[table]
    found = {}
    for name in names:
        column, plain = declared[name], f"{alias}.{name}" if alias else name
        if column.missing and name not in has:
            found[name] = str(column.instead)
        else:
            found[name] = f"coalesce({plain}, {column.instead})" if column.null else plain
    return found
