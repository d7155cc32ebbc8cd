"""Exports of nsys made elsewhere: a recording changed to what other versions and programs leave gives the same tables."""

import gzip
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.foreign_reports import nsys_import, nsys_stats
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import read_json
from profzoo.tools.nsys import tables
from tests import slow
from tests.conftest import DATA
from tests.traced_programs import Foreign

Change = Callable[[sqlite3.Connection], None]
KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


def imported(source: Path, folder: Path, step: str | None = None) -> tuple[pd.DataFrame, pd.DataFrame, dict, list[str]]:
    """Launches, steps, sidecar, and what was said."""
    folder.mkdir(exist_ok=True)
    said: list[str] = []
    made = {"sqlite": str(folder / "imported.nsys.sqlite"), "sidecar": str(folder / "imported.nsys-rep.json")}
    before = source.read_bytes()
    nsys_import.main(str(source), "run7", step, made, said.append)
    assert source.read_bytes() == before
    names = [str(folder / name) for name in ("nsys.csv", "steps.csv", "nsys.csv.json")]
    tables.export_trace(made["sqlite"], made["sidecar"], *names, said.append)
    return pd.read_csv(names[0], keep_default_na=False), pd.read_csv(names[1]), read_json(made["sidecar"]), said


def changed(recording: Callable[[str], str], path: Path, *changes: Change) -> Path:
    shutil.copyfile(recording("nsys/train.sqlite"), path)
    with closing(sqlite3.connect(path)) as database:
        for change in changes:
            change(database)
        database.commit()
    return path


def sql(*words: str) -> Change:
    def change(database: sqlite3.Connection) -> None:
        for one in words:
            database.execute(one)

    return change


@pytest.fixture(scope="module")
def expected(recording, tmp_path_factory) -> tuple[pd.DataFrame, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("nsys")
    return imported(changed(recording, folder / "a.sqlite"), folder / "out")[:2]


# Ranges as a program names them that knows nothing of profzoo, with a number each.
OWN_NAMES = sql(
    "UPDATE NVTX_EVENTS SET text = replace((SELECT value FROM StringIds WHERE id = textId), 'profzoo_', '') "
    "WHERE textId IS NOT NULL",
    "UPDATE NVTX_EVENTS SET textId = NULL WHERE text IS NOT NULL",
    "UPDATE NVTX_EVENTS SET text = replace(text, 'profzoo_', '')",
    "UPDATE NVTX_EVENTS SET text = 'iteration ' || rowid WHERE text = 'step'",
)
FORMS: dict[str, tuple[Change, ...]] = {
    "ranges of the program": (OWN_NAMES,),
    "schema 2, columns that are never read and texts that are not UTF-8": (OWN_NAMES, sql(
        "UPDATE NVTX_EVENTS SET end = 0 WHERE end IS NULL",
        f"ALTER TABLE {KERNELS} DROP COLUMN graphNodeId", "DROP TABLE TARGET_INFO_SESSION_START_TIME",
        "DROP TABLE META_DATA_EXPORT", "DROP TABLE ANALYSIS_DETAILS", f"ALTER TABLE {KERNELS} ADD COLUMN later INTEGER",
        "INSERT INTO StringIds (id, value) VALUES (999999, CAST(x'2fff' AS TEXT))",
        "UPDATE TARGET_INFO_SYSTEM_ENV SET value = CAST(x'ff00' AS TEXT) WHERE name = 'CpuInfo'",
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (1, 2, 59, CAST(x'ff' AS TEXT), 1)",
    )),
    "start and end, no column of processes and no short names": (OWN_NAMES, sql(
        "UPDATE NVTX_EVENTS SET eventType = 60", f"ALTER TABLE {KERNELS} DROP COLUMN shortName",
        *(f"ALTER TABLE {table} DROP COLUMN globalPid" for table in (KERNELS, KERNELS.replace("KERNEL", "MEMCPY"), KERNELS.replace("KERNEL", "MEMSET"))),
    )),
}  # fmt: skip


@pytest.mark.parametrize("form", slow.only(FORMS, *list(FORMS)[1:]))
def test_each_form_gives_the_same_tables(recording, expected, tmp_path, form) -> None:
    launches, steps, sidecar, _ = imported(changed(recording, tmp_path / "a.sqlite", *FORMS[form]), tmp_path / "out")
    same = [name for name in launches if name != "function" or "no short names" not in form]
    pd.testing.assert_frame_equal(launches[same], expected[0][same])
    pd.testing.assert_frame_equal(steps, expected[1])
    assert sidecar["steps"] == 10 and sidecar["imported"]["steps_from"].startswith("the ranges iteration ")


def test_a_gzipped_export_gives_the_same_tables_and_facts(recording, expected, tmp_path) -> None:
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(Path(recording("nsys/train.sqlite")).read_bytes(), 1))
    launches, steps, sidecar, _ = imported(packed, tmp_path / "out")
    pd.testing.assert_frame_equal(launches, expected[0])
    pd.testing.assert_frame_equal(steps, expected[1])
    assert sidecar["imported"]["files"][0]["file"] == str(packed) and sidecar["tool_version"].endswith("2025.3.2.0")
    found = sidecar["device"], sidecar["started"][:10], sidecar["driver"]
    assert found == ("NVIDIA H200", "2026-11-20", "580.159.04")


