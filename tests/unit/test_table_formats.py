"""Tables are the same in every format, with the types, units and meanings that their declarations give."""

import csv
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from profzoo.catalog import convert_tables, csv_files
from profzoo.errors import ConfigError, DataError
from profzoo.io import table_formats
from profzoo.io.columns import COUNT, FLAG, NUMBER, TEXT, Column
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tools.time import tables as time_tables
from profzoo.tools.torch import collective_events
from tests.columns import declare

DATA = Path(__file__).parents[1] / "data"
ARROW = os.environ.get("PROFZOO_ARROW")
needs_arrow = pytest.mark.skipif(
    not ARROW, reason="no pyarrow: PROFZOO_ARROW names no folder; tests/tools/install-package.sh arrow DIR sets one up"
)
# Text that would need care: a missing word, quotes, an end of a line, signs beyond ASCII.
TEXTS = ["null", 'say "ä", then\nmore', "", "-1"]
DECLARED = Table(
    columns={
        **declare({"name": TEXT, "launches": COUNT.or_missing}),
        "count": Column(COUNT, "How often.", "count", "nsys", "gpu"),
        "ratio": Column(NUMBER.or_missing, "How much faster.", "ratio"),
        **declare({"same": FLAG}),
    }
)
LARGE = 2**53 + 1


def make_frame() -> pd.DataFrame:
    """A table with every kind of column, as it is read: whole numbers of which one is missing are floats there."""
    return pd.DataFrame(
        {
            "name": TEXTS,
            "launches": [1.0, float("nan"), 3.0, 4.0],
            "count": [LARGE, 0, 1, 2],
            "ratio": [0.1, float("inf"), float("nan"), 1e-300],
            "same": [True, False, True, False],
        }
    )


def test_json_is_a_table_schema_that_pandas_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    table_formats.write_table(make_frame(), DECLARED, {"title": "a.csv"}, path, "json")
    document = json.loads(path.read_text())
    assert document["schema"]["title"] == "a.csv"
    fields = {field.pop("name"): field for field in document["schema"]["fields"]}
    assert {name: field["type"] for name, field in fields.items()} == {
        "name": "string", "launches": "integer", "count": "integer", "ratio": "number", "same": "boolean",
    }  # fmt: skip
    assert fields["count"] == {
        "type": "integer", "description": "How often.", "unit": "count", "tool": "nsys", "clock": "gpu",
    }  # fmt: skip
    assert document["data"][0] == {"name": "null", "launches": 1, "count": LARGE, "ratio": 0.1, "same": True}
    assert [row["launches"] for row in document["data"]] == [1, None, 3, 4]
    assert [row["ratio"] for row in document["data"]] == [0.1, "INF", None, 1e-300]
    read = pd.read_json(path, orient="table", precise_float=True)
    assert read["name"].tolist() == TEXTS and read["count"].tolist() == [LARGE, 0, 1, 2]
    assert read["launches"].dtype == "Int64" and read["ratio"].tolist()[:2] == [0.1, float("inf")]


def test_tables_of_no_rows_and_of_many_are_whole(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.json", table_formats.ROWS * 2 + 3
    table_formats.write_table(DECLARED.empty(), DECLARED, {}, path, "json")
    assert pd.read_json(path, orient="table").columns.tolist() == [*DECLARED.columns]
    table_formats.write_table(pd.DataFrame({"row": range(rows)}), None, {}, path, "json")
    assert [row["row"] for row in json.loads(path.read_text())["data"]] == [*range(rows)]


def test_a_missing_package_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table_formats.PACKAGES, "parquet", "no_such_package")
    with pytest.raises(ConfigError, match=r"parquet needs the package no_such_package.*pip install.*export=json"):
        table_formats.check_formats(["json", "parquet"])


