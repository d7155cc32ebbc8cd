"""What each column of an nsys export may hold, at its bounds: by NVIDIA's schema, and by what 64 bits take."""

import sqlite3
from contextlib import closing

import pytest

from profzoo.tools.nsys import export_checks, export_columns

# A sum or difference of two times fits into 64 bits; a string's number into 31, where it is packed with another.
TIME, STRING, NUMBER, ID = 2**62, 2**31 - 1, 2**63 - 1, 2**40
SPAN = {"start": (-TIME, TIME, False), "end": (-TIME, TIME, False)}
OWNER = (-NUMBER, NUMBER, True)
ACTIVITY = {**SPAN, "correlationId": (-ID, ID, True), "globalPid": OWNER}
EVENT = dict.fromkeys(["correlationId", "streamId", "eventId", "eventSyncId", "globalPid"], OWNER)
# CUDA's limits: a grid of 2^31 - 1 by 65535 by 65535, a block of 1024 by 1024 by 64; and what more fits beside them.
SIZES = {"gridX": 31, "gridY": 16, "gridZ": 16, "blockX": 11, "blockY": 11, "blockZ": 7, "staticSharedMemory": 24,
         "dynamicSharedMemory": 24, "registersPerThread": 9}  # fmt: skip
# Of tables that single files are made of, of which no column has to be there.
LOOSE = {
    "OSRT_CALLCHAINS": ["id", "symbol", "module", "stackDepth"],
    "OSRT_FILE_ACCESS_EVENTS": ["fileAccessId", "threadId", "startedAt", "endedAt"],
    "OSRT_FILE_ACCESS_DESCRIPTORS": ["fileAccessId"],
    "SCHED_EVENTS": ["start", "cpu", "isSchedIn", "globalTid", "threadState"],
    "COMPOSITE_EVENTS": ["id", "start", "globalTid", "cpuCycles"],
    "SAMPLING_CALLCHAINS": ["id", "symbol", "module", "unresolved", "stackDepth"],
    "ThreadNames": ["nameId", "globalTid"],
}
# By table and column: the least, the most, and whether it may be NULL.
KINDS = {
    "StringIds": {"id": (0, ID, False)},
    "ANALYSIS_DETAILS": {"duration": (0, TIME, True)},
    "NVTX_EVENTS": {**SPAN, "end": (-TIME, TIME, True), "eventType": (0, STRING, False), "textId": (0, ID, True),
                    "globalTid": OWNER},
    "CUPTI_ACTIVITY_KIND_RUNTIME": {**SPAN, "correlationId": (-ID, ID, True), "globalTid": OWNER,
                                    "nameId": (0, ID, False)},
    "CUPTI_ACTIVITY_KIND_KERNEL": {**ACTIVITY, **{name: (0, 2**bits - 1, True) for name, bits in SIZES.items()},
                                   "mangledName": (0, STRING, True), "demangledName": (0, STRING, False),
                                   "shortName": (0, STRING, False), "streamId": (0, NUMBER, False),
                                   "deviceId": (0, NUMBER, True), "graphNodeId": OWNER},
    "CUPTI_ACTIVITY_KIND_MEMCPY": {**ACTIVITY, "streamId": (0, NUMBER, False), "copyKind": (0, NUMBER, False),
                                   "srcKind": (0, STRING, True), "dstKind": (0, STRING, True),
                                   "bytes": (0, NUMBER, True), "deviceId": (0, NUMBER, True),
                                   "srcDeviceId": (0, NUMBER, True), "dstDeviceId": (0, NUMBER, True)},
    "CUPTI_ACTIVITY_KIND_MEMSET": {**ACTIVITY, "streamId": (0, NUMBER, False), "bytes": (0, NUMBER, True),
                                   "deviceId": (0, NUMBER, True)},
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {**ACTIVITY, "end": (-TIME, TIME, True), "graphId": (0, NUMBER, False),
                                        "streamId": (0, NUMBER, True), "deviceId": (0, NUMBER, True)},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {**EVENT, "syncType": OWNER},
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": EVENT,
    "CUDA_GPU_MEMORY_USAGE_EVENTS": {**dict.fromkeys(["start", "globalPid", "address"], OWNER),
                                     "deviceId": (0, NUMBER, True), "bytes": (0, NUMBER, True),
                                     "memKind": (0, STRING, True), "memoryOperationType": (0, STRING, True)},
    "OSRT_API": {**SPAN, "globalTid": OWNER, "nameId": (0, ID, False), "callchainId": OWNER},
    **{table: dict.fromkeys(names, OWNER) for table, names in LOOSE.items()},
    "CUDNN_EVENTS": {**SPAN, "globalTid": OWNER},
    "CUBLAS_EVENTS": {**SPAN, "globalTid": OWNER},
}  # fmt: skip
COLUMNS = [(table, name) for table, own in KINDS.items() for name in own]
# What an export may be without, and what is read then: in a table of its own that is not there, or of no such column.
ABSENT = {
    "CUPTI_ACTIVITY_KIND_KERNEL": {"mangledName", "deviceId", "graphNodeId"},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {*EVENT, "syncType"},
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": set(EVENT),
    "CUPTI_ACTIVITY_KIND_MEMCPY": {"srcKind", "dstKind", "bytes", "deviceId", "srcDeviceId", "dstDeviceId"},
    "CUPTI_ACTIVITY_KIND_MEMSET": {"bytes", "deviceId"},
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {"streamId", "deviceId"},
    "CUDA_GPU_MEMORY_USAGE_EVENTS": {
        "start",
        "globalPid",
        "address",
        "deviceId",
        "bytes",
        "memKind",
        "memoryOperationType",
    },
    "OSRT_API": {"globalTid", "callchainId"},
    **{table: set(names) for table, names in LOOSE.items()},
    "CUDNN_EVENTS": {"globalTid"},
    "CUBLAS_EVENTS": {"globalTid"},
}


