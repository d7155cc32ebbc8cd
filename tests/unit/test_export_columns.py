"""What each column of an nsys export may hold, at its bounds, and exports of schema 2 to 3.25: what comes, goes, is NULL."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.events import export_columns, launches
from profzoo.tools.nsys.events import trace as nsys_trace
from profzoo.tools.nsys.pictures import median_step
from profzoo.tools.nsys.steps import step_sequence
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.what_if import tables as replay
from tests.unit.test_nsys_tables import ONE, export, kernel, shuffled

# A sum or difference of two times fits into 64 bits; a string's number into 31, where it is packed with another.
TIME, STRING, NUMBER, ID = 2**62, 2**31 - 1, 2**63 - 1, 2**40
SPAN = {"start": (-TIME, TIME, False), "end": (-TIME, TIME, False)}
OWNER = (-NUMBER, NUMBER, True)
ACTIVITY = {**SPAN, "correlationId": (-ID, ID, True), "globalPid": OWNER, "deviceId": (0, NUMBER, True),
            "contextId": OWNER, "graphNodeId": OWNER}  # fmt: skip
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
                    "globalTid": OWNER, "domainId": OWNER},
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


def test_each_column_that_is_read_is_below() -> None:
    expected = {table: set(own) for table, own in KINDS.items()}
    assert {table: set(own) for table, own in export_columns.READ.items()} == expected


def wrong(table: str, *rows: dict[str, int | str | float | None]) -> str | None:
    """What is said of a table of these rows, whose cells are 0 where nothing else is given."""
    names = list(KINDS[table])
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE {table} ({', '.join(names)})")
        filled = [[row.get(name, 0) for name in names] for row in rows]
        database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", filled)
        return export_columns._wrong(database, table)


@pytest.mark.parametrize("table", KINDS)
def test_a_column_holds_whole_numbers_within_its_bounds(table: str) -> None:
    for name, (least, most, null) in KINDS[table].items():
        # A start is not behind its end.
        both = ("start", "end") if name in SPAN else (name,)
        for value in (least, 0, most):
            assert wrong(table, dict.fromkeys(both, value)) is None, name
        said = f"which is not a whole number{f' from 0 to {most}' if least == 0 else ''}: {export_columns.ONCE}"
        for value in (least - 1, most + 1):
            # What SQLite has no whole number for is a float there.
            given = value if -(2**63) <= value < 2**63 else float(value)
            assert str(wrong(table, dict.fromkeys(both, given))).endswith(said), name
        for value in ("7", 0.5):
            assert wrong(table, {name: value}) is not None, name
        nothing = wrong(table, {name: None})
        assert nothing is None if null else "is NULL" in str(nothing) and "as in 1 of 1 rows" in str(nothing), name


@pytest.mark.parametrize(
    ("bad", "rows", "written"), [(1, 1, False), (1, 2, False), (2, 2, True), (2, 3, True), (2, 4, False)]
)
def test_what_most_of_several_rows_hold_was_written_so(bad: int, rows: int, written: bool) -> None:
    """A file is not damaged in more than half of its rows; of one row nothing can be told."""
    given = [{"eventType": -3 if place < bad else 59} for place in range(rows)]
    said = str(wrong("NVTX_EVENTS", *given))
    assert said.startswith("eventType in row 1 of NVTX_EVENTS is '-3' (integer), which is not a whole number from 0 to")
    assert (f"as in {bad} of {rows} rows: its nsys wrote it so" in said) == written
    assert said.endswith(export_columns.OTHER if written else export_columns.ONCE)


def test_a_long_value_is_told_by_its_first_40_letters() -> None:
    assert f"is {'x' * 40!r} (text)" in str(wrong("NVTX_EVENTS", {"eventType": "x" * 41}))


def test_an_end_before_its_start_is_told_where_there_has_to_be_an_end() -> None:
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    assert wrong(table, {"start": 5, "end": 5}) is None
    assert "which is not a time after its start" in str(wrong(table, {"start": 5, "end": 4}))
    # What was never closed, or could not be timed, may have 0.
    for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        assert wrong(table, {"start": 5, "end": 4}) is None


def test_what_is_read_where_there_is_nothing() -> None:
    """Kernels, copies and fills without a call have -1, calls without them -2: neither is the other's."""
    instead = {
        "CUPTI_ACTIVITY_KIND_KERNEL": {"start": "k.start", "correlationId": "coalesce(k.correlationId, -1)",
                                       "deviceId": "coalesce(k.deviceId, -1)", "gridX": "coalesce(k.gridX, 0)"},
        "CUPTI_ACTIVITY_KIND_RUNTIME": {"end": "k.end", "correlationId": "coalesce(k.correlationId, -2)"},
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {"syncType": "0", "correlationId": "0"},
        # An unknown kind of memory, number of bytes, GPU or stream, and neither an allocation nor a free.
        "CUPTI_ACTIVITY_KIND_MEMCPY": {"srcKind": "7", "dstKind": "7", "bytes": "-1", "deviceId": "-1",
                                       "srcDeviceId": "-1", "dstDeviceId": "-1", "contextId": "0", "graphNodeId": "0"},
        "CUPTI_ACTIVITY_KIND_MEMSET": {"bytes": "-1", "deviceId": "-1"},
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {"streamId": "-1", "deviceId": "-1"},
        "CUDA_GPU_MEMORY_USAGE_EVENTS": {"memKind": "7", "bytes": "-1", "memoryOperationType": "2"},
        # Nothing is known; but what an older nsys records are samples.
        "COMPOSITE_EVENTS": {"id": "-1", "start": "-1", "globalTid": "-1", "cpuCycles": "1"},
        "OSRT_API": {"callchainId": "-1"}, "SCHED_EVENTS": {"threadState": "-1"}, "ThreadNames": {"nameId": "-1"},
        "NVTX_EVENTS": {"domainId": "0"},
    }  # fmt: skip
    with closing(sqlite3.connect(":memory:")) as database:
        for table, columns in instead.items():
            there = [name for name, read in columns.items() if "k." in read] or ["x"]
            database.execute(f"CREATE TABLE {table} ({', '.join(there)})")
            assert export_columns.sql_for_numbers(database, table, [*columns], "k") == columns
        # What has to be there is asked for, so that SQLite says that it is not.
        assert export_columns.sql_for_numbers(database, "NVTX_EVENTS", ["start"]) == {"start": "start"}


KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
# Columns of NVIDIA's documented schema 3.25 that the recording, of 3.20, does not have.
LATER = {
    KERNELS: {"graphId": "INTEGER", "clusterX": "INTEGER", "tensorSizeMinusOneElements": "TEXT NOT NULL DEFAULT ''"},
    "NVTX_EVENTS": {"eventId": "INTEGER", "scopeId": "INTEGER"},
}  # fmt: skip
# What was added since schema 2: without it the recording is as an export of 2022.
SINCE_2 = {
    KERNELS: ["greenContextId", "mangledName", "graphNodeId", "sharedMemoryLimitConfig", "launchType"],
    CALLS: ["eventClass", "callchainId"],
    "CUPTI_ACTIVITY_KIND_MEMCPY": ["greenContextId", "graphNodeId", "virtualAddress", "copyCount", "migrationCause"],
    "CUPTI_ACTIVITY_KIND_MEMSET": ["greenContextId", "graphNodeId", "memKind"],
    "NVTX_EVENTS": ["jsonTextId", "jsonText", "binaryData", "endGlobalTid"],
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ["greenContextId", "deprecatedSyncType", "eventSyncId"],
}


def read_by_all(path: Path) -> dict[str, Any]:
    """What every reader of an export makes of it."""
    (program,) = replay.read_programs(path)
    return {
        "launches": nsys_tables.summarise(path),
        "steps": nsys_steps.where_time_goes(path),
        "sequence": step_sequence.read_step_launches(path, 1),
        "by_step": launches.read_step_launches(path),
        "host": program.host,
        "gpu": program.gpu,
        "typical": (median_step.read_step_with_tracks(path) or [None])[0],
    }


def assert_same(found: dict[str, Any], known: dict[str, Any], but: tuple[str, ...] = ()) -> None:
    for name, table in known.items():
        if isinstance(table, pd.DataFrame):
            without = [column for column in but if column in table]
            pd.testing.assert_frame_equal(
                found[name].drop(columns=without), table.drop(columns=without), check_exact=True, obj=name
            )
        else:
            assert found[name] == table, name