def write_steps(path: Path, rows: str) -> Path:
    """Write a table of steps without a profiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(",".join(time_tables.TABLE.columns) + "\n" + rows)
    return path


def test_all_known_tables_are_converted_and_no_other_file(tmp_path: Path) -> None:
    results, said = tmp_path / "results", list[object]()
    write_steps(results / "lstm/train.time.csv", "0,1000,,8\n1,1010,,8\n")
    write_steps(results / "bert/inference.time.csv", "0,fast,,8\n")
    write_steps(results / "lstm/notes.csv", "")
    convert_tables.convert_tables(results, tmp_path / "json", "json", [], said.append)
    (made,) = (path for path in (tmp_path / "json").rglob("*") if path.is_file())
    assert made == tmp_path / "json/lstm/train.time.json"
    document = json.loads(made.read_text())
    assert [row["wall_ns"] for row in document["data"]] == [1000, 1010]
    assert document["schema"]["row"] == "a step"
    (line,) = said
    assert "left out of tables.json" in str(line) and "bert/inference.time.csv" in str(line) and "'fast'" in str(line)


def test_a_damaged_table_of_this_run_ends_the_job(tmp_path: Path) -> None:
    damaged = write_steps(tmp_path / "results/lstm/train.time.csv", "0,fast,,8\n")
    with pytest.raises(DataError, match="fast"):
        convert_tables.convert_tables(tmp_path / "results", tmp_path / "json", "json", [damaged], print)


BY_ARROW = """
import sys
import pandas as pd
import pyarrow as pa
from pyarrow import ipc, parquet
from pathlib import Path
from profzoo.io import table_formats
from tests.unit.test_table_formats import DECLARED, LARGE, TEXTS, make_frame

folder = Path(sys.argv[1])
for format_ in ("parquet", "arrow"):
    table_formats.write_table(make_frame(), DECLARED, {"title": "a.csv"}, folder / f"a.{format_}", format_)
    table_formats.write_table(DECLARED.empty(), DECLARED, {}, folder / f"none.{format_}", format_)
table = parquet.read_table(folder / "a.parquet")
assert table.equals(ipc.open_file(folder / "a.arrow").read_all(), check_metadata=True)
assert table.schema.types == [pa.string(), pa.int64(), pa.int64(), pa.float64(), pa.bool_()], table.schema
assert table.to_pydict() == {
    "name": TEXTS, "launches": [1, None, 3, 4], "count": [LARGE, 0, 1, 2],
    "ratio": [0.1, float("inf"), None, 1e-300], "same": [True, False, True, False],
}, table.to_pydict()
assert table.schema.metadata[b"title"] == b"a.csv"
assert table.schema.field("count").metadata == {
    b"means": b"How often.", b"unit": b"count", b"tool": b"nsys", b"clock": b"gpu"
}
assert pd.read_parquet(folder / "a.parquet")["count"].tolist() == [LARGE, 0, 1, 2]
none = parquet.read_table(folder / "none.parquet")
assert none.schema.names == [*DECLARED.columns] and none.num_rows == 0 and none.schema.types == table.schema.types
print("same")
"""


@needs_arrow
def test_parquet_and_arrow_hold_types_units_and_meanings(tmp_path: Path) -> None:
    assert ARROW
    sources = os.pathsep.join([ARROW, str(Path(__file__).parents[2])])
    ended = subprocess.run(
        [sys.executable, "-c", BY_ARROW, str(tmp_path)], env=os.environ | {"PYTHONPATH": sources},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert ended.stdout == "same\n"


def test_every_declared_file_can_be_converted(tmp_path: Path) -> None:
    """Without rows: each declaration gives the types of its columns."""
    for pattern, file in csv_files.CSV_FILES.items():
        table_formats.write_table(file.table.empty(), file.table, {"title": pattern}, tmp_path / "a.json", "json")
        fields = json.loads((tmp_path / "a.json").read_text())["schema"]["fields"]
        assert [field["name"] for field in fields] == [*file.table.columns], pattern


def test_pages_as_ncu_prints_them_and_measured_links_are_converted(tmp_path: Path) -> None:
    """Rows about metrics are shorter than the heading of ncu's details page. A probe's raw page is not a table."""
    results, said = tmp_path / "results", list[object]()
    (results / "lstm").mkdir(parents=True)
    (results / "peaks").mkdir()
    page = results / "lstm/train.ncu-details.roofline.csv"
    page.write_bytes(gzip.decompress((DATA / "ncu/launch.details.csv.gz").read_bytes()))
    links = results / "peaks/h200.links.1x2.csv"
    write_csv(collective_events.TABLE.empty(), links)
    (results / "peaks/h200.survey.probe.csv").write_text('"ID","a"\n"",""\n"0","1"\n')
    convert_tables.convert_tables(results, tmp_path / "json", "json", [page, links], said.append)
    made = {path.relative_to(tmp_path / "json").as_posix() for path in (tmp_path / "json").rglob("*.json")}
    assert made == {"lstm/train.ncu-details.roofline.json", "peaks/h200.links.1x2.json"} and not said
    with page.open(newline="") as file:
        printed = list(csv.DictReader(file, restval=""))
    rows = json.loads((tmp_path / "json/lstm/train.ncu-details.roofline.json").read_text())["data"]
    assert rows == printed and {row["Rule Name"] for row in rows} > {""}
