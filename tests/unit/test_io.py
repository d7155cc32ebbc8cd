"""Readers of CSV, sidecars, SQLite and traces: a name stays text whatever it is, what is damaged is named; and fast ones."""

import csv
import gzip
import io
import itertools
import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from profzoo.catalog import csv_files
from profzoo.errors import DataError
from profzoo.figures import plots, top_kernels
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars
from profzoo.io.columns import AMOUNT, COUNT, FLAG, MEASURED, NUMBER, TEXT, WHOLE
from profzoo.io.scripts import write_csv
from profzoo.tables import cell_tables, kernel_table, schemas
from profzoo.tools.ncu import export as ncu_export
from profzoo.tools.ncu import export_schema, raw_page
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.torch import trace as torch_trace
from tests import slow
from tests.columns import declare
from tests.faults.mutations import BYTES, NAMES, NO_NUMBERS, TABLES

TABLE = reading.Table(
    columns=declare({"name": TEXT, "count": COUNT, "ns": AMOUNT, "share": NUMBER.or_missing}), key=["name"]
)
FACTS = {"cell": {"window": 10}, "capture": "window", "device_type": "cuda", "step_ns": 5e6}
KERNEL = {"name": "k", "cat": "kernel", "ts": 1.0, "dur": 2, "args": {"correlation": 1}}
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
MOST = "SELECT mangledName FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1 ORDER BY sum(end - start) DESC LIMIT 3"


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
    refused(read, path, r"column ns, row 2 holds .*, which is not a number from 0 on")


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
        ("name,count,ns,share\nf,1.5,2,0.5\n", "row 1 holds '1.5', which is not a whole number"),
        ("name,count,ns,share\nf,,2,0.5\n", "row 1 holds nothing, which is not a whole number"),
        ("name,count,ns,share\nf,99999999999999999999,2,0.5\n", "beyond what is counted"),
        (b"name,count,ns,share\n\xff,1,2,0.5\n", "byte 20 is not UTF-8"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(read, path, said)
    # A whole table of what made it may be made so again.
    with pytest.raises(DataError) as error:
        read(path)
    again = said.endswith(("number", "twice", "counted"))
    assert str(error.value).endswith("; if the new one is refused as well, report it") == again


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    refused(read, tmp_path / "gone.csv", "cannot be read: No such file", cure="")
    refused(lambda path: sidecars.read_sidecar(path, {}), tmp_path, "cannot be read: Is a directory", cure="")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON, or damaged"),
        ("[1]", "it is not an object but"),
        ('{"steps": 1', "not JSON, or damaged"),
        ('{"steps": 1, "steps": 2, "cell": {"window": 1}}', "the key steps occurs twice"),
        ('{"cell": {"window": 1}}', "has no key steps"),
        ('{"steps": "1", "cell": {"window": 1}}', "steps is '\"1\"', which is not a whole number from 1 on"),
        ('{"steps": true, "cell": {"window": 1}}', "steps is 'true'"),
        ('{"steps": 1, "cell": {"window": 1}, "loss": -1' + "0" * 400 + "}", "loss is '-1000"),
        ('{"steps": NaN, "cell": {"window": 1}}', "steps is 'NaN'"),
        ('{"steps": 1, "cell": []}', r"cell is not an object but '\[\]'"),
        ('{"steps": 1, "cell": {"window": 0}}', "cell.window is '0'"),
        ('{"steps": 1, "cell": {"window": 1}, "loss": "x"}', "loss is '\"x\"', which is not a number"),
        ("[" * 100_000, "not JSON, or damaged"),
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


@pytest.mark.parametrize("names", slow.first([["null", "", 'a"b,c\r\n'], ["NA", "nan", r"$\q_1$"], ["None"]]))
def test_kernels_of_any_name_keep_their_time(tmp_path: Path, trace: Path, names: list[str]) -> None:
    with closing(sqlite3.connect(trace)) as database:
        mangled = [row[0] for row in database.execute(MOST)]
        for name, number in zip(names, mangled, strict=False):
            database.execute(
                "UPDATE StringIds SET value = ? WHERE id = ? OR id IN (SELECT demangledName FROM "
                "CUPTI_ACTIVITY_KIND_KERNEL WHERE mangledName = ?)", (name, number, number),
            )  # fmt: skip
        database.commit()
    sidecar, csv, steps, joined = (tmp_path / one for one in ("s.json", "n.csv", "steps.csv", "k.csv"))
    sidecar.write_text(json.dumps(FACTS))
    nsys_tables.export_trace(str(trace), str(sidecar), str(csv), str(steps), str(tmp_path / "n.json"))
    kernel_table.main(str(csv), str(sidecar), [], None, str(joined))
    table = reading.read(joined, kernel_table.TABLE)
    shares = table.groupby("kernel")["share"].sum()
    assert table["share"].sum() == pytest.approx(1) and (shares[[*names]] > 0.01).all()
    cell = {"model": "m", "phase": "train"}
    activity = cell_tables.activity([("nsys", cell, reading.read(csv, nsys_tables.TABLE), FACTS)])
    write_csv(activity, tmp_path / "a.csv")
    again = csv_files.read_table("activity", tmp_path / "a.csv")
    assert again["name"].tolist() == activity["name"].tolist() and again["share"].sum() == pytest.approx(1)
    plots.save_figure(top_kernels.draw(again, top=20), [str(tmp_path / "f.svg")], "note")
    plt.close("all")
    assert (tmp_path / "f.svg").stat().st_size


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"UPDATE {KERNELS} SET gridX = 'x' WHERE rowid = 5", f"row 5 of {KERNELS}"),
        (f"UPDATE {KERNELS} SET gridX = 1.5 WHERE rowid = 5", f"row 5 of {KERNELS}"),
        (f"UPDATE {KERNELS} SET end = start - 1 WHERE rowid = 7", f"row 7 of {KERNELS}"),
        (f"UPDATE {KERNELS} SET blockX = 4096 WHERE rowid = 7", f"row 7 of {KERNELS}"),
        ("UPDATE StringIds SET value = x'ff' WHERE id = 9", "row 9 of StringIds"),
        (f"DELETE FROM StringIds WHERE id IN ({MOST})", "a kernel's name is string .* none of that number"),
        ("DROP TABLE StringIds", "no table StringIds"),
        (f"ALTER TABLE {KERNELS} RENAME COLUMN gridX TO x", "no such column: .*gridX"),
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
    [KERNEL | {"dur": dur} for dur in ("2", -1, 1e300)]
    + [KERNEL | {"ts": ts} for ts in (float("nan"), 10**400)]
    + [KERNEL | {"args": args} for args in ([], {"correlation": 10**400})]
    + [KERNEL | {"name": None}, KERNEL | {"cat": {}}, {key: KERNEL[key] for key in KERNEL if key != "args"}, 7],
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
        refused(torch_trace.read_trace, path, "is (not a trace of torch.profiler|damaged)")


