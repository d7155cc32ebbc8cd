"""The data dictionary: no column without a meaning and unit, by declaration and in tables that are made of recordings."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo import csv_files, data_dictionary
from profzoo.csv_files import CSV_FILES
from profzoo.document import columns as document_columns
from profzoo.io import column_types, columns
from profzoo.io import csv_tables as reading
from profzoo.io.columns import Column
from profzoo.io.common_columns import COMMON
from profzoo.tools.ncu import export as ncu_export
from profzoo.tools.ncu.derived_metrics import NUMBERS, QUANTITIES
from profzoo.tools.ncu.dictionary import DERIVED
from tests.columns import undescribed

# Numbers that name things.
IDENTIFIERS = ("process", "thread", "woken_by", "rank", "step", "id", "run", "launch", "stratum", "order", "call", "sequence",
               "stream", "throttle_reasons", "gpu", "place", "line", "cycle", "address", "core")  # fmt: skip
UNITS = {"_ns": "ns", "_bytes": "byte", "_share": "fraction", "_flop": "flop", "_pct": "%", "_hz": "Hz", "_j": "J",
         "_sectors": "sectors", "_per_s": "/s"}  # fmt: skip
FREE = "see "


def declared() -> Iterator[tuple[str, str]]:
    for pattern, file in CSV_FILES.items():
        yield from ((pattern, name) for name in data_dictionary.list_columns(file.table))


def test_every_declared_column_has_a_meaning_in_words() -> None:
    lacking = [(pattern, name) for pattern, name in declared() if CSV_FILES[pattern].table.describe(name) is None]
    assert not lacking, f"describe them in the dictionary.py of the table's package: {lacking}"
    for _, name, column in data_dictionary.list_entries():
        assert re.fullmatch(r"[A-Z`p].{10,180}\.", column.means), (name, column.means)
        assert column.clock in ("", columns.GPU, columns.CPU) and column.interval in ("", "90 %", "95 %")


def test_every_number_has_a_unit_and_every_time_a_clock() -> None:
    for pattern, name, column in data_dictionary.list_entries():
        kind = CSV_FILES[pattern].table.kind(name.replace("*", "x"))
        assert kind is not None, (pattern, name)
        number = kind.pattern is not None and kind != column_types.FLAG
        if number and name not in IDENTIFIERS:
            assert column.unit, f"{pattern}: {name} has no unit"
        if not number and not column.unit.startswith(FREE):
            assert not column.unit or "*" in name, f"{pattern}: {name} is text, and has a unit"
        if column.unit == "ns":
            assert column.clock, f"{pattern}: {name} has no clock"
        for ending, unit in UNITS.items():
            # A share of a difference may be below 0.
            if name.endswith(ending) and not name.startswith("delta_"):
                assert column.unit.endswith(unit), f"{pattern}: {name} is in {column.unit}"


def test_a_column_without_a_meaning_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = reading.Table(columns={"model": column_types.TEXT, "novel_ns": column_types.AMOUNT})
    monkeypatch.setitem(CSV_FILES, "tables/novel.csv", csv_files.File("New.", "a cell", table))
    with pytest.raises(SystemExit, match=r"tables/novel\.csv: the column novel_ns has no meaning: add it to the"):
        document_columns.main(tmp_path / "columns.md")


def test_names_come_before_families_and_intervals_follow_from_their_number() -> None:
    known = {"*_ns": Column("Any.", "ns"), "idle_ns": Column("Idle.", "ns", interval="90 %")}
    assert columns.find("idle_ns", known) == known["idle_ns"] and columns.find("busy_ns", known) == known["*_ns"]
    end = columns.find("idle_ns_high", {}, known)
    assert end and end.means == "Upper end of the 90 % interval of `idle_ns`." and end.unit == "ns"
    assert columns.find("grid_x", {}, COMMON) == COMMON["grid_x"] and columns.find("grid_w", {}, COMMON) is None
    own = {"launches": Column("Own.", "count")}
    assert columns.find("launches", own, {"launches": Column("Shared.", "count")}) == own["launches"]


def test_every_quantity_and_every_metric_of_it_is_described() -> None:
    assert set(QUANTITIES) < set(DERIVED)
    for metric in NUMBERS:
        column = CSV_FILES["{model}/{phase}.ncu.csv"].table.describe(metric)
        assert column and column.tool == "ncu" and column.unit not in ("", "see sidecar"), metric


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("tables/cells.csv", "tables/cells.csv"),
        ("lstm/train.ncu.csv", "{model}/{phase}.ncu.csv"),
        ("lstm/train.ncu.launch.csv", "{model}/{phase}.ncu.{set}.csv"),
        ("lstm/train.ncu.launch.coverage.csv", "{model}/{phase}.ncu.{set}.coverage.csv"),
        ("lstm/train.nsys/cuda_gpu_kern_sum.csv", "{model}/{phase}.nsys/{report}.csv"),
        ("lstm/train.torch.csv", "{model}/{phase}.torch.csv"),
        ("lstm@bf16/train.bf16.rounds.csv", "{model}/{phase}.{side}.rounds.csv"),
        ("peaks/gpu0.csv", "peaks/{gpu}.csv"),
        ("tables/own.csv", None),
    ],
)
def test_a_file_is_known_by_its_name(path: str, pattern: str | None) -> None:
    found = csv_files.find_file(path)
    assert (found[0] if found else None) == pattern


def test_the_dictionary_is_a_table_of_its_own(tmp_path: Path) -> None:
    data_dictionary.main(tmp_path / "columns.csv")
    table = reading.read(tmp_path / "columns.csv", csv_files.DICTIONARY)
    row = table.set_index(["table", "column"]).loc[("tables/kernels.csv", "dram_bytes_low")]
    assert row.to_dict() == {
        "unit": "byte", "meaning": "Lower end of the 90 % interval of `dram_bytes`.", "tool": "ncu", "clock": "",
    }  # fmt: skip
    assert set(table["table"]) == set(CSV_FILES)


def test_recorded_tables_have_no_other_columns(tmp_path: Path, recording) -> None:
    data = Path(__file__).parents[1] / "data"
    places = {
        "tables/kernels.csv": recording("zoo/kernels.csv"), "tables/steps.csv": data / "zoo/steps.csv",
        "tables/trials.csv": data / "trials/h200.csv", "lstm/train.torch-operators.csv": recording("torch/train.torch-operators.csv"),
        "lstm/train.ncu-details.csv": recording("ncu/launch.details.csv"),
        "lstm/train.nsys/cuda_gpu_kern_sum.csv": data / "nsys/cuda_gpu_kern_sum.csv",
    }  # fmt: skip
    for place, path in places.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(path.read_bytes())
    for name in ("launch", "defaultdomain"):
        ends = ("raw.mangled", "raw.demangled") if name == "launch" else ("raw", "raw")
        pages = [str(recording(f"ncu/{name}.{end}.csv")) for end in ends]
        table = ncu_export.tabulate_report({1: pages}, {"command": []}, None, "all").table
        table.to_csv(tmp_path / f"lstm/train.ncu.{name}.csv", index=False)
    assert undescribed(tmp_path) == []
    assert len(list(tmp_path.rglob("*.csv"))) == 8


def test_the_page_keeps_acronyms_in_capitals() -> None:
    """`GPU time` stands after a colon as it is; other sentences begin there with a small letter."""
    text = document_columns.page()
    assert re.findall(r"`: [a-z][A-Z]\w*", text) == []
    assert "`{model}/{phase}.nsys.csv`: GPU time by nsys; a row is" in text and ".time.csv`: steps without any" in text
