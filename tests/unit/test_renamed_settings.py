"""Renamed settings and columns are read under their former names, with a warning, and never under both."""

from pathlib import Path

import pytest

from profzoo.compare.comparison_table import COMPARISON_TABLE
from profzoo.config import configuration, renamed_settings
from profzoo.errors import ConfigError
from profzoo.io import csv_tables
from profzoo.io.csv_tables import Table
from profzoo.tools.ncu.export_schema import TABLE as NCU_TABLE


@pytest.mark.parametrize(
    ("given", "place", "value"),
    [
        ({"baseline": "bf16"}, ("reference",), "bf16"),
        ({"margin": "0.05"}, ("equivalence_margin",), 0.05),
        ({"trials": {"most": 3, "repeats": 4}}, ("trials", "max_settings"), 3),
    ],
)
def test_a_former_name_of_a_setting_sets_the_present_one(given: dict, place: tuple[str, ...], value: object) -> None:
    before, config = repr(given), configuration.normalise_config(given)
    part = config if len(place) == 1 else config[place[0]]
    assert part[place[-1]] == value and repr(given) == before
    (line,) = renamed_settings.describe_renamed(given)
    assert line.endswith(f"is now called {'.'.join(place)}: the former name is read in this version only")
    assert not renamed_settings.describe_renamed(config) and configuration.normalise_config(config) == config


def test_every_former_name_is_none_of_a_present_setting() -> None:
    known = renamed_settings.former_names()
    assert len(known) == 3 and not set(known) & set(known.values())


def test_a_setting_under_both_names_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^baseline and reference are the same setting: leave out baseline"):
        configuration.normalise_config({"baseline": "bf16", "reference": "fp16"})


def test_a_mistake_under_a_former_name_is_told_by_the_present_one() -> None:
    with pytest.raises(ConfigError, match=r"^trials.max_settings = 0 is too small: at least 1"):
        configuration.normalise_config({"trials": {"most": 0}})


@pytest.mark.parametrize(("table", "old"), [(NCU_TABLE, "weight"), (COMPARISON_TABLE, "in_turn")])
def test_former_names_of_columns_are_declared(table: Table, old: str) -> None:
    new = table.formerly[old]
    assert table.kind(new) and old not in {*table.columns, *table.optional} and table.describe(new)


@pytest.mark.parametrize("rows", [1, 9000])
def test_a_former_name_of_a_column_is_read_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: int
) -> None:
    """Also in a file so long that the fast parser reads it."""
    kind = csv_tables.column_types.COUNT
    table = Table(columns={"multiplicity": kind, "id": kind}, formerly={"weight": "multiplicity"})
    path = tmp_path / "old.csv"
    path.write_text("weight,id\n" + "".join(f"{row},{row}\n" for row in range(rows)))
    frame = csv_tables.read(path, table)
    assert list(frame) == ["multiplicity", "id"] and len(frame) == rows
    said = capsys.readouterr().err
    assert f"{path}: the column weight is now called multiplicity" in said and said.count("\n") == 1
    path.write_text("multiplicity,id\n1,1\n")
    assert csv_tables.read(path, table)["multiplicity"].tolist() == [1] and not capsys.readouterr().err
