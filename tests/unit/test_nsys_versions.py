"""Exports of nsys from schema 2 to 3.25: columns that come and go, NULL, rows in any order; what of them is refused."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.tools.nsys import export_columns, launches_by_step, median_step, step_sequence
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys import trace as nsys_trace
from profzoo.what_if import tables as replay
from tests.unit.test_nsys_tables import ONE, export, kernel, shuffled

KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
# Columns of NVIDIA's documented schema 3.25 that the recording, of 3.20, does not have.
LATER = {
    KERNELS: {
        "qmdBulkReleaseDone": "INTEGER", "qmdPreexitDone": "INTEGER", "qmdLastCtaDone": "INTEGER",
        "graphId": "INTEGER", "clusterX": "INTEGER", "clusterY": "INTEGER", "clusterZ": "INTEGER",
        "clusterSchedulingPolicy": "INTEGER", "maxPotentialClusterSize": "INTEGER", "maxActiveClusters": "INTEGER",
        "sharedMemoryRequestedPercentage": "INTEGER", "tensorSizeMinusOneElements": "TEXT NOT NULL DEFAULT ''",
    },
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
        "by_step": launches_by_step.read_step_launches(path),
        "host": program.host,
        "gpu": program.gpu,
        "typical": median_step.read_typical_step(path),
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


@pytest.fixture(scope="module")
def known(recording: Callable) -> dict[str, Any]:
    """What is read of the recording as it is."""
    return read_by_all(recording("nsys/train.sqlite"))


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


@pytest.mark.parametrize("filled", [False, True], ids=["NULL", "filled"])
def test_columns_of_later_exports_change_nothing(changed: Callable, known: dict, filled: bool) -> None:
    added = [
        f"ALTER TABLE {table} ADD COLUMN {name} {kind}" for table, more in LATER.items() for name, kind in more.items()
    ]
    # A number beyond those of any column that is read, and a text in one of texts.
    values = [
        f"UPDATE {table} SET {name} = {repr('x') if 'TEXT' in kind else 2**62 + 1}"
        for table, more in LATER.items()
        for name, kind in more.items()
    ]
    assert_same(read_by_all(changed(*added, *(values if filled else []))), known)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_reader_relies_on_the_order_of_rows(tmp_path: Path, recording: Callable, known: dict, seed: int) -> None:
    assert_same(read_by_all(shuffled(recording("nsys/train.sqlite"), tmp_path / "t.sqlite", seed)), known)


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
    """It had the first name of all that are without one."""
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
    """Every column that SQL asks for is declared, with whether it may be NULL or missing."""
    asked: set[tuple[str, str]] = set()

    def note(action: int, first: str | None, second: str | None, *_: Any) -> int:
        if action == sqlite3.SQLITE_READ and first in tables and second:
            asked.add((first or "", second))
        return sqlite3.SQLITE_OK

    tables = {table for table in export_columns.READ if not table.startswith("META")}
    opened = nsys_trace.sqlite3.connect

    class Watched(sqlite3.Connection):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.set_authorizer(note)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nsys_trace.sqlite3, "connect", lambda *given, **named: opened(*given, factory=Watched, **named))
        read_by_all(recording("nsys/train.sqlite"))
    declared = {
        (table, name) for kind in (export_columns.READ, export_columns.TEXTS) for table in kind for name in kind[table]
    }
    assert len(asked) > 40 and {one for one in asked if one[1] not in ("rowid", "ROWID")} - declared == set()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"ALTER TABLE {KERNELS} RENAME COLUMN gridX TO gridWidth", r"another layout \(no such column: k\.gridX\): "),
        (f"UPDATE {KERNELS} SET demangledName = NULL",
         f"demangledName in row 1 of {KERNELS} is NULL, which is no whole number from 0 to 2147483647, as in 4750 of "
         "4750 rows: "),
        (f"UPDATE {KERNELS} SET start = start + 0.5",
         f"start in row 1 of {KERNELS} is '.*' \\(real\\), which is no whole number, as in 4750 of 4750 rows: "),
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
        (f"UPDATE {KERNELS} SET gridX = -1 WHERE rowid = 3", "which is no whole number from 0 to 2147483647"),
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