def test_repetition_tells_steps_where_there_are_no_ranges(recording, expected, tmp_path) -> None:
    """Kernels without mangled names are told apart by others."""
    change = sql("DELETE FROM NVTX_EVENTS", f"ALTER TABLE {KERNELS} DROP COLUMN mangledName")
    launches, steps, sidecar, said = imported(changed(recording, tmp_path / "a.sqlite", change), tmp_path / "out")
    assert launches["launches"].sum() == expected[0]["launches"].sum() == 4750
    assert launches["mangled"].tolist() == launches["kernel"].tolist()
    assert sidecar["imported"]["steps_from"].startswith("repetition: the same ") and sidecar["steps"] >= 9
    assert steps["launches"].item() == expected[1]["launches"].item() == 475
    assert "repetition" in said[0]


def test_without_steps_the_whole_trace_is_one(recording, tmp_path) -> None:
    # No two launches of a kernel any more.
    change = sql("DELETE FROM NVTX_EVENTS", f"DELETE FROM {KERNELS} WHERE rowid % 7 = 3 AND rowid < 2000")
    launches, steps, sidecar, _ = imported(changed(recording, tmp_path / "a.sqlite", change), tmp_path / "out")
    assert sidecar["imported"]["steps_from"] == "the whole trace" and sidecar["capture"] == "window"
    assert sidecar["imported"]["whole"] and steps["steps"].item() == 1
    assert launches["share"].astype(float).sum() == pytest.approx(1)


def test_lost_calls_and_launches_outside_steps_are_told(recording, tmp_path) -> None:
    lost = sql(
        f"DELETE FROM {CALLS} WHERE correlationId IN (SELECT correlationId FROM {KERNELS} LIMIT 5)",
        "DELETE FROM NVTX_EVENTS WHERE text LIKE 'iteration%' AND start = "
        "(SELECT min(start) FROM NVTX_EVENTS WHERE text LIKE 'iteration%')",
    )
    launches, _, sidecar, said = imported(changed(recording, tmp_path / "a.sqlite", OWN_NAMES, lost), tmp_path / "out")
    assert any("5 of 4,750 launches" in line and "have no launching call" in line for line in said)
    assert any("are in no step" in line for line in said) and sidecar["steps"] == 9
    assert set(launches.loc[launches["range"] == "outside", "share"]) == {""}


def test_each_of_several_processes_has_its_steps(recording, tmp_path) -> None:
    other = 1 << 30

    def twice(database: sqlite3.Connection) -> None:
        for table in (KERNELS, CALLS, "NVTX_EVENTS"):
            names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            moved = [f"{name} + {other}" if name in ("globalPid", "globalTid") else name for name in names]
            database.execute(f"INSERT INTO {table} SELECT {', '.join(moved)} FROM {table}")

    path = changed(recording, tmp_path / "a.sqlite", OWN_NAMES, twice)
    _, steps, sidecar, said = imported(path, tmp_path / "out")
    assert len(steps) == 2 and steps["launches"].tolist() == [475, 475]
    assert any("it is of 2 processes" in line for line in said) and sidecar["steps"] == 10


PRINTED = """Generating SQLite file a.sqlite from a.nsys-rep
Processing [a.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Strm,Name
"""


