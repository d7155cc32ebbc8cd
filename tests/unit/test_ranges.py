"""ranges: which range belongs to which number of every table, and that no number lies outside of its own."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import profzoo
from profzoo.compare import comparison_table as compared_tables
from profzoo.io import number_intervals
from profzoo.io.csv_tables import Table
from profzoo.statistics import process_repeats
from profzoo.tables import cell_tables, schemas
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.trials import trial_table as trial_tables
from profzoo.verdicts import cpu_verdicts, rules, table_columns
from profzoo.what_if import tables as replay
from tests import whole_zoo
from tests.simulated import program, record, simulate
from tests.unit.compared import compared
from tests.unit.test_cpu_verdicts import BIG, CELL, cells
from tests.unit.test_cpu_verdicts import ranges as parts

# How a column says that it is an end of a range.
ENDS = ("low", "high", "least", "most", "min", "max", "quartile")
# By table (module and name) the numbers that have a range, with the ends.
BELONGS = {
    "profzoo.tables.schemas.cells": {
        "step_ns": ("step_low_ns", "step_high_ns"),
        "step_median_ns": ("step_lower_quartile_ns", "step_upper_quartile_ns"),
    },
    "profzoo.tools.nsys.tables.TABLE": {"mean_ns": ("min_ns", "max_ns"), "median_ns": ("min_ns", "max_ns")},
    "profzoo.what_if.tables.GAINS": {"gain": ("low", "high")},
    "profzoo.tables.schemas.replay": {"gain": ("low", "high")},
    "profzoo.compare.comparison_table.COMPARISON_TABLE": {
        "ratio": ("ratio_low", "ratio_high"),
        "energy_ratio": ("energy_low", "energy_high"),
    },
    "profzoo.trials.trial_table.TRIALS_TABLE": {
        "expected": ("expected_low", "expected_high"),
        "gain": ("gain_low", "gain_high"),
    },
    "profzoo.verdicts.table_columns.VERDICTS_TABLE": {
        "gain": ("gain_low", "gain_high"),
        "share": ("share_low", "share_high"),
    },
}


def tables() -> Iterator[tuple[str, Table]]:
    """Every table that a module of profzoo declares or imports, by module and name."""
    for module in pkgutil.walk_packages(profzoo.__path__, "profzoo."):
        if not module.name.endswith("__main__"):
            for name, found in vars(importlib.import_module(module.name)).items():
                of_name = found.items() if name == "TABLES" and isinstance(found, dict) else [(name, found)]
                yield from ((f"{module.name}.{key}", table) for key, table in of_name if isinstance(table, Table))


def test_every_end_of_a_range_belongs_to_a_number() -> None:
    found = dict(tables())
    assert len({id(table) for table in found.values()}) > 25
    known = {path: _known(table, BELONGS.get(path, {})) for path, table in found.items()}
    assert {path: known[path] for path in BELONGS} == BELONGS
    for path, table in found.items():
        ends = {end for pair in known[path].values() for end in pair}
        words = {name: set(name.split("_")) & set(ENDS) for name in [*table.columns, *table.optional]}
        lone = [name for name in words if words[name] and name not in ends]
        assert lone == [], f"{path}: of which number are {lone} the range?"


def _known(table: Table, belongs: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """The ranges of a table; belongs: with ends that only some of its files have, which are of its `others`."""
    more = [name for number, ends in belongs.items() for name in (number, *ends)]
    return number_intervals.interval_columns(
        list(dict.fromkeys([*table.columns, *table.optional, *more])), table.ranges
    )


def test_a_number_outside_of_its_range_is_named() -> None:
    table = pd.DataFrame({"gain": [2.0, np.nan, 3.0], "low": [1.0, 1.0, 3.1], "high": [2.0, 2.0, 3.2]})
    assert number_intervals.find_outside_interval(table.head(2), replay.GAINS) is None
    assert (
        number_intervals.find_outside_interval(table, replay.GAINS)
        == "row 3: gain 3 is outside low to high, 3.1 to 3.2"
    )
    assert number_intervals.find_outside_interval(table.head(1).assign(high=1.9), replay.GAINS) is not None
    assert number_intervals.find_outside_interval(table.assign(low=np.nan), replay.GAINS) is None


def facts(steps: int) -> dict:
    cell = {"workload": "trimmed", "precision": "fp32"}
    return {"cell": cell, "device": "cpu", "started": "2026-11-20T10", "parameters": 1, "batch": 1, "steps": steps,
            "items": steps, "peak_memory_bytes": None, "peak_rss_bytes": 1, "loss": None}  # fmt: skip


def test_a_mean_beyond_the_quartiles_lies_in_an_interval_of_its_own() -> None:
    """20 steps after the first: 16 of 1 ms and 4 of 6 ms, of which the mean is 2 ms and the quartiles are both 1 ms."""
    # One of five in each fifth of the window, so that the parts are alike and MSER cuts nothing.
    ms = [9.0, *[1.0, 1.0, 6.0, 1.0] * 4, *[1.0, 1.0, 1.0, 1.0]]
    frame = pd.DataFrame({"wall_ns": np.array(ms) * 1e6, "gpu_ns": np.nan})
    table = cell_tables.cells([({"model": "m", "phase": "train"}, frame, facts(len(ms)))])
    row = table.iloc[0]
    assert row["step_ns"] == pytest.approx(2e6) and row["step_median_ns"] == 1e6
    assert (row["step_lower_quartile_ns"], row["step_upper_quartile_ns"]) == (1e6, 1e6)
    # Parts of 2.25, 2.25, 2.25, 2.25 and 1 ms: their deviation is 0.559 ms, the error 0.25 ms, t of 4 degrees 2.776.
    assert row["step_low_ns"] == pytest.approx(2e6 - 2.776 * 0.25e6, rel=1e-3)
    assert row["step_high_ns"] == pytest.approx(2e6 + 2.776 * 0.25e6, rel=1e-3)
    assert number_intervals.find_outside_interval(table, schemas.TABLES["cells"]) is None


def test_no_steps_put_a_number_outside_of_its_range() -> None:
    random = np.random.default_rng(3)
    for _ in range(300):
        spread = random.choice([0.01, 0.5, 2.0])
        given = [np.exp(random.normal(0, spread, random.integers(1, 9))) for _ in range(random.integers(1, 6))]
        found = process_repeats.summarise_processes(given)
        assert found.lower_quartile_ns <= found.median_ns * (1 + 1e-12)
        assert found.median_ns <= found.upper_quartile_ns * (1 + 1e-12)
        assert not found.mean_low_ns > found.mean_ns and not found.mean_high_ns < found.mean_ns


def replayed(folder: Path) -> pd.DataFrame:
    return replay.make_tables(record(simulate(program(5)), folder / "step.sqlite"), 1e6)[0]


def traced(folder: Path) -> pd.DataFrame:
    whole_zoo.timeline(folder)
    return nsys_tables.summarise(folder / "train.sqlite")


def test_the_numbers_of_every_table_lie_in_their_ranges(tmp_path: Path) -> None:
    zoo = whole_zoo.tables()
    given = {name: (zoo[name], schemas.TABLES[name]) for name in ("cells", "kernels", "roofline", "steps", "layers")}
    given["verdicts"] = zoo["verdicts"], table_columns.VERDICTS_TABLE
    given["trials"] = zoo["trials"], trial_tables.TRIALS_TABLE
    given["compare"] = compared()[0], compared_tables.COMPARISON_TABLE
    given["replay"] = replayed(tmp_path), replay.GAINS
    given["on_cpu"] = (
        cpu_verdicts.tabulate_cpu_verdicts(cells(), parts(), {CELL: BIG}, {}, rules.load_rules()),
        table_columns.VERDICTS_TABLE,
    )
    given["nsys"] = traced(tmp_path), nsys_tables.TABLE
    for name, (frame, table) in given.items():
        assert len(frame), name
        assert number_intervals.find_outside_interval(frame, table) is None, (
            f"{name}: {number_intervals.find_outside_interval(frame, table)}"
        )