def test_damaged_pages_of_ncu_are_refused(tmp_path: Path, recording: Callable) -> None:
    text, path = recording("ncu/launch.raw.mangled.csv").read_text(), tmp_path / "p.csv"
    for old, new, said in [
        ('"ID",', '"IDs",', "holds no launch"),
        ('"Grid Size"', '"Grid"', "no column Grid Size"),
        ('\n"1",', '\n"0",', "launch 0 occurs twice"),
        ('\n"1",', '\n"x",', "row 2 has launch 'x'"),
    ]:
        assert old in text
        path.write_text(text.replace(old, new, 1))
        refused(raw_page.read_raw, path, said, cure="")
    lines = text.splitlines(keepends=True)
    heading = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    path.write_text("".join([*lines[: heading + 1], *lines[heading + 2 :]]))
    refused(raw_page.read_raw, path, "no row of units", cure="report it")


def test_tables_of_which_a_row_is_missing_are_refused(tmp_path: Path, recording: Callable) -> None:
    pages = [str(recording(f"ncu/launch.raw.{kind}.csv")) for kind in ("mangled", "demangled")]
    census, traced = tmp_path / "census.census_csv_name", tmp_path / "nsys.csv"
    write_csv(ncu_export.tabulate_report({1: pages}, {"command": []}, None, "all").table, census)
    write_csv(nsys_tables.summarise(recording("nsys/train.sqlite")), traced)
    tables = [(census, export_schema.read_census), (traced, lambda path: reading.read(path, nsys_tables.TABLE))]
    for path, reader in tables:
        reader(path)
        whole = path.read_text().splitlines(keepends=True)
        for line in (1, 60, 300):
            lines = whole.copy()
            del lines[line if line < len(whole) else -1]
            path.write_text("".join(lines))
            refused(reader, path, "rows are missing")