def traced_text(database: sqlite3.Connection, factor: int = 1) -> str:
    """What `nsys stats` prints of all work of the GPU."""
    rows = database.execute(
        f"SELECT k.start, k.end - k.start, correlationId, gridX, gridY, gridZ, blockX, blockY, blockZ, "
        f"registersPerThread, '0.000', '0.000', '', streamId, value FROM {KERNELS} k JOIN StringIds s "
        "ON s.id = k.demangledName ORDER BY k.start"
    ).fetchall()
    lines = [
        ",".join([*(str(value) for value in (row[0], row[1] / factor, *row[2:14])), f'"{row[14]}"']) for row in rows
    ]
    copy = "0,500,7,,,,,,,,,,1.0,7,[CUDA memcpy Host-to-Device]"
    return (
        PRINTED.replace("Duration (ns)", {1: "Duration (ns)", 1000: "Duration:dur_us"}[factor])
        + "\n".join([copy, *lines])
        + "\n\nProcessing [a.sqlite] with [cuda_gpu_sum.py]...\n"
    )


@pytest.mark.parametrize("factor", slow.first([1000, 1]))
def test_a_printed_trace_of_the_gpu_gives_the_same_kernels(recording, expected, tmp_path, factor) -> None:
    with closing(sqlite3.connect(recording("nsys/train.sqlite"))) as database:
        text = traced_text(database, factor)
    (tmp_path / "a.csv").write_text(text)
    launches, _, sidecar, said = imported(tmp_path / "a.csv", tmp_path / "out")
    sums = [table.groupby("kernel")[["launches", "total_ns"]].sum() for table in (launches, expected[0])]
    pd.testing.assert_frame_equal(*sums)
    assert sidecar["imported"]["steps_from"].startswith("repetition: the same 475 launches")
    assert any("have no launching call" in line for line in said)


def test_a_summary_gives_sums_by_kernel_and_no_more(expected, tmp_path) -> None:
    text = (DATA / "nsys/cuda_gpu_kern_sum.csv").read_text()
    (tmp_path / "sum.csv").write_text(f"loss 2.3, 4\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n{text}\n")
    names = {"csv": "n.csv", "steps": "s.csv", "told": "n.json", "sqlite": "x.sqlite", "sidecar": "rep.json"}
    made = {name: str(tmp_path / file) for name, file in names.items()}
    said: list[str] = []
    nsys_stats.import_stats(str(tmp_path / "sum.csv"), "run7", made, said.append)
    table = reading.read(made["csv"], tables.TABLE)
    own = pd.read_csv(DATA / "nsys/cuda_gpu_kern_sum.csv")
    assert table.set_index("kernel")["total_ns"].to_dict() == own.set_index("Name")["Total Time (ns)"].to_dict()
    # It is of twice as many steps as the export.
    launches = [one.groupby("kernel")["launches"].sum() for one in (table, expected[0])]
    assert (launches[0] == 2 * launches[1]).all()
    assert table["grid_x"].eq(0).all() and "it is a summary" in said[0]
    assert read_json(made["sidecar"])["device"] == "unknown GPU"


