"""Readers of CSV, sidecars, SQLite and traces: a name stays text whatever it is, and what is damaged is named."""

import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from profzoo import zoo_tables
from profzoo.errors import DataError
from profzoo.figures import plots, top_kernels
from profzoo.io import column_types, sidecars
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tables import cell_tables, kernel_table
from profzoo.tools.ncu import details_page, export_schema
from profzoo.tools.ncu import export as ncu_export
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import export as nsys_export
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.torch import trace as torch_trace
from tests import slow
from tests.faults.mutations import NAMES, NO_NUMBERS

TABLE = reading.Table(
    columns={
        "name": column_types.TEXT,
        "count": column_types.COUNT,
        "ns": column_types.AMOUNT,
        "share": column_types.or_missing(column_types.NUMBER),
    },
    key=["name"],
)
FACTS = {"cell": {"window": 10}, "capture": "window", "device_type": "cuda", "step_ns": 5e6}
KERNEL = {"name": "k", "cat": "kernel", "ts": 1.0, "dur": 2, "args": {"correlation": 1}}
MOST = "SELECT mangledName FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1 ORDER BY sum(end - start) DESC LIMIT 1"


def refused(read: Callable[[Path], object], path: Path, said: str, cure: str = "delete it") -> None:
    """That a file is refused by one line, which names the file, what is wrong, and what to do."""
    with pytest.raises(DataError) as error:
        read(path)
    line = str(error.value)
    assert "\n" not in line and str(path) in line and cure in line and re.search(said, line), line


def read(path: Path) -> pd.DataFrame:
    return reading.read(path, TABLE)


def test_names_stay_what_they_are(tmp_path: Path) -> None:
    names = [*NAMES, "\r", "a\rb"]
    frame = pd.DataFrame({"name": names, "count": range(len(names)), "ns": 0.5, "share": None})
    write_csv(frame, tmp_path / "t.csv")
    table = read(tmp_path / "t.csv")
    assert table["name"].tolist() == names
    assert table["count"].tolist() == list(range(len(names))) and table["share"].isna().all()


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_what_is_no_number_is_refused(tmp_path: Path, number: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f'name,count,ns,share\nf,1,2,0.5\ng,2,"{number}",0.5\n')
    refused(read, path, r"column ns, row 2 holds .*, which is no number from 0 on")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("name,count,ns,share\nf,1,2,0.5", "cut off"),
        ("name,count,ns\nf,1,2\n", "no column share"),
        ("name,count,ns,share,ns\nf,1,2,0.5,2\n", "two columns 'ns'"),
        ("name,count,ns,share,more\nf,1,2,0.5,2\n", "an unknown column 'more'"),
        ("name,count,ns,share\nf,1,2\n", "row 1 has 3 fields, but the heading has 4"),
        ("name;count;ns;share\nf;1;2;0.5\n", "no column name"),
        ('name,count,ns,share\n"f,1,2,0.5\n', "damaged: unexpected end of data"),
        ("name,count,ns,share\nf,1,2,0.5\nf,1,2,0.5\n", "row 2 occurs twice"),
        ("name,count,ns,share\nf,1.5,2,0.5\n", "row 1 holds '1.5', which is no whole number"),
        ("name,count,ns,share\nf,,2,0.5\n", "row 1 holds nothing, which is no whole number"),
        ("name,count,ns,share\nf,99999999999999999999,2,0.5\n", "beyond what is counted"),
        (b"name,count,ns,share\n\xff,1,2,0.5\n", "byte 20 is no UTF-8"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(read, path, said)


@pytest.mark.parametrize(
    ("content", "same"),
    [
        # Cut off or of another version, of which a new one will not be.
        ("name,count,ns,share\nf,1,2,0.5", False),
        ("name,count,ns\nf,1,2\n", False),
        # Whole, and of what made it: it may be made so again.
        ("name,count,ns,share\nf,1,x,0.5\n", True),
        ("name,count,ns,share\nf,1,2,0.5\nf,1,2,0.5\n", True),
    ],
)
def test_of_a_whole_table_is_said_what_to_do_if_a_new_one_is_the_same(tmp_path: Path, content: str, same: bool) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(DataError) as error:
        read(path)
    assert str(error.value).endswith("; if the new one is refused as well, report it") == same


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    refused(read, tmp_path / "gone.csv", "cannot be read: No such file", cure="")
    refused(lambda path: sidecars.read_sidecar(path, {}), tmp_path, "cannot be read: Is a directory", cure="")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no JSON, or damaged"),
        ("[1]", "it is no object but"),
        ('{"steps": 1', "no JSON, or damaged"),
        ('{"steps": 1, "steps": 2, "cell": {"window": 1}}', "the key steps occurs twice"),
        ('{"cell": {"window": 1}}', "has no key steps"),
        ('{"steps": "1", "cell": {"window": 1}}', "steps is '\"1\"', which is no whole number from 1 on"),
        ('{"steps": true, "cell": {"window": 1}}', "steps is 'true'"),
        ('{"steps": 1' + "0" * 400 + ', "cell": {"window": 1}}', "steps is '1000"),
        ('{"steps": 1, "cell": {"window": 1}, "loss": -1' + "0" * 400 + "}", "loss is '-1000"),
        ('{"steps": NaN, "cell": {"window": 1}}', "steps is 'NaN'"),
        ('{"steps": 1, "cell": []}', r"cell is no object but '\[\]'"),
        ('{"steps": 1, "cell": {"window": 0}}', "cell.window is '0'"),
        ('{"steps": 1, "cell": {"window": 1}, "loss": "x"}', "loss is '\"x\"', which is no number"),
        ("[" * 100_000, "no JSON, or damaged"),
    ],
)
def test_damaged_sidecars_are_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "s.json").write_text(content)
    needs = {"steps": sidecars.SEVERAL, "cell": {"window": sidecars.SEVERAL}, "loss?": sidecars.NUMBER}
    refused(lambda path: sidecars.read_sidecar(path, needs), tmp_path / "s.json", said)


