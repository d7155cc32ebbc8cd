"""Columns about links (NVLink, NUMA, C2C) are kept where the GPU has such a link, and only there."""

import csv
from collections.abc import Mapping
from pathlib import Path

from profzoo.io import columns, csv_tables
from profzoo.tools.ncu import dictionary, export_schema, links
from profzoo.tools.ncu import raw_page as ncu_tables

UNITS = {"nvlink__bandwidth": "byte/second"}


def page_of(recorded: Path, path: Path, changed: Mapping[str, str]) -> Path:
    """Write a recorded raw page with other values in some columns."""
    with recorded.open(newline="") as file:
        heading, units, *body = csv.reader(file)
    for name, value in changed.items():
        at = heading.index(name)
        units[at] = UNITS.get(name, units[at])
        for row in body:
            row[at] = value
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([heading, units, *body])
    return path


def table_of(path: Path):
    raw, units = ncu_tables.read_raw(path)
    return ncu_tables.tidy_launches(raw, units, raw, None)


def families(names) -> set[str]:
    return {family for family in links.FAMILIES for name in names if name.startswith(family)}


def test_a_gpu_without_links_has_no_column_about_them(recording) -> None:
    table, _ = table_of(recording("ncu/launch.raw.mangled.csv"))
    assert not families(table)


def test_nvlink_is_kept_where_links_are_enabled(recording, tmp_path: Path) -> None:
    changed = {"nvlink__enabled_mask": "262143", "nvlink__count_physical": "18", "nvlink__bandwidth": "25,000,000,000"}
    table, units = table_of(page_of(recording("ncu/launch.raw.mangled.csv"), tmp_path / "page.csv", changed))
    assert families(table) == {"nvlink__"}
    assert set(table["nvlink__count_physical"]) == {18} and set(table["nvlink__bandwidth"]) == {25_000_000_000}
    assert units["nvlink__bandwidth"] == "byte/s"
    # The table that a reader declares has these columns, and each has a meaning.
    table.to_csv(tmp_path / "table.csv", index=False)
    read = csv_tables.read(tmp_path / "table.csv", export_schema.TABLE)
    assert set(read["nvlink__max_count"]) == {18}
    assert "NVLink" in columns.find("nvlink__count_physical", dictionary.LAUNCHES).means


def test_c2c_and_numa_are_kept_where_the_processor_is_linked(recording, tmp_path: Path) -> None:
    changed = {"c2clink__present": "1", "device__attribute_numa_config": "1"}
    table, _ = table_of(page_of(recording("ncu/launch.raw.mangled.csv"), tmp_path / "page.csv", changed))
    assert families(table) == {"c2clink__", "numa__"}


def test_an_unknown_unit_of_a_link_spoils_no_table(recording, tmp_path: Path) -> None:
    changed = {"nvlink__enabled_mask": "1", "nvlink__bandwidth": "25.0 of 50"}
    table, _ = table_of(page_of(recording("ncu/launch.raw.mangled.csv"), tmp_path / "page.csv", changed))
    assert set(table["nvlink__bandwidth"]) == {"25.0 of 50"} and len(table) == 468