@cache
def read_once(path: Path) -> tuple[dict[str, Any], set[tuple[str, str]]]:
    """What is read of a recording as it is, and by which columns of declared tables."""
    asked: set[tuple[str, str]] = set()

    def note(action: int, first: str | None, second: str | None, *_: Any) -> int:
        if (
            action == sqlite3.SQLITE_READ
            and first in export_columns.READ
            and second not in ("", "rowid", "ROWID", None)
        ):
            asked.add((first, second))
        return sqlite3.SQLITE_OK

    class Watched(sqlite3.Connection):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.set_authorizer(note)

    opened = nsys_trace.sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nsys_trace.sqlite3, "connect", lambda *given, **named: opened(*given, factory=Watched, **named))
        return read_by_all(path), asked


@pytest.fixture
def known(recording: Callable) -> dict[str, Any]:
    """What is read of the recording as it is."""
    return read_once(recording("nsys/train.sqlite"))[0]


@pytest.fixture
def changed(tmp_path: Path, recording: Callable) -> Callable[..., Path]:
    """A copy of the recording on which SQL was run."""

    def change(*statements: str) -> Path:
        path = tmp_path / "t.sqlite"
        shutil.copy(recording("nsys/train.sqlite"), path)
        with closing(sqlite3.connect(path)) as database:
            for statement in statements:
                database.execute(statement)
            database.commit()
        return path

    return change


@pytest.mark.slow
def test_neither_columns_of_later_exports_nor_the_order_of_rows_change_anything(
    changed: Callable, known: dict, tmp_path: Path
) -> None:
    """Exports of nsys 2025.6 and later are not in order of time."""
    added = [
        f"ALTER TABLE {table} ADD COLUMN {name} {kind}" for table, more in LATER.items() for name, kind in more.items()
    ]
    # A number beyond those of any column that is read, and a text in one of texts; in half of the rows, others are NULL.
    values = [
        f"UPDATE {table} SET {name} = {repr('x') if 'TEXT' in kind else 2**62 + 1} WHERE rowid % 2"
        for table, more in LATER.items()
        for name, kind in more.items()
    ]
    assert_same(read_by_all(shuffled(changed(*added, *values), tmp_path / "s.sqlite", 1)), known)


@pytest.mark.slow
def test_exports_before_mangled_names_keep_their_kernels_apart(changed: Callable, known: dict) -> None:
    dropped = [f"ALTER TABLE {table} DROP COLUMN {name}" for table, names in SINCE_2.items() for name in names]
    # Where later ones have NULL, they have a text without letters, or 0.
    defaults = ["UPDATE NVTX_EVENTS SET textId = 0, domainId = 0", f"UPDATE {CALLS} SET globalTid = globalTid"]
    found = read_by_all(changed(*dropped, *defaults))
    assert (found["launches"]["mangled"] == "").all()
    for name, by in (("launches", ["kernel", "range"]), ("by_step", ["step", "kernel", "range"])):
        time = "total_ns" if name == "launches" else "ns"
        sums = (table.groupby(by)[time].sum().to_dict() for table in (found[name], known[name]))
        assert next(sums) == next(sums), name
    assert_same({"steps": found["steps"]}, {"steps": known["steps"]})
    times = ["kernel", "ns", "min_ns", "max_ns"]
    pd.testing.assert_frame_equal(found["sequence"][times], known["sequence"][times])


def test_a_kernel_without_a_mangled_name_has_its_own_name(tmp_path: Path) -> None:
    rows = [list(kernel(100, 110, 7, ONE)), list(kernel(200, 250, 8, ONE)), list(kernel(300, 305, 9, ONE))]
    rows[0][6], rows[1][4:7] = None, [5, 6, None]
    path = export(tmp_path / "a.sqlite", [tuple(row) for row in rows], [(50, 7, ONE), (60, 8, ONE), (70, 9, ONE)], [])
    with closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(5, "other(int)"), (6, "other")])
        database.commit()
    table = nsys_tables.summarise(path)
    assert table[["kernel", "function", "mangled", "total_ns"]].to_numpy().tolist() == [
        ["other(int)", "other", "", 50], ["k()", "k", "", 10], ["k()", "k", "_Z1kv", 5]]  # fmt: skip