@pytest.fixture
def trace(tmp_path: Path, recording: Callable) -> Path:
    """A recorded nsys export that may be changed."""
    return Path(shutil.copy(recording("nsys/train.sqlite"), tmp_path / "t.sqlite"))


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


@pytest.mark.parametrize(
    "name", slow.only(["null", "NA", "nan", "None", "", r"$\q_1$", 'a"b,c\r\n'], "null", "", 'a"b,c\r\n')
)
def test_a_kernel_of_any_name_keeps_its_time(tmp_path: Path, trace: Path, name: str) -> None:
    with closing(sqlite3.connect(trace)) as database:
        database.execute("UPDATE StringIds SET value = ? WHERE id = " + f"({MOST})", (name,))
        database.execute(
            "UPDATE StringIds SET value = ? WHERE id IN (SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE "
            f"mangledName = ({MOST}))", (name,),
        )  # fmt: skip
        database.commit()
    sidecar, csv, steps, joined = (tmp_path / one for one in ("s.json", "n.csv", "steps.csv", "k.csv"))
    sidecar.write_text(json.dumps(FACTS))
    nsys_export.main(str(trace), str(sidecar), str(csv), str(steps), str(tmp_path / "n.json"))
    kernel_table.main(str(csv), str(sidecar), [], None, str(joined))
    table = reading.read(joined, kernel_table.TABLE)
    assert table["share"].sum() == pytest.approx(1) and table.loc[table["kernel"] == name, "share"].sum() > 0.01
    cell = {"model": "m", "phase": "train"}
    activity = cell_tables.activity([("nsys", cell, reading.read(csv, nsys_tables.TABLE), FACTS)])
    write_csv(activity, tmp_path / "a.csv")
    again = zoo_tables.read_table("activity", tmp_path / "a.csv")
    assert again["name"].tolist() == activity["name"].tolist() and again["share"].sum() == pytest.approx(1)
    plots.save_figure(top_kernels.draw(again, top=20), [str(tmp_path / "f.svg")], "note")
    plt.close("all")
    assert (tmp_path / "f.svg").stat().st_size


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'x' WHERE rowid = 5", "row 5 of CUPTI_ACTIVITY_KIND_KERNEL"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 1.5 WHERE rowid = 5", "row 5 of CUPTI_ACTIVITY_KIND_KERNEL"),
        (
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE rowid = 7",
            "row 7 of CUPTI_ACTIVITY_KIND_KERNEL",
        ),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET blockX = 4096 WHERE rowid = 7", "row 7 of CUPTI_ACTIVITY_KIND_KERNEL"),
        ("UPDATE StringIds SET value = x'ff' WHERE id = 9", "row 9 of StringIds"),
        (f"DELETE FROM StringIds WHERE id = ({MOST})", "a kernel's name is string .* none of that number"),
        ("DROP TABLE StringIds", "no table StringIds"),
        ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN gridX TO x", "no such column: .*gridX"),
    ],
)
def test_a_trace_with_impossible_values_is_refused(trace: Path, statement: str, said: str) -> None:
    change(trace, statement)
    # A new trace would be the same where nsys makes tables otherwise.
    refused(nsys_tables.summarise, trace, said, "newer profzoo" if "RENAME" in statement else "delete it")


