"""Exports of nsys made elsewhere: a recording changed to what other versions and programs leave gives the same tables."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.foreign_reports import nsys_import, nsys_stats_import
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import read_json
from profzoo.tools.nsys import export
from profzoo.tools.nsys import tables as nsys_tables
from tests.conftest import DATA

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
    export.main(made["sqlite"], made["sidecar"], *names, said.append)
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
    "start and end": (OWN_NAMES, sql("UPDATE NVTX_EVENTS SET eventType = 60")),
    "schema 2": (OWN_NAMES, sql(
        "UPDATE NVTX_EVENTS SET end = 0 WHERE end IS NULL",
        f"ALTER TABLE {KERNELS} DROP COLUMN graphNodeId", "DROP TABLE TARGET_INFO_SESSION_START_TIME",
        "DROP TABLE META_DATA_EXPORT", "DROP TABLE ANALYSIS_DETAILS",
    )),
    "columns that are never read": (OWN_NAMES, sql(f"ALTER TABLE {KERNELS} ADD COLUMN later INTEGER")),
    "no column of processes": (OWN_NAMES, sql(
        f"ALTER TABLE {KERNELS} DROP COLUMN globalPid", "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN globalPid",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMSET DROP COLUMN globalPid",
    )),
    "texts that are no UTF-8": (OWN_NAMES, sql(
        "INSERT INTO StringIds (id, value) VALUES (999999, CAST(x'2fff' AS TEXT))",
        "UPDATE TARGET_INFO_SYSTEM_ENV SET value = CAST(x'ff00' AS TEXT) WHERE name = 'CpuInfo'",
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (1, 2, 59, CAST(x'ff' AS TEXT), 1)",
    )),
    "no short names": (OWN_NAMES, sql(f"ALTER TABLE {KERNELS} DROP COLUMN shortName")),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_tables(recording, expected, tmp_path, form) -> None:
    launches, steps, sidecar, _ = imported(changed(recording, tmp_path / "a.sqlite", *FORMS[form]), tmp_path / "out")
    same = [name for name in launches if name != "function" or form != "no short names"]
    pd.testing.assert_frame_equal(launches[same], expected[0][same])
    pd.testing.assert_frame_equal(steps, expected[1])
    assert sidecar["steps"] == 10 and sidecar["imported"]["steps_from"].startswith("the ranges iteration ")


def test_kernels_without_mangled_names_are_told_apart_by_others(recording, expected, tmp_path) -> None:
    change = sql(f"ALTER TABLE {KERNELS} DROP COLUMN mangledName")
    launches, _, _, _ = imported(changed(recording, tmp_path / "a.sqlite", OWN_NAMES, change), tmp_path / "out")
    assert launches["launches"].sum() == expected[0]["launches"].sum() == 4750
    assert launches["mangled"].tolist() == launches["kernel"].tolist()


def test_repetition_tells_steps_where_there_are_no_ranges(recording, expected, tmp_path) -> None:
    _, steps, sidecar, said = imported(
        changed(recording, tmp_path / "a.sqlite", sql("DELETE FROM NVTX_EVENTS")), tmp_path / "out"
    )
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


def test_facts_are_those_of_the_export(recording, tmp_path) -> None:
    _, _, sidecar, _ = imported(changed(recording, tmp_path / "a.sqlite"), tmp_path / "out")
    assert (sidecar["device"], sidecar["started"][:10], sidecar["driver"]) == (
        "NVIDIA H200",
        "2026-11-20",
        "580.159.04",
    )
    assert sidecar["tool_version"].endswith("2025.3.2.0")


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


@pytest.mark.parametrize("factor", [1, 1000])
def test_a_printed_trace_of_the_gpu_gives_the_same_kernels(recording, expected, tmp_path, factor) -> None:
    with closing(sqlite3.connect(recording("nsys/train.sqlite"))) as database:
        text = traced_text(database, factor)
    (tmp_path / "a.csv").write_text(text)
    launches, _, sidecar, said = imported(tmp_path / "a.csv", tmp_path / "out")
    sums = [table.groupby("kernel")[["launches", "total_ns"]].sum() for table in (launches, expected[0])]
    pd.testing.assert_frame_equal(*sums)
    assert sidecar["imported"]["steps_from"].startswith("repetition: the same 475 launches")
    assert any("have no launching call" in line for line in said)


SUMMARIES = {
    "2025": lambda text: text,
    "program output": lambda text: f"loss 2.3, 4\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n{text}\n",
}  # fmt: skip


@pytest.mark.parametrize("form", SUMMARIES)
def test_a_summary_gives_sums_by_kernel_and_no_more(expected, tmp_path, form) -> None:
    text = (DATA / "nsys/cuda_gpu_kern_sum.csv").read_text()
    (tmp_path / "sum.csv").write_text(SUMMARIES[form](text))
    names = {"csv": "n.csv", "steps": "s.csv", "told": "n.json", "sqlite": "x.sqlite", "sidecar": "rep.json"}
    made = {name: str(tmp_path / file) for name, file in names.items()}
    said: list[str] = []
    nsys_stats_import.main(str(tmp_path / "sum.csv"), "run7", made, said.append)
    table = reading.read(made["csv"], nsys_tables.TABLE)
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
