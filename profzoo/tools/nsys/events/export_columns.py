"""Declares which columns of an nsys export (SQLite) are read, what each may hold, and checks that they hold it.

Other columns are never read, so a release of nsys may add any. The declarations follow the schema that NVIDIA documents
for exports 3.7 (nsys 2023.4) to 3.25 (2026.2). Exports of schema 2 declare every column NOT NULL; they have 0 or an
empty text where later exports have NULL.
"""

import functools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from profzoo.io import file_checks

# How SQLite packs a launch configuration into three integers of at most 63 bits, as fetching a column of a million rows
# into Python takes longer than all else. Each part: (our name, nsys's name, bits); widths by CUDA's limits (grid
# 2^31-1 x 65535 x 65535, block 1024 x 1024 x 64, shared memory under 2^20 bytes, 255 registers).
PACKED = (
    (("mangled", "mangledName", 31), ("grid_x", "gridX", 31)),
    (
        ("grid_y", "gridY", 16),
        ("grid_z", "gridZ", 16),
        ("block_x", "blockX", 11),
        ("block_y", "blockY", 11),
        ("block_z", "blockZ", 7),
    ),
    (
        ("smem_static_bytes", "staticSharedMemory", 24),
        ("smem_dynamic_bytes", "dynamicSharedMemory", 24),
        ("registers", "registersPerThread", 9),
    ),
)
AGAIN = "delete it, and the next run traces the cell again"
# Where it is not known whether the tool wrote it, or the file was changed later.
ONCE = f"{AGAIN}; if the new trace has the same, this nsys writes it so: use another one"
OTHER = "so that a new trace would be the same: use an nsys from 2021 to 2026, or a newer profzoo"
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
CYCLES = Column(ANY, -ANY, null=True, missing=True, instead=1)
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
# What the GPU did; contexts and nodes of graphs say which operations wait for each other.
ACTIVITY = {"start": TIME, "end": TIME, "correlationId": LAUNCHED, "globalPid": OWNER, "deviceId": KNOWN,
            "contextId": PERHAPS, "graphNodeId": PERHAPS}  # fmt: skip

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
        "domainId": PERHAPS,
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
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {
        **ACTIVITY,
        "streamId": NUMBER,
        "copyKind": NUMBER,
        "srcKind": MEMORY,
        "dstKind": MEMORY,
        "bytes": KNOWN,
        "srcDeviceId": KNOWN,
        "dstDeviceId": KNOWN,
    },
    "CUPTI_ACTIVITY_KIND_MEMSET": {**ACTIVITY, "streamId": NUMBER, "bytes": KNOWN},
    # A graph that CUPTI could not time has no end.
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {
        **ACTIVITY,
        "end": Column(TIMES, -TIMES, null=True),
        "graphId": NUMBER,
        "streamId": KNOWN,
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
    "COMPOSITE_EVENTS": dict.fromkeys(["id", "start", "globalTid"], LOOSE) | {"cpuCycles": CYCLES},
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


@functools.lru_cache(maxsize=64)
def _damage(path: Path, changed_ns: int, size: int) -> str | None:
    if why := file_checks.find_flaw(path):
        return f"damaged ({' '.join(why.split())}): {AGAIN}"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        # A damaged text is to be shown, not to stop what shows it.
        database.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
        return next(filter(None, (_wrong(database, table) for table in READ)), None)


def find_damage(path: Path) -> str | None:
    """Describe damage to the file and its remedy, or return None; cached as long as the file is unchanged.

    Raises:
        sqlite3.Error, OSError: the file cannot be read at all.
    """
    state = path.stat()
    return _damage(path, state.st_mtime_ns, state.st_size)


def exporting_version(database: sqlite3.Connection) -> str:
    """Return the version of nsys that wrote an export, if it is recorded."""
    try:
        rows = database.execute("SELECT name, value FROM META_DATA_EXPORT").fetchall()
    except sqlite3.Error:
        return "its nsys"
    known = {name: value for name, value in rows if isinstance(value, str)}
    version, schema = (known.get(f"EXPORT_{name}_VERSION", "unknown") for name in ("PRODUCT", "SCHEMA"))
    return f"nsys {version} (export schema {schema})"


def _wrong(database: sqlite3.Connection, table: str) -> str | None:
    """Return which row of a table has an impossible value, and what to do; None if all are sound, or no table.

    SQLite itself reads text as 0.
    """
    holds = list(_conditions(table, existing_columns(database, table)))
    together = " AND ".join(f"({condition})" for _, condition, _ in holds)
    if not holds or not database.execute(f"SELECT 1 FROM {table} WHERE NOT ({together}) LIMIT 1").fetchone():
        return None
    for column, condition, expected in holds:
        bad = f"FROM {table} WHERE NOT ({condition})"
        row = database.execute(f"SELECT rowid, CAST({column} AS TEXT), typeof({column}) {bad} LIMIT 1").fetchone()
        if row:
            (many,) = database.execute(f"SELECT count(*) {bad}").fetchone()
            (of,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            value = "is NULL" if row[2] == "null" else f"is {str(row[1])[:40]!r} ({row[2]})"
            said = f"{column} in row {row[0]} of {table} {value}, which is not a {expected}"
            # Damage does not turn numbers into NULL, nor change most rows of a table: nsys must have written these.
            if row[2] == "null" or (2 * many > of > 1):
                return f"{said}, as in {many} of {of} rows: {exporting_version(database)} wrote it so, {OTHER}"
            return f"{said}: {ONCE}"
    return None


def _conditions(table: str, columns: set[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the conditions of a sound row: the column, the condition in SQL, and the expected value in words."""
    for name, column in READ[table].items():
        if name in columns:
            # Text is larger than any number.
            number = f"typeof({name}) = 'integer' AND {name} BETWEEN {column.least} AND {column.most}"
            expected = "whole number" if column.least < 0 else f"whole number from 0 to {column.most}"
            yield name, f"{name} IS NULL OR ({number})" if column.null else number, expected
    if {"start", "end"} <= set(READ[table]) & columns and not READ[table]["end"].null:
        yield "end", "start <= end", "time after its start"
    for name, null in TEXTS.get(table, {}).items():
        if name in columns:
            yield name, f"typeof({name}) IN ('text'{', ' + repr('null') if null else ''})", "text"