def test_each_column_that_is_read_is_below() -> None:
    assert {table: set(own) for table, own in export_columns.READ.items()} == {
        table: set(own) for table, own in KINDS.items()
    }


def wrong(table: str, *rows: dict[str, int | str | float | None]) -> str | None:
    """What is said of a table of these rows, whose cells are 0 where nothing else is given."""
    names = list(KINDS[table])
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE {table} ({', '.join(names)})")
        filled = [[row.get(name, 0) for name in names] for row in rows]
        database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", filled)
        return export_checks._wrong(database, table)


@pytest.mark.parametrize(("table", "name"), COLUMNS)
def test_a_column_holds_whole_numbers_within_its_bounds(table: str, name: str) -> None:
    least, most, null = KINDS[table][name]
    # A start is not behind its end.
    both = ("start", "end") if name in SPAN else (name,)
    for value in (least, 0, most):
        assert wrong(table, dict.fromkeys(both, value)) is None
    said = f"which is no whole number{f' from 0 to {most}' if least == 0 else ''}: {export_checks.ONCE}"
    for value in (least - 1, most + 1):
        # What SQLite has no whole number for is a float there.
        given = value if -(2**63) <= value < 2**63 else float(value)
        assert str(wrong(table, dict.fromkeys(both, given))).endswith(said)
    for value in ("7", 0.5):
        assert wrong(table, {name: value}) is not None
    nothing = wrong(table, {name: None})
    assert nothing is None if null else "is NULL" in str(nothing) and "as in 1 of 1 rows" in str(nothing)


@pytest.mark.parametrize(
    ("bad", "rows", "written"), [(1, 1, False), (1, 2, False), (2, 2, True), (2, 3, True), (2, 4, False)]
)
def test_what_most_of_several_rows_hold_was_written_so(bad: int, rows: int, written: bool) -> None:
    """A file is not damaged in more than half of its rows; of one row nothing can be told."""
    given = [{"eventType": -3 if place < bad else 59} for place in range(rows)]
    said = str(wrong("NVTX_EVENTS", *given))
    assert said.startswith("eventType in row 1 of NVTX_EVENTS is '-3' (integer), which is no whole number from 0 to")
    assert (f"as in {bad} of {rows} rows: its nsys wrote it so" in said) == written
    assert said.endswith(export_checks.OTHER if written else export_checks.ONCE)


def test_a_long_value_is_told_by_its_first_40_letters() -> None:
    assert f"is {'x' * 40!r} (text)" in str(wrong("NVTX_EVENTS", {"eventType": "x" * 41}))


def test_an_end_before_its_start_is_told_where_there_has_to_be_an_end() -> None:
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    assert wrong(table, {"start": 5, "end": 5}) is None
    assert "which is no time after its start" in str(wrong(table, {"start": 5, "end": 4}))
    # What was never closed, or could not be timed, may have 0.
    for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        assert wrong(table, {"start": 5, "end": 4}) is None


@pytest.mark.parametrize("table", KINDS)
def test_what_is_read_where_there_is_nothing(table: str) -> None:
    """Kernels, copies, fills and graphs without a call have -1, calls without them -2: neither is the other's."""
    launched = "CUPTI_ACTIVITY_KIND_RUNTIME" not in table and table.startswith("CUPTI") and "EVENT" not in table
    instead = {"correlationId": "-1" if launched and "SYNC" not in table else "0"}
    instead |= {"correlationId": "-2"} if "RUNTIME" in table else {}
    # An unknown kind of memory, number of bytes, GPU or stream.
    instead |= {
        "srcKind": "7",
        "dstKind": "7",
        "memKind": "7",
        **dict.fromkeys(("bytes", "deviceId", "srcDeviceId", "dstDeviceId"), "-1"),
    }
    instead |= {"streamId": "-1"} if "GRAPH_TRACE" in table else {}
    # Neither an allocation nor a free.
    instead["memoryOperationType"] = "2"
    # Nothing is known; but what an older nsys records are samples.
    instead |= dict.fromkeys(LOOSE.get(table, ["callchainId"]), "-1") | {"cpuCycles": "1"}
    with closing(sqlite3.connect(":memory:")) as database:
        absent = ABSENT.get(table, set())
        for there in (set(KINDS[table]), set(KINDS[table]) - absent or {"x"}):
            database.execute(f"CREATE TABLE {table} ({', '.join(sorted(there))})")
            for name, (_, _, null) in KINDS[table].items():
                nothing = instead.get(name, "0")
                read = f"coalesce({name}, {nothing})" if null else name
                assert export_columns.sql_for_numbers(database, table, [name]) == {
                    name: read if name in there else nothing
                }
                aliased = read.replace(f"({name}", f"(k.{name}") if null else f"k.{name}"
                assert export_columns.sql_for_numbers(database, table, [name], "k")[name] == (
                    aliased if name in there else nothing
                )
            database.execute(f"DROP TABLE {table}")
        # What has to be there is asked for, so that SQLite says that it is not.
        for name in sorted(set(KINDS[table]) - absent):
            assert name in export_columns.sql_for_numbers(database, table, [name])[name]