def test_a_damaged_page_of_details_is_refused(tmp_path: Path, recording: Callable) -> None:
    text, path = recording("ncu/launch.details.csv").read_text(), tmp_path / "d.csv"
    # What a page says is what ncu prints of the report each time.
    again = "ncu would print it so again: report it"
    for old, new, said, cure in [
        ('"Metric Value"', '"Value"', "fields, but the heading", "delete it"),
        ('"Section Name"', '"Section"', "no column Section Name", again),
        ('\n"0",', '\n"x",', "column ID, row 1 holds 'x'", again),
    ]:
        path.write_text(text.replace(old, new, 1))
        refused(raw_page.read_details, path, said, cure)
    path.write_text(text[: len(text) // 2])
    refused(raw_page.read_details, path, "damaged|cut off|fields")


SMALL = reading.Table(columns=declare({"name": TEXT, "ns": COUNT}))


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


def test_a_part_that_is_damaged_is_named(tmp_path: Path) -> None:
    known = {
        b"": "is empty",
        b"name,ns\na,1\nb,2": "after row 1 is cut off",
        b"name,ns\na,1\nb,x\n": "after row 1: column ns, row 1 holds 'x'",
        b"name,ns\na,1\n\xff,2\n": "after row 1 is damaged: byte 8 is not UTF-8",
        b"name\na\n": "has no column ns",
    }
    for content, said in known.items():
        (tmp_path / "t.csv").write_bytes(content)
        refused(lambda path: list(reading.parts(path, SMALL, 1)), tmp_path / "t.csv", said)


KINDS = {
    "name": TEXT, "whole": WHOLE, "count": COUNT, "number": NUMBER, "ns": AMOUNT,
    "flag": FLAG, "maybe": NUMBER.or_missing, "times": COUNT.or_missing, "metric": MEASURED,
    "range": TEXT,
}  # fmt: skip
ODD_TABLE = reading.Table(columns=declare(KINDS))
# Cells that a kind holds, and each of which turns another parser's head.
ODD: Mapping[str, tuple[str, ...]] = {
    "name": NAMES,
    "range": ("forward", "", '"', "x,y", "1", "1e5"),
    "whole": ("0", "-0", "-5", "5.0", "-5.00", "007", str(2**61), str(2**53 + 1)),
    "count": ("0", "1", "5.0", "12.000", "007", str(2**61)),
    "number": ("0", "-0", "-0.0", "1e5", "1E-5", "2.5e+3", "inf", "-inf", "0.1", "1" + "0" * 30, "5e-324", "1e400"),
    "ns": ("0", "0.30000000000000004", "1e5", "2.4703282292062328e-324", "9007199254740993.0", "inf", str(2**64 - 1)),
    "flag": ("True", "False"),
    "maybe": ("", "-1", "0.5", "", "-1e-300"),
    "times": ("", "3", "3.0", "007", ""),
    "metric": ("", "1", "2.5", "n/a", "1,234", "nan", "inf"),
}
# What no kind of number holds, and pandas takes for one all the same, and the like.
WRONG = (" 5", "5 ", "+5", ".5", "5.", "-.5", "1.e5", "1.E5", "Infinity", "+inf", "INF", "-Infinity", "-", "-i", "5.5", "-1", "1e5",
         "nan", "NaN", "", str(2**62), str(2**63), str(2**64), "5e", "1e+", "- 5", "\t5", "5\x0b", "\u0665", "True", "5.0000000000000000001",
         *NO_NUMBERS)  # fmt: skip


def outcome(read: object, monkeypatch: pytest.MonkeyPatch, path: Path, table: reading.Table, least: int) -> object:
    """What a reader makes of a file: the frame, or its error in words; least: from how many characters on by pandas."""
    monkeypatch.setattr(reading, "MIN_CHARACTERS", least)
    try:
        return read(path, table) if read is reading.read else pd.concat(list(reading.parts(path, table, 3)))
    except DataError as error:
        return str(error)


def alike(path: Path, table: reading.Table, monkeypatch: pytest.MonkeyPatch, read: object = reading.read) -> object:
    """Demand the same of both parsers, bit by bit; returns that."""
    fast, strict = (outcome(read, monkeypatch, path, table, least) for least in (0, 2**60))
    if isinstance(strict, str) or isinstance(fast, str):
        assert fast == strict
        return strict
    assert isinstance(fast, pd.DataFrame) and isinstance(strict, pd.DataFrame)
    pd.testing.assert_frame_equal(fast, strict, check_exact=True, check_index_type="exact", check_column_type="exact")
    for name in strict:
        if strict[name].dtype.kind in "if":
            assert fast[name].to_numpy().tobytes() == strict[name].to_numpy().tobytes(), name
    return strict


def text_of(rows: list[list[str]], **how: object) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, **{"lineterminator": "\n", **how}).writerows([[*KINDS], *rows])  # type: ignore[arg-type]
    return text.getvalue()


@pytest.mark.parametrize("seeds", slow.first([range(6), range(6, 40)]))
def test_tables_of_odd_cells_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    path, fast = tmp_path / "t.csv", 0
    # Without what the strict reader alone reads.
    strict = ("inf", "\r", ".00")
    plain = {name: [one for one in cells if not any(odd in one for odd in strict)] for name, cells in ODD.items()}
    for seed, chosen in itertools.product(seeds, (ODD, plain)):
        draw = random.Random(seed)
        rows = [[draw.choice(chosen[name]) for name in KINDS] for _ in range(draw.randrange(30))]
        path.write_text(text_of(rows, quoting=draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])), newline="")
        assert isinstance(alike(path, ODD_TABLE, monkeypatch), pd.DataFrame)
        alike(path, ODD_TABLE, monkeypatch, reading.parts)
        fast += reading.parse_fast(path.read_text(), KINDS) is not None
    # The strict reader has not read both sides of all of them.
    assert fast > len(seeds) / 4