def test_a_damaged_trace_is_refused(trace: Path) -> None:
    whole = trace.read_bytes()
    trace.write_bytes(whole[: len(whole) // 2])
    refused(nsys_tables.summarise, trace, "damaged")
    trace.write_bytes(whole[:8192] + bytes(8192) + whole[16384:])
    refused(nsys_tables.summarise, trace, "damaged")
    trace.write_bytes(whole.replace(b"blockX", b"[lockX", 1))
    refused(nsys_tables.summarise, trace, "malformed database schema")
    trace.write_bytes(b"")
    refused(nsys_tables.summarise, trace, "it is empty")


@pytest.mark.parametrize(
    "event",
    [
        KERNEL | {"dur": "2"},
        KERNEL | {"dur": -1},
        KERNEL | {"dur": 1e300},
        KERNEL | {"ts": float("nan")},
        KERNEL | {"ts": 10**400},
        KERNEL | {"name": None},
        KERNEL | {"cat": {}},
        KERNEL | {"cat": ["kernel"]},
        KERNEL | {"args": []},
        KERNEL | {"args": {"correlation": 10**400}},
        {key: value for key, value in KERNEL.items() if key != "args"},
        7,
    ],
)
def test_events_without_what_they_are_read_for_are_refused(tmp_path: Path, event: object) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [event]}).encode()))
    refused(torch_trace.read_trace, path, "event 0 is .* would be in another trace as well", "report it")


def test_a_damaged_trace_of_torch_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    for content in (
        b"",
        b"x",
        gzip.compress(b'{"traceEvents": []}')[:-3],
        gzip.compress(b"[1]"),
        gzip.compress(b"\xff"),
    ):
        path.write_bytes(content)
        refused(torch_trace.read_trace, path, "is (no trace of torch.profiler|damaged)")


def changed_page(tmp_path: Path, recording: Callable, old: str, new: str) -> Path:
    text = recording("ncu/launch.raw.mangled.csv").read_text()
    assert old in text
    path = tmp_path / "p.csv"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"ID",', '"IDs",', "holds no launch"),
        ('"Grid Size"', '"Grid"', "no column Grid Size"),
        ('\n"1",', '\n"0",', "launch 0 occurs twice"),
        ('\n"1",', '\n"x",', "row 2 has launch 'x'"),
    ],
)
def test_damaged_pages_of_ncu_are_refused(tmp_path: Path, recording: Callable, old: str, new: str, said: str) -> None:
    refused(ncu_tables.read_raw, changed_page(tmp_path, recording, old, new), said, cure="")


def test_a_page_without_its_row_of_units_is_refused(tmp_path: Path, recording: Callable) -> None:
    lines = recording("ncu/launch.raw.mangled.csv").read_text().splitlines(keepends=True)
    heading = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    path = tmp_path / "p.csv"
    path.write_text("".join([*lines[: heading + 1], *lines[heading + 2 :]]))
    refused(ncu_tables.read_raw, path, "no row of units", cure="report it")