def no_kernels(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.commit()


REFUSED: dict[str, Callable[[Path], object]] = {
    "holds no summary of kernels and no trace of the GPU": lambda path: path.write_text("a,b\n"),
    "holds no kernel": no_kernels,
    "is damaged": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\1" * 2000),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path, why) -> None:
    REFUSED[why](tmp_path / "a.sqlite")
    with pytest.raises(DataError, match=why) as error:
        imported(tmp_path / "a.sqlite", tmp_path / "out")
    assert "\n" not in str(error.value) and str(tmp_path / "a.sqlite") in str(error.value)


def test_a_report_without_nsys_is_refused_with_what_to_type(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.nsys-rep").write_bytes(b"report")
    with pytest.raises(DataError, match="nsys is not on PATH: where it is, type `nsys export"):
        imported(tmp_path / "a.nsys-rep", tmp_path / "out")


def recorded_program(steps: int = 4, kernels: int = 4) -> Foreign:
    """A program of 4 kernels per step, of 0.5 ms each, at 1 ms from each other."""
    made = Foreign()
    for step in range(steps):
        made.range(f"step {step}", step * 10_000, step * 10_000 + 9000)
        for place in range(kernels):
            made.launch("k", step * 10_000 + place * 1000)
    return made


OVER = {
    "over ten": ({"us": 3_200_000}, r"launch 6 \(k\) lasts 3\.200 s, in a trace of 0\.033 s"),
    "over two": ({"us": 2600}, r"launch 6 \(k\) runs over 2 that follow it in its stream, 0\.002600 s"),
    "before its call": ({"at": 9_000}, r"launch 6 \(k\) begins 1\.750 ms before it is launched"),
    "end before begin": ({"us": -300}, r"launch 6 \(k\) ends 0\.300 ms before it begins"),
    "no times": ({"at": -250, "us": 0}, r"launch 6 \(k\) begins and ends at 0"),
}


@pytest.mark.parametrize("case", OVER)
def test_a_kernel_whose_times_cannot_be_is_named_and_left_out(recording, tmp_path, case) -> None:
    given, words = OVER[case]
    path = recorded_program().as_nsys(tmp_path / "a.sqlite", recording("nsys/train.sqlite"))
    one = {"at": 11_000.0, "us": 500.0} | given
    begin = round(one["at"] * 1000) + 250_000
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            f"UPDATE {KERNELS} SET start = ?, end = ? WHERE rowid = 6", (begin, begin + round(one["us"] * 1000))
        )
        database.commit()
    launches, steps, sidecar, said = imported(path, tmp_path / "out")
    assert launches["launches"].sum() == 15 and launches["total_ns"].sum() == 15 * 500_000
    # Of the three steps behind the first, one lacks the kernel: 11 of 0.5 ms.
    assert steps["kernel_ns"].tolist() == pytest.approx([11 * 500_000 / 3])
    assert sidecar["imported"]["gpu_ns"] == [9_000_000] * 4
    assert re.search(rf"1 of 16 launches has times that cannot be and is left out: {words}$", said[1]), said


def test_times_of_which_many_cannot_be_are_refused(recording, tmp_path) -> None:
    path = recorded_program().as_nsys(tmp_path / "a.sqlite", recording("nsys/train.sqlite"))
    with closing(sqlite3.connect(path)) as database:
        sql(f"UPDATE {KERNELS} SET end = start - 1 WHERE rowid % 5 = 1")(database)
        database.commit()
    words = r"a\.sqlite: 4 of 16 launches have times that cannot be, such as launch 1 \(k\) ends"
    with pytest.raises(DataError, match=words):
        imported(path, tmp_path / "out")


def test_kernels_of_other_streams_and_of_a_graph_may_run_side_by_side(recording, tmp_path) -> None:
    for number, change in enumerate(("streamId = 9 WHERE rowid = 6", "graphNodeId = rowid")):
        path = recorded_program().as_nsys(tmp_path / f"{number}.sqlite", recording("nsys/train.sqlite"))
        with closing(sqlite3.connect(path)) as database:
            sql(f"UPDATE {KERNELS} SET end = start + 5000000 WHERE rowid = 6", f"UPDATE {KERNELS} SET {change}")(
                database
            )
            database.commit()
        launches, _, _, said = imported(path, tmp_path / "out")
        assert launches["total_ns"].sum() == 15 * 500_000 + 5_000_000 and len(said) == 1


SUMS = """Time (%),Total Time (UNIT),Instances,Avg (UNIT),Med (UNIT),Min (UNIT),Max (UNIT),StdDev (UNIT),Name
50.0,1000,10,100.0,100.0,90,110,5.0,k1
50.0,1000,5,200.0,200.0,190,210,5.0,"void k2<int>(int, float)"
"""
UNITS = {"ns": 1, "nsec": 1, "microseconds": 10**3, "usec": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "us": 10**3,
         "ms": 10**6, "Milliseconds": 10**6, "s": 10**9, "sec": 10**9, "": 1}  # fmt: skip


def test_times_are_read_in_the_unit_of_their_column(tmp_path) -> None:
    for unit, ns in UNITS.items():
        (tmp_path / "a.csv").write_text(SUMS.replace("UNIT", unit) if unit else SUMS.replace(" (UNIT)", ""))
        found = nsys_stats.read_stats(tmp_path / "a.csv").table
        assert found["total_ns"].tolist() == [1000 * ns] * 2 and found["mean_ns"].tolist() == [100 * ns, 200 * ns], unit


@pytest.mark.parametrize("unit", ["ticks", "min", "%", "10 ns"])
def test_an_unknown_unit_is_refused(tmp_path, unit) -> None:
    trace = "Start (UNIT),Duration (UNIT),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Name\n0,5,1,1,1,1,32,1,1,k\n"
    for text in (SUMS, trace):
        (tmp_path / "a.csv").write_text(text.replace("UNIT", unit))
        with pytest.raises(DataError, match=rf"column '.*\({unit}\)' is in a unit of time that is not known: print it"):
            nsys_stats.read_stats(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("total", "launches", "unit", "sound"),
    [
        # Of ten launches of 100 ns at the least and the most: a hundredth and one unit less or more.
        (980, 10, 1, True), (979, 10, 1, False), (1020, 10, 1, True), (1021, 10, 1, False),
        (890, 10, 10, True), (889, 10, 10, False), (1110, 10, 10, True), (1111, 10, 10, False),
        (100, 1, 1, True), (100, 0, 1, False), (-1, 1, 200, False),
    ],
)  # fmt: skip
def test_sums_are_between_the_least_and_the_most(total: float, launches: float, unit: int, sound: bool) -> None:
    row = {"name": "k", "total_ns": total, "launches": launches, "min_ns": 100.0, "max_ns": 100.0}
    table = pd.DataFrame([{**row, "total_ns": 100.0, "launches": 1.0, "name": "fine"}, row])
    # Without least and most, only what is below 0, or of no launch, cannot be.
    bare = table.drop(columns=["min_ns", "max_ns"])
    for given, fine in ((table, sound), (bare, total >= 0 and launches > 0), (table.drop(columns="total_ns"), True)):
        if fine:
            assert nsys_stats._checked("a.csv", given, unit) is given
        else:
            with pytest.raises(DataError, match=r"a\.csv: the sums of kernel k cannot be"):
                nsys_stats._checked("a.csv", given, unit)


def test_a_summary_is_a_table_of_launches_by_kernel_and_size() -> None:
    """Two rows of one kernel and size are one: their times add up, and their median is not known."""
    found = pd.DataFrame({"name": ["a", "b<int>(int)", "a", "a"], "launches": [2, 4, 3, 1],
                          "total_ns": [200.0, 500.4, 210.0, 90.0], "median_ns": [100.0, 120.0, 70.0, 90.0],
                          "std_ns": [1.0, 2.0, 3.0, 0.0], "min_ns": [90.0, 80.0, 60.0, 90.0],
                          "max_ns": [110.0, 130.0, 75.0, 90.0], "grid": ["   8    2    1", "4 1 1", "(8, 2, 1)", "9 1 1"],
                          "block": ["32 1 1", "", "32 1 1", "32 1"]})  # fmt: skip
    rows = nsys_stats._grouped(found).to_dict("records")
    numbers = [[row[name] for name in ("kernel", "function", "launches", "total_ns", "mean_ns", "min_ns", "max_ns")]
               for row in rows]  # fmt: skip
    assert numbers == [["b<int>(int)", "b", 4, 500, 125.1, 80, 130], ["a", "a", 5, 410, 82, 60, 110],
                       ["a", "a", 1, 90, 90, 90, 90]]  # fmt: skip
    assert [[row[f"{what}_{axis}"] for what in ("grid", "block") for axis in "xyz"] for row in rows] == [
        [4, 1, 1, 0, 0, 0], [8, 2, 1, 32, 1, 1], [9, 1, 1, 0, 0, 0]]  # fmt: skip
    assert [row["share"] for row in rows] == pytest.approx([0.5, 0.41, 0.09])
    assert rows[0]["median_ns"] == 120 and rows[2]["std_ns"] == 0
    assert pd.isna(rows[1]["median_ns"]) and pd.isna(rows[1]["std_ns"])


def test_rows_end_where_the_table_does_and_empty_fields_are_not_known(tmp_path) -> None:
    text = (
        'Time (%),Total Time (us),Instances,Min (us),Max (us),Name\n50.0,"1,000",10,-,,k1\n\nProcessing\n1,2,3,4,5,x\n'
    )
    (tmp_path / "a.csv").write_text(f"some output\n{text}")
    found = nsys_stats.read_stats(tmp_path / "a.csv")
    assert found.kind == nsys_stats.SUMMARY and found.table["total_ns"].tolist() == [1e6]
    assert found.table["launches"].tolist() == [10] and found.table[["min_ns", "max_ns"]].isna().all(axis=None)