def test_what_nsys_may_leave_empty_is_read_as_nothing(tmp_path: Path) -> None:
    """A kernel of no known call or process, a call of no known thread or kernel, and neither is taken for the other's."""
    kernels = [kernel(100, 110, 7, ONE), (120, 150, None, ONE, *kernel(0, 0, 0, 0)[4:]),
               (160, 165, 8, None, *kernel(0, 0, 0, 0)[4:])]  # fmt: skip
    calls = [(50, 7, ONE + 1), (60, None, ONE + 1), (70, 8, None)]
    path = export(tmp_path / "a.sqlite", kernels, calls, [(0, 200, ONE + 1, "step"), (40, 80, ONE + 1, "forward")])
    table = nsys_tables.summarise(path).set_index("range")["total_ns"].to_dict()
    assert table == {"forward": 10, "": 35}
    (row,) = nsys_steps.where_time_goes(path).to_dict("records")
    # The step of 200 ns: the GPU worked for 10 and 30 of them; what has no process is not this one's.
    assert (row["wall_ns"], row["busy_ns"], row["launches"], row["launch_call_ns"]) == (200, 40, 2, 1)


def test_only_what_is_declared_is_read(recording: Callable) -> None:
    asked = read_once(recording("nsys/train.sqlite"))[1]
    declared = {
        (table, name) for kind in (export_columns.READ, export_columns.TEXTS) for table in kind for name in kind[table]
    }
    assert len(asked) > 40 and asked <= declared


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"ALTER TABLE {KERNELS} RENAME COLUMN gridX TO gridWidth", r"another layout \(no such column: gridX\): "),
        (f"UPDATE {KERNELS} SET demangledName = NULL",
         f"demangledName in row 1 of {KERNELS} is NULL, which is not a whole number from 0 to 2147483647, as in 4750 of "
         "4750 rows: "),
        (f"UPDATE {KERNELS} SET start = start + 0.5",
         f"start in row 1 of {KERNELS} is '.*' \\(real\\), which is not a whole number, as in 4750 of 4750 rows: "),
    ],
)  # fmt: skip
def test_what_nsys_wrote_itself_is_not_to_be_traced_again(changed: Callable, statement: str, said: str) -> None:
    made = [statement]
    if "NULL" in statement or "0.5" in statement:
        # As the columns are declared NOT NULL, the table is made again without that.
        made = [f"CREATE TABLE other AS SELECT * FROM {KERNELS}", f"DROP TABLE {KERNELS}",
                f"ALTER TABLE other RENAME TO {KERNELS}", *made]  # fmt: skip
    path = changed(*made)
    with pytest.raises(DataError) as error:
        nsys_tables.summarise(path)
    assert re.search(said, str(error.value)), error.value
    assert "nsys 2025.3.2.0 (export schema 3.20.3) w" in str(error.value) and "\n" not in str(error.value)
    assert "delete" not in str(error.value) and "a new trace would be the same" in str(error.value)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            f"UPDATE {KERNELS} SET start = 'x' WHERE rowid = 17",
            f"start in row 17 of {KERNELS} is 'x' (text), which is no",
        ),
        (f"UPDATE {KERNELS} SET end = start - 1 WHERE rowid = 3", f"end in row 3 of {KERNELS} is "),
        (f"UPDATE {KERNELS} SET gridX = -1 WHERE rowid = 3", "which is not a whole number from 0 to 2147483647"),
        ("UPDATE StringIds SET value = x'ff' WHERE rowid = 3", "value in row 3 of StringIds is "),
        ("DELETE FROM StringIds WHERE id IN (SELECT shortName FROM CUPTI_ACTIVITY_KIND_KERNEL)", "kernel's name is"),
    ],
)
def test_what_may_have_been_changed_is_to_be_traced_again_once(changed: Callable, statement: str, said: str) -> None:
    with pytest.raises(DataError) as error:
        nsys_tables.summarise(changed(statement))
    assert said in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).endswith(
        "delete it, and the next run traces the cell again; if the new trace has the same, this nsys writes it so: use "
        "another one"
    )


def test_an_export_that_was_cut_off_is_to_be_traced_again(tmp_path: Path, recording: Callable) -> None:
    path = tmp_path / "cut.sqlite"
    path.write_bytes(recording("nsys/train.sqlite").read_bytes()[:200_000])
    with pytest.raises(DataError, match=r"malformed: delete it, and the next run traces the cell again$"):
        nsys_tables.summarise(path)