@pytest.mark.parametrize("name", slow.only(KINDS, "name", "whole", "number", "flag", "maybe"))
def test_cells_of_another_kind_are_named_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path, place = tmp_path / "t.csv", list(KINDS).index(name)
    usual = {"name": "k", "range": "r", "flag": "True"}
    for number, wrong in enumerate(dict.fromkeys([*WRONG, *ODD["number"], *ODD["times"]])):
        rows = [[usual.get(one, "1") for one in KINDS] for _ in range(4)]
        rows[2][place] = wrong
        path.write_text(text_of(rows, quoting=(csv.QUOTE_MINIMAL, csv.QUOTE_ALL)[number % 2]), newline="")
        alike(path, ODD_TABLE, monkeypatch)


@pytest.mark.parametrize("count", slow.first([30, 150]))
def test_random_numbers_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    draw, path = random.Random(11), tmp_path / "t.csv"
    for kind in (WHOLE, COUNT, NUMBER, AMOUNT.or_missing):
        table = reading.Table(columns=declare({"x": kind, "y": TEXT}))
        for _ in range(count):
            cell = "".join(draw.choice("00112345.-+eEin f_") for _ in range(draw.randrange(1, 7)))
            path.write_text(f"x,y\n1,a\n{cell},b\n")
            alike(path, table, monkeypatch)


@pytest.mark.parametrize(
    "content",
    [
        "", "\n", "x\n", "x,y", "x,y\n", "x,y\n\n", "\nx,y\n1,2\n", "x,y\n1,2\n\n3,4\n", "x,y\n1,2", "x,y\n1,2\n3\n", "x,y\n1,2,3\n",
        "x,y\n1,2,3\n4\n", "x,y\n1,2\n3,4,5\n6\n", "x,y\n1\n2,3,4\n", "x,y\r\n1,2\r\n", "x,y\n1,2\r\n", "x,y\n1,a\rb\n", "x,y\n1,a\0b\n",
        "x,x\n1,2\n", "y\na\n", "x,y,z\n1,2,3\n", ",y\n1,2\n", 'x,"y"\n1,a\n', 'x,y\n1,"a\n', 'x,y\n1,"a"b\n', 'x,y\n1,a"b"\n', 'x,y\n1,"a""b"\n',
        'x,y\n"1",a\n', 'x,y\n1,a"\n2,"b\n', 'x,y\n1,"a\nb"\n', 'x,y\n1,"a\n\nb"\n', 'x,"y\n1",a\n', "x,y\n1,a \n", "x, y\n1,a\n",
        "\ufeffx,y\n1,a\n", "\ufeff\ufeffx,y\n1,a\n", 'x,y\n1,"a" \n', "x,y\n1,a,\n", "x,y\n1,'a,b'\n", "x,y\n1,a\\,b\n", 'x,y\n1,""\n', "x,y\n1,\n",
        'x,y\n1,"a","b"\n2\n', 'x,y\n1,""""\n', 'x,y\n1,"""a"\n', 'x,y\n1,"a"""\n', 'x,y\n1,"",\n',
    ],
)  # fmt: skip
def test_odd_files_are_read_or_refused_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode())
    alike(path, reading.Table(columns=declare({"x": COUNT, "y": TEXT})), monkeypatch)
    alike(path, reading.Table(columns=declare({"x": TEXT}), others=NUMBER.or_missing), monkeypatch)
    path.write_bytes(content.encode() + b"1,\xff\n")
    alike(path, reading.Table(columns=declare({"x": COUNT, "y": TEXT})), monkeypatch)


@pytest.mark.parametrize("seed", slow.first(range(60), 12))
def test_damaged_tables_are_read_or_refused_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording, seed: int
) -> None:
    draw, path = random.Random(seed), tmp_path / "t.csv"
    whole = recording("zoo/kernels.csv").read_bytes().splitlines(keepends=True)
    content, _ = draw.choice([*BYTES, *TABLES])(b"".join(whole[: draw.randrange(2, 40)]), draw)
    path.write_bytes(content)
    alike(path, reading.Table(columns={}, optional=schemas.TABLES["kernels"].columns), monkeypatch)
