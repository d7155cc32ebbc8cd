"""The data dictionary: no column without a meaning and unit, by declaration and in tables that are made of recordings."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profzoo.catalog import csv_files
from profzoo.catalog.csv_files import CSV_FILES
from profzoo.io import columns
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, COUNT, FLAG, NUMBER, TEXT, Column
from profzoo.io.common_columns import COMMON, shared
from profzoo.tools.ncu import quantities
from profzoo.tools.ncu.quantities import NUMBERS, QUANTITIES

# Numbers that name things.
IDENTIFIERS = ("process", "thread", "woken_by", "rank", "step", "id", "run", "launch", "stratum", "order", "call", "sequence",
               "stream", "throttle_reasons", "gpu", "place", "line", "cycle", "address", "core")  # fmt: skip
UNITS = {"_ns": "ns", "_bytes": "byte", "_share": "fraction", "_flop": "flop", "_pct": "%", "_hz": "Hz", "_j": "J",
         "_sectors": "sectors", "_per_s": "/s"}  # fmt: skip
FREE = "see "


def declared() -> Iterator[tuple[str, str]]:
    for pattern, file in CSV_FILES.items():
        yield from ((pattern, name) for name in csv_files.list_columns(file.table))


def test_every_declared_column_has_a_meaning_in_words() -> None:
    assert {(pattern, name) for pattern, name, _ in csv_files.list_entries()} == {*declared()}
    for _, name, column in csv_files.list_entries():
        assert re.fullmatch(r"[A-Z`p].{10,180}\.", column.means), (name, column.means)
        assert column.clock in ("", columns.GPU, columns.CPU) and column.interval in ("", "90 %", "95 %")


def test_every_number_has_a_unit_and_every_time_a_clock() -> None:
    for pattern, name, column in csv_files.list_entries():
        kind = CSV_FILES[pattern].table.kind(name.replace("*", "x"))
        assert kind is not None, (pattern, name)
        number = kind.pattern is not None and kind != FLAG
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


def test_names_come_before_families() -> None:
    known = {"*_ns": Column(COUNT, "Any.", "ns"), "idle_ns": Column(AMOUNT, "Idle.", "ns")}
    table = reading.Table(columns={"busy_ns": Column(TEXT, "Busy.")}, families=known, others=NUMBER)
    assert table.describe("idle_ns") == known["idle_ns"] and table.describe("wait_ns") == known["*_ns"]
    assert table.kind("busy_ns") == TEXT and table.kind("wait_ns") == COUNT and table.kind("share") == NUMBER
    assert table.describe("share") is None and replace(table, others=None).kind("share") is None


def test_common_columns_are_taken_with_changes_and_no_other_names() -> None:
    taken = shared("grid_x", "stream", kind=TEXT, tool="nsys")
    assert list(taken) == ["grid_x", "stream"] and taken["grid_x"] == replace(COMMON["grid_x"], kind=TEXT, tool="nsys")
    with pytest.raises(KeyError):
        shared("grid_w")


def test_every_quantity_and_every_metric_of_it_is_described() -> None:
    assert list(quantities.COLUMNS) == list(QUANTITIES)
    for metric in NUMBERS:
        column = CSV_FILES["{model}/{phase}.ncu.csv"].table.describe(metric)
        assert column and column.tool == "ncu" and column.unit not in ("", "see sidecar"), metric


def test_a_file_is_known_by_its_name() -> None:
    known = {
        "tables/cells.csv": "tables/cells.csv",
        "lstm/train.ncu.csv": "{model}/{phase}.ncu.csv",
        "lstm/train.ncu.launch.coverage.csv": "{model}/{phase}.ncu.{set}.coverage.csv",
        "lstm/train.nsys/cuda_gpu_kern_sum.csv": "{model}/{phase}.nsys/{report}.csv",
        "lstm@bf16/train.bf16.rounds.csv": "{model}/{phase}.{side}.rounds.csv",
    }
    assert {path: (csv_files.find_file(path) or [None])[0] for path in known} == known
    assert csv_files.find_file("tables/own.csv") is None


def test_the_dictionary_is_a_table_of_its_own(tmp_path: Path) -> None:
    csv_files.main(tmp_path / "columns.csv")
    table = reading.read(tmp_path / "columns.csv", csv_files.DICTIONARY)
    row = table.set_index(["table", "column"]).loc[("tables/kernels.csv", "dram_bytes_low")]
    assert row.to_dict() == {
        "unit": "byte", "meaning": "Lower end of the 90 % interval of `dram_bytes`.", "tool": "ncu", "clock": "",
    }  # fmt: skip
    assert set(table["table"]) == set(CSV_FILES)