@pytest.mark.parametrize("line", [1, 60, 300])
def test_tables_of_which_a_row_is_missing_are_refused(tmp_path: Path, recording: Callable, line: int) -> None:
    pages = [str(recording(f"ncu/launch.raw.{kind}.csv")) for kind in ("mangled", "demangled")]
    census, traced = tmp_path / "census.census_csv_name", tmp_path / "nsys.csv"
    write_csv(ncu_export.tabulate_report({1: pages}, {"command": []}, None, "all").table, census)
    write_csv(nsys_tables.summarise(recording("nsys/train.sqlite")), traced)
    tables = [(census, export_schema.read_census), (traced, lambda path: reading.read(path, nsys_tables.TABLE))]
    for path, reader in tables:
        reader(path)
        lines = path.read_text().splitlines(keepends=True)
        del lines[line if line < len(lines) else -1]
        path.write_text("".join(lines))
        refused(reader, path, "rows are missing")


def test_pages_of_other_launches_are_refused(tmp_path: Path, recording: Callable) -> None:
    lines = recording("ncu/launch.raw.demangled.csv").read_text().splitlines(keepends=True)
    other = tmp_path / "p.csv"
    other.write_text("".join(lines[:-1]))
    pages = [str(recording("ncu/launch.raw.mangled.csv")), str(other)]
    with pytest.raises(DataError, match=r"p\.csv does not hold the launches of .*mangled\.csv"):
        ncu_export.tabulate_report({1: pages}, {"command": []}, None, "all")


def test_a_damaged_page_of_details_is_refused(tmp_path: Path, recording: Callable) -> None:
    text, path = recording("ncu/launch.details.csv").read_text(), tmp_path / "d.csv"
    for old, new, said in [
        ('"Metric Value"', '"Value"', "fields, but the heading"),
        ('"Section Name"', '"Section"', "no column Section Name"),
        ('\n"0",', '\n"x",', "column ID, row 1 holds 'x'"),
    ]:
        path.write_text(text.replace(old, new, 1))
        # What a page says is what ncu prints of the report each time.
        refused(
            details_page.read_details,
            path,
            said,
            "delete it" if "fields" in said else "ncu would print it so again: report it",
        )
    path.write_text(text[: len(text) // 2])
    refused(details_page.read_details, path, "damaged|cut off|fields")


SMALL = reading.Table(columns={"name": column_types.TEXT, "ns": column_types.COUNT})


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_a_table_in_parts_is_the_whole(tmp_path: Path, count: int) -> None:
    path = tmp_path / "t.csv"
    # A cell may hold the end of a line, at which no part ends.
    path.write_text('name,ns\na,1\n"b\nb",2\n"c ""\n""",3\nd,4\n')
    found = list(reading.parts(path, SMALL, count))
    assert (
        pd.concat(found)["name"].tolist() == reading.read(path, SMALL)["name"].tolist() == ["a", "b\nb", 'c "\n"', "d"]
    )
    assert len(found) > 1 or count > 4
    path.write_text("name,ns\n")
    assert [len(part) for part in reading.parts(path, SMALL, count)] == [0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"name,ns\na,1\nb,2", "after row 1 is cut off"),
        (b"name,ns\na,1\nb,x\n", "after row 1: column ns, row 1 holds 'x'"),
        (b"name,ns\na,1\n\xff,2\n", "after row 1 is damaged: byte 8 is no UTF-8"),
        (b"name\na\n", "has no column ns"),
    ],
)
def test_a_part_that_is_damaged_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    refused(lambda path: list(reading.parts(path, SMALL, 1)), tmp_path / "t.csv", said)


def test_a_table_in_parts_that_is_not_there_is_named(tmp_path: Path) -> None:
    refused(lambda path: list(reading.parts(path, SMALL)), tmp_path / "t.csv", "cannot be read", cure="")
